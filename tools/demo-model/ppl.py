"""Held-out perplexity (answer tokens only): python ppl.py hf|dq|mlx MODEL_DIR PACKED_DIR [docs per group] [MLX_DIR for dq]
hf: transformers, float32 arithmetic on the bf16 checkpoint; mlx: MLX-LM itself (CPU, its own dtype);
dq: transformers with the MLX checkpoint's integer weights dequantised to float32 (much faster than MLX-LM's CPU path)."""

import json, math, sys

kind, path, packed = sys.argv[1:4]
n = int(sys.argv[4]) if len(sys.argv) > 4 else 150
V = json.load(open(packed + "/val.json"))
G = {"teacher": [], "templates": []}
for d in V:
    g = G["teacher" if d["group"] == "teacher" else "templates"]
    if len(g) < n and len(d["ids"]) <= 700:
        g.append(d)


def dequantised(m, d):
    import numpy as np, torch
    from safetensors.torch import load_file

    w = load_file(d + "/model.safetensors")
    out = {}
    for k in w:
        if k.endswith((".scales", ".biases")):
            continue
        x, b = w[k], k[: -len(".weight")] if k.endswith(".weight") else k
        if b + ".scales" in w:
            s, z = w[b + ".scales"].float(), w[b + ".biases"].float()
            u = torch.from_numpy(x.numpy().view(np.uint32).astype(np.int64))
            n = s.shape[-1] * 64
            bits = u.shape[-1] * 32 // n
            q = (
                torch.stack([(u >> (bits * i)) & (2**bits - 1) for i in range(32 // bits)], -1)
                .reshape(*u.shape[:-1], n)
                .float()
            )
            x = (q.view(*s.shape, 64) * s[..., None] + z[..., None]).view(*s.shape[:-1], n)
        out[k] = x.float()
    sd = {}
    for k, x in out.items():
        k = k.replace("language_model.", "", 1)
        if "switch_mlp.up_proj" in k:
            continue
        if "switch_mlp.gate_proj" in k:
            x, k = (
                torch.cat([x, out["language_model." + k.replace("gate_proj", "up_proj")]], 1),
                k.replace("switch_mlp.gate_proj.weight", "experts.gate_up_proj"),
            )
        k = k.replace("switch_mlp.down_proj.weight", "experts.down_proj")
        if "conv1d" in k:
            x = x.transpose(1, 2)
        if k.endswith(("layernorm.weight", "model.norm.weight", "q_norm.weight", "k_norm.weight")):
            x = x - 1
        sd[k] = x.contiguous()
    print(m.load_state_dict(sd, strict=True))


if kind in ("hf", "dq"):
    import torch

    torch.set_num_threads(2)
    from transformers import AutoModelForCausalLM

    m = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    print(type(m).__name__)
    if kind == "dq":
        dequantised(m, sys.argv[5])

    def nll(ids):
        with torch.no_grad():
            l = m(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1].float()
        return torch.nn.functional.cross_entropy(l, torch.tensor(ids[1:]), reduction="none").tolist()
else:
    import mlx.core as mx, mlx.nn as nn

    mx.set_default_device(mx.cpu)
    from mlx_lm import load

    m, _ = load(path)

    def nll(ids):
        l = m(mx.array([ids]))[0, :-1].astype(mx.float32)
        return nn.losses.cross_entropy(l, mx.array(ids[1:])).tolist()


for g, ds in G.items():
    s = k = 0
    for d in ds:
        for x, a in zip(nll(d["ids"]), d["answer"][1:]):
            if a:
                s += x
                k += 1
    print(f"{kind} {path} {g}: docs {len(ds)} answer tokens {k} nll {s / k:.4f} ppl {math.exp(s / k):.4f}", flush=True)
