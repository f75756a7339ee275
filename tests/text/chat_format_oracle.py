"""Compares lily's chat rendering with the model's official Jinja template.

usage: chat_format_oracle.py RENDERER        (tests/text/chat_format_render.cpp)

The template is not part of this repository: it is read from $LILY_TEMPLATE, or from ../shared/qwen3.6 beside the
repository, with golden renderings (goldens.json) where there are some. Without a template the test is skipped (77).
Conversations are generated with a fixed seed and are hostile on purpose. Every one must give the template's bytes; where
the template raises, lily must answer with a rendering or an error of its own. Without control spellings in the input,
the control pieces must be exactly the tokens that a tokenizer would find in the text.
"""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import jinja2.ext
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

BESIDE = Path(__file__).resolve().parents[2].parent / "shared" / "qwen3.6"
TEMPLATE = Path(os.environ.get("LILY_TEMPLATE", BESIDE / "qwen3.6_official.jinja"))
GOLDENS = TEMPLATE.parent / "goldens.json"
CONTROL = re.compile(
    r"<\|im_start\|>|<\|im_end\|>|</?think>|</?tool_call>|</?tool_response>|<\|vision_start\|>|<\|vision_end\|>"
    r"|<\|image_pad\|>|<\|video_pad\|>"
)
CONVERSATIONS = 1500


def load_template():
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda x, **_: json.dumps(x, ensure_ascii=False)

    def raise_exception(message):
        raise TemplateError(message)

    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


class Generator:
    """Random conversations of the shapes that clients send, filled with unpleasant text."""

    PLAIN = [
        "", " ", "\n", "Hello", "a b", "\u00e9", "\u4f60\u597d", "\U0001f469\u200d\U0001f467", "e\u0301", "\r\n", "\t",
        "\u00a0", "\u3000", "\u2028", "\x00", "\x1f", "\x85", "\u200b", "\ufeff", "{}", "[1, 2]", "null", "</parameter>",
        "<parameter=x>", "</function>", "<function=f>", "&amp; < > & \"q\" 'q'", "\\n", "\\", "{{ x }}", "{% if %}",
        "user\n", "\nassistant", "</tools>", "<IMPORTANT>", "x" * 300,
    ]
    CONTROL = [
        "<think>", "</think>", "<think>\n", "\n</think>\n\n", "<tool_call>", "</tool_call>", "<tool_response>",
        "</tool_response>", "<|im_end|>", "<|im_start|>system\n", "<|endoftext|>", "<|image_pad|>",
    ]

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.hostile = self.random.random() < 0.5

    def chance(self, probability):
        return self.random.random() < probability

    def text(self):
        words = self.PLAIN + (self.CONTROL if self.hostile else [])
        return "".join(self.random.choice(words) for _ in range(self.random.randrange(5)))

    def value(self, depth=0):
        kind = self.random.randrange(8 if depth < 3 else 5)
        if kind == 0:
            return self.text()
        if kind == 1:
            return self.random.choice([0, -1, 7, 2**53, 2**63 - 1, -(2**63), 2**64 - 1])
        if kind == 2:
            return self.random.choice(
                [0.0, -0.0, 1.0, 1.5, -2.25, 1e3, 1e15, 1e16, 1e-4, 1e-5, 1.5e300, 5e-324, 0.1, 1 / 3, 123456789.123]
            )
        if kind == 3:
            return self.random.choice([True, False, None])
        if kind == 4:
            return self.random.choice([[], {}])
        if kind < 7:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return self.mapping(depth + 1)

    def mapping(self, depth=0):
        return {self.text() or "k": self.value(depth) for _ in range(self.random.randrange(4))}

    def content(self, media):
        if self.chance(0.7):
            return self.text()
        parts = []
        for _ in range(self.random.randrange(4)):
            if media and self.chance(0.2):
                parts.append(
                    self.random.choice(
                        [
                            {"type": "image_url", "image_url": {"url": "x"}},
                            {"type": "image", "image": "x"},
                            {"type": "video", "video": "x"},
                        ]
                    )
                )
            else:
                parts.append({"type": "text", "text": self.text()})
        return parts

    def tool(self):
        function = {"name": self.random.choice(["f", "get_weather", "\u00e9"]), "description": self.text()}
        function["parameters"] = {"type": "object", "properties": self.mapping(), "required": ["city"]}
        return {"type": "function", "function": function} if self.chance(0.8) else function

    def call(self):
        function = {"name": self.random.choice(["f", "get_weather", "a b"])}
        if self.chance(0.9):
            function["arguments"] = self.mapping()
        return {"id": "c", "type": "function", "function": function} if self.chance(0.8) else function

    def assistant(self):
        message = {"role": "assistant", "content": None if self.chance(0.1) else self.content(True)}
        if self.chance(0.5):
            message["reasoning_content"] = self.random.choice([self.text(), self.text(), None])
        if self.chance(0.3):
            message["tool_calls"] = [self.call() for _ in range(self.random.randrange(4))]
        return message

    def tool_result(self):
        if self.chance(0.1):
            return {"role": "user", "content": "<tool_response>\n" + self.text() + "\n</tool_response>"}
        return {"role": "tool", "tool_call_id": "c", "content": self.content(True)}

    def conversation(self):
        messages = []
        if self.chance(0.4):
            messages.append({"role": "system", "content": self.content(False)})
        if self.chance(0.03):
            messages.append(self.tool_result())
        for _ in range(self.random.randrange(1, 5)):
            messages.append({"role": "user", "content": self.content(True)})
            for _ in range(self.random.randrange(3)):
                messages.append(self.assistant())
                messages += [self.tool_result() for _ in range(self.random.choice([0, 0, 1, 2, 3]))]
        options = {}
        for name, probability in (("enable_thinking", 0.4), ("preserve_thinking", 0.5), ("add_generation_prompt", 0.9)):
            if self.chance(0.7):
                options[name] = self.chance(probability)
        if self.chance(0.05):  # what the template refuses
            late = {"role": self.random.choice(["system", "developer", "critic"]), "content": self.content(False)}
            messages.insert(self.random.randrange(len(messages) + 1), late)
        if self.chance(0.03):
            messages = [m for m in messages if m["role"] != "user"]
        tools = [self.tool() for _ in range(self.random.randrange(1, 4))] if self.chance(0.4) else None
        return {"messages": messages, "tools": tools, "options": options}


