"""Qwen3.6's chat format for the conversations of synth.py, as (text, is_answer) pieces, and their packing into rows.
pack.py compares the text with the official chat_template.jinja."""

import json
import numpy as np

START, LOW = 1 << 14, 1 << 15  # row bits: first token of a document; prompt text (low loss weight)
TOOL_RULES = (
    "\n"
    "\n"
    "If you choose to call a function ONLY reply in the following format with NO suffix:\n"
    "\n"
    "<tool_call>\n"
    "<function=example_function_name>\n"
    "<parameter=example_parameter_1>\n"
    "value_1\n"
    "</parameter>\n"
    "<parameter=example_parameter_2>\n"
    "This is the value for the second parameter\n"
    "that can span\n"
    "multiple lines\n"
    "</parameter>\n"
    "</function>\n"
    "</tool_call>\n"
    "\n"
    "<IMPORTANT>\n"
    "Reminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user about function calls\n"
    "</IMPORTANT>"
)


def tool_block(tools):
    functions = "".join("\n" + json.dumps(t, ensure_ascii=False) for t in tools)
    return "# Tools\n\nYou have access to the following functions:\n\n<tools>" + functions + "\n</tools>" + TOOL_RULES


def calls(m):
    s = m["content"]
    for i, c in enumerate(m.get("tool_calls", [])):
        f = c["function"]
        s += ("\n\n" if i == 0 and s.strip() else "" if i == 0 else "\n") + f"<tool_call>\n<function={f['name']}>\n"
        for k, v in f["arguments"].items():
            s += f"<parameter={k}>\n{v if isinstance(v, str) else json.dumps(v)}\n</parameter>\n"
        s += "</function>\n</tool_call>"
    return s


def render(ms, tools, think):
    """-> [(text, is_answer)]; `think`: the last assistant turn's reasoning ('' = the empty block)"""
    P = []
    sysm = ms[0]["content"] if ms[0]["role"] == "system" else ""
    if tools:
        P.append(("<|im_start|>system\n" + tool_block(tools) + ("\n\n" + sysm if sysm else "") + "<|im_end|>\n", 0))
    elif sysm:
        P.append((f"<|im_start|>system\n{sysm}<|im_end|>\n", 0))
    lastq = max(i for i, m in enumerate(ms) if m["role"] == "user")
    for i, m in enumerate(ms):
        if m["role"] == "user":
            P.append((f"<|im_start|>user\n{m['content']}<|im_end|>\n", 0))
        elif m["role"] == "tool":
            P.append((f"<|im_start|>user\n<tool_response>\n{m['content']}\n</tool_response><|im_end|>\n", 0))
        elif m["role"] == "assistant":
            if i > lastq:
                th = think if i == len(ms) - 1 else m.get("reasoning_content", "")
                if th:
                    P += [("<|im_start|>assistant\n<think>\n", 0), (th + "\n</think>\n\n" + calls(m) + "<|im_end|>", 1)]
                else:
                    P += [("<|im_start|>assistant\n<think>\n\n</think>\n\n", 0), (calls(m) + "<|im_end|>", 1)]
            else:
                P += [("<|im_start|>assistant\n", 0), (calls(m) + "<|im_end|>", 1)]
            P.append(("\n", 0))
    return P


def pack(seqs, T, eot):
    """Documents into rows of T tokens, best fit; the rest is filled with `eot`."""
    bins, done = [], []
    for s in seqs:
        best = min((b for b in bins if b[0] + len(s) <= T), key=lambda b: T - b[0] - len(s), default=None)
        if best is None:
            best = [0, []]
            bins.append(best)
            if len(bins) > 40:
                k = max(range(len(bins)), key=lambda i: bins[i][0])
                done.append(bins.pop(k)) if bins[k] is not best else None
        best[0] += len(s)
        best[1].append(s)
        if best[0] > T - 12:
            done.append(best)
            bins.remove(best)
    done += bins
    R = np.full((len(done), T), eot | START | LOW, np.uint16)
    for i, (n, ss) in enumerate(done):
        R[i, :n] = np.concatenate(ss)
    return R
