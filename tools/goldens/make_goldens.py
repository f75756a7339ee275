"""Reference numbers for `lily eval` and the parity tests, from MLX-LM itself.

    pip install 'mlx-lm[cpu]==0.32.2'          (on a Mac: mlx-lm)
    python tools/goldens/make_goldens.py --model models/demo --out models/demo-goldens/goldens.safetensors

The reference is MLX-LM with every parameter (scales, biases, norms, conv) widened to float32, the packed codes untouched: the same 4-bit
weights, all arithmetic in float32. Beside it stands MLX-LM as it comes ("native": bf16 activations) on the same tokens. Each text is one
sequence; position i of a sequence predicts its token i + 1, so a sequence of n tokens has n - 1 positions. About ten minutes for the demo model
on two CPU cores.

Tensors of the file (N tokens, S sequences, P positions, K most likely tokens, G greedy prompts):
    shape                   I32 [3]      num_hidden_layers, hidden_size, vocab_size of the model
    tokens                  I32 [N]      all sequences, one after another
    ends                    I32 [S]      where each sequence ends in `tokens`
    top_ids                 I32 [P, K]   the reference's most likely tokens, best first
    top_logits              F32 [P, K]   their logits
    target_logits           F32 [P]      the logit of the token that follows in the text
    logsumexp               F32 [P]      over all logits: log-probability = logit - logsumexp
    native_top_id           I32 [P]      the native run's most likely token
    native_top_logits       F32 [P, K]   the native run's logits of `top_ids`
    native_target_logits    F32 [P]
    native_logsumexp        F32 [P]
    greedy_prompts          I32          G prompts, one after another
    greedy_prompt_ends      I32 [G]
    greedy_tokens           I32 [G, L]   what the reference continues with, the most likely token each time
    greedy_margins          F32 [G, L]   how far the chosen logit is above the second
"""

import argparse
import importlib.metadata
import sys

import mlx.core as mx
import numpy as np
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache
from safetensors.numpy import save_file

import texts

GREEDY_PROMPTS = [
    "Tell me a story about a brave fox who finds a lost lamp.",
    "Who are you?",
    "What do owls eat?",
    "I feel nervous today.",
    "Make a JSON object with name = Zoe, city = Rome and age = 31.",
    "Why do we need rain?",
]


def rows_of(model, ids):
    """Logits of one sequence, in slices of positions as float32 arrays."""
    logits = model(mx.array([ids]))[0]
    for begin in range(0, len(ids) - 1, 256):
        yield np.array(logits[begin : min(begin + 256, len(ids) - 1)].astype(mx.float32))


def logsumexp(rows):
    top = rows.max(-1, keepdims=True).astype(np.float64)
    return (top[:, 0] + np.log(np.exp(rows - top).sum(-1))).astype(np.float32)


def compare(model, sequences, k, top_ids, name):
    """One run over all sequences; `top_ids` None: this is the reference, which chooses them."""
    found = {"top_ids": [], "top_logits": [], "target_logits": [], "logsumexp": [], "top_id": []}
    position = 0
    for number, ids in enumerate(sequences):
        done = 0
        for rows in rows_of(model, ids):
            if top_ids is None:
                best = np.argsort(-rows, axis=-1, kind="stable")[:, :k]
            else:
                best = top_ids[position : position + len(rows)]
            found["top_ids"].append(best)
            found["top_logits"].append(np.take_along_axis(rows, best, -1))
            targets = np.array(ids[done + 1 : done + 1 + len(rows)])
            found["target_logits"].append(rows[np.arange(len(rows)), targets])
            found["logsumexp"].append(logsumexp(rows))
            found["top_id"].append(rows.argmax(-1))
            done += len(rows)
            position += len(rows)
        print(f"\r{name}: {number + 1} of {len(sequences)} sequences, {position} positions", end="", file=sys.stderr)
    print(file=sys.stderr)
    return {key: np.concatenate(value) for key, value in found.items()}


def greedy(model, prompt, length):
    cache = make_prompt_cache(model)
    logits = model(mx.array([prompt]), cache=cache)[0, -1]
    chosen, margins = [], []
    for _ in range(length):
        row = np.array(logits.astype(mx.float32))
        second, best = np.argsort(row)[-2:]
        chosen.append(int(best))
        margins.append(row[best] - row[second])
        logits = model(mx.array([[int(best)]]), cache=cache)[0, -1]
    return chosen, margins


def chat_prompt(tokenizer, text):
    rendered = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    return tokenizer.encode(rendered, add_special_tokens=False)


def report(reference, native):
    """What `lily eval` will print for the native run, for a first look."""
    loss = lambda run: (run["logsumexp"] - run["target_logits"]).astype(np.float64).mean()
    agreement = (reference["top_id"] == native["top_id"]).mean()
    error = np.abs(reference["top_logits"] - native["top_logits"]).max()
    print(
        f"perplexity {np.exp(loss(reference)):.4f}; native run: top-1 agreement {agreement:.4%}, "
        f"perplexity ratio {np.exp(loss(native) - loss(reference)):.6f}, largest logit error {error:.3f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/demo", help="directory or Hugging Face id of an MLX checkpoint")
    parser.add_argument("--out", required=True)
    parser.add_argument("--positions", type=int, default=3500, help="at least so many, in whole texts")
    parser.add_argument("--top-k", type=int, default=16)
    parser.add_argument("--greedy-length", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    args = parser.parse_args()

    mx.set_default_device(mx.cpu if args.device == "cpu" else mx.gpu)
    model, tokenizer = load(args.model)
    sequences, kinds, positions = [], [], 0
    for kind, text in texts.texts(args.seed):
        if positions >= args.positions:
            break
        sequences.append(tokenizer.encode(text, add_special_tokens=False))
        kinds.append(kind)
        positions += len(sequences[-1]) - 1

    model.set_dtype(mx.float32)
    reference = compare(model, sequences, args.top_k, None, "float32")
    prompts = [chat_prompt(tokenizer, text) for text in GREEDY_PROMPTS]
    continuations = [greedy(model, prompt, args.greedy_length) for prompt in prompts]
    del model
    native_model, _ = load(args.model)
    native = compare(native_model, sequences, args.top_k, reference["top_ids"], "native")

    i32 = lambda values: np.asarray(values, np.int32)
    config = native_model.language_model.args if hasattr(native_model, "language_model") else native_model.args
    tensors = {
        "shape": i32([config.num_hidden_layers, config.hidden_size, config.vocab_size]),
        "tokens": i32(np.concatenate(sequences)),
        "ends": i32(np.cumsum([len(ids) for ids in sequences])),
        "top_ids": i32(reference["top_ids"]),
        "top_logits": reference["top_logits"],
        "target_logits": reference["target_logits"],
        "logsumexp": reference["logsumexp"],
        "native_top_id": i32(native["top_id"]),
        "native_top_logits": native["top_logits"],
        "native_target_logits": native["target_logits"],
        "native_logsumexp": native["logsumexp"],
        "greedy_prompts": i32(np.concatenate(prompts)),
        "greedy_prompt_ends": i32(np.cumsum([len(ids) for ids in prompts])),
        "greedy_tokens": i32([tokens for tokens, _ in continuations]),
        "greedy_margins": np.asarray([margins for _, margins in continuations], np.float32),
    }
    versions = f"mlx {importlib.metadata.version('mlx')}, mlx-lm {importlib.metadata.version('mlx-lm')}"
    save_file(tensors, args.out, {"made_by": versions, "seed": str(args.seed), "kinds": " ".join(kinds)})
    report(reference, native)


if __name__ == "__main__":
    main()