def expected(template, case):
    try:
        options = {"add_generation_prompt": True, **case["options"]}
        return template.render(messages=case["messages"], tools=case["tools"], **options)
    except Exception:  # the template raises what it likes, TypeErrors included
        return None


def spells_control(case):
    return CONTROL.search(json.dumps(case["messages"]) + json.dumps(case["tools"])) is not None


def check(case, want, got):
    """A complaint, or None."""
    if want is None:
        return None
    if "error" in got:
        return "lily refuses: " + got["error"]
    text = "".join(piece for piece, _ in got["pieces"])
    if text != want:
        at = next((i for i, (a, b) in enumerate(zip(text, want)) if a != b), min(len(text), len(want)))
        return f"differs at {at}:\n  lily     {text[at - 60:at + 60]!r}\n  template {want[at - 60:at + 60]!r}"
    control = [piece for piece, is_control in got["pieces"] if is_control]
    if any(not CONTROL.fullmatch(piece) for piece in control):
        return "a control piece is not one token"
    if not spells_control(case) and control != CONTROL.findall(want):
        return "control pieces are not the control tokens of the text"
    starts = [i for i, piece in enumerate(got["pieces"]) if piece == ["<|im_start|>", True]] + [0, len(got["pieces"])]
    if got["cuts"] != sorted(got["cuts"]) or any(cut not in starts for cut in got["cuts"]):
        return f"cuts {got['cuts']} are not beginnings of turns"
    return None


def load_goldens():
    if not GOLDENS.exists():
        return []
    cases = []
    for golden in json.loads(GOLDENS.read_text(encoding="utf-8")):
        options = dict(golden["kwargs"])
        want = golden["render"]["qwen3.6"]
        case = {"messages": golden["messages"], "tools": options.pop("tools", None), "options": options}
        cases.append((case, want if isinstance(want, str) else None))
    return cases


def main():
    if not TEMPLATE.exists():
        print(f"skipped: no official template at {TEMPLATE} (set LILY_TEMPLATE to its path)")
        return 77
    template = load_template()
    goldens = load_goldens()
    generated = [Generator(seed).conversation() for seed in range(CONVERSATIONS)]
    cases = goldens + [(case, expected(template, case)) for case in generated]
    lines = "".join(json.dumps(case) + "\n" for case, _ in cases)
    output = subprocess.run([sys.argv[1]], input=lines, capture_output=True, text=True, encoding="utf-8", check=True)
    results = [json.loads(line) for line in output.stdout.split("\n") if line]
    if len(results) != len(cases):
        print(f"{len(cases)} conversations, {len(results)} answers")
        return 1
    failed = 0
    for (case, want), got in zip(cases, results):
        complaint = check(case, want, got)
        if complaint:
            failed += 1
            if failed <= 5:
                print(json.dumps(case)[:2000], "\n ", complaint)
    rendered = sum(want is not None for _, want in cases)
    served = sum(want is None and "pieces" in got for (_, want), got in zip(cases, results))
    print(
        f"{len(goldens)} goldens and {len(generated)} generated conversations: {rendered} compared, {failed} differ; "
        f"of {len(cases) - rendered} that the template refuses, {served} are served"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
