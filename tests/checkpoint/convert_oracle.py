"""`lily convert` against MLX-LM: convert_oracle.py LILY

Makes a small random bf16 checkpoint of Hugging Face's layout, with groups that are hard to quantise (constant, one-sided, tiny,
huge, ties), converts it by lily and by MLX-LM, and compares every byte of every tensor and the quantisation in config.json.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model, quantize_model, save_config, save_model

TEXT = {
    "model_type": "qwen3_5_moe_text",
    "vocab_size": 192,
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "full_attention_interval": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "attn_output_gate": True,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 128,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}


def shapes():
    c = TEXT
    hidden, dim = c["hidden_size"], c["head_dim"]
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    values = c["linear_num_value_heads"] * c["linear_value_head_dim"]
    heads = c["linear_num_value_heads"]
    prefix = "model.language_model."
    yield prefix + "embed_tokens.weight", (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        layer = f"{prefix}layers.{i}."
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        if (i + 1) % c["full_attention_interval"] == 0:
            yield layer + "self_attn.q_proj.weight", (2 * c["num_attention_heads"] * dim, hidden)
            yield layer + "self_attn.k_proj.weight", (c["num_key_value_heads"] * dim, hidden)
            yield layer + "self_attn.v_proj.weight", (c["num_key_value_heads"] * dim, hidden)
            yield layer + "self_attn.o_proj.weight", (hidden, c["num_attention_heads"] * dim)
            yield layer + "self_attn.q_norm.weight", (dim,)
            yield layer + "self_attn.k_norm.weight", (dim,)
        else:
            yield layer + "linear_attn.in_proj_qkv.weight", (2 * keys + values, hidden)
            yield layer + "linear_attn.in_proj_z.weight", (values, hidden)
            yield layer + "linear_attn.in_proj_b.weight", (heads, hidden)
            yield layer + "linear_attn.in_proj_a.weight", (heads, hidden)
            yield layer + "linear_attn.conv1d.weight", (2 * keys + values, 1, c["linear_conv_kernel_dim"])
            yield layer + "linear_attn.A_log", (heads,)
            yield layer + "linear_attn.dt_bias", (heads,)
            yield layer + "linear_attn.norm.weight", (c["linear_value_head_dim"],)
            yield layer + "linear_attn.out_proj.weight", (hidden, values)
        experts, routed, shared = c["num_experts"], c["moe_intermediate_size"], c["shared_expert_intermediate_size"]
        yield layer + "mlp.gate.weight", (experts, hidden)
        yield layer + "mlp.shared_expert_gate.weight", (1, hidden)
        yield layer + "mlp.experts.gate_up_proj", (experts, 2 * routed, hidden)
        yield layer + "mlp.experts.down_proj", (experts, hidden, routed)
        yield layer + "mlp.shared_expert.gate_proj.weight", (shared, hidden)
        yield layer + "mlp.shared_expert.up_proj.weight", (shared, hidden)
        yield layer + "mlp.shared_expert.down_proj.weight", (hidden, shared)
    yield prefix + "norm.weight", (hidden,)
    yield "lm_head.weight", (c["vocab_size"], hidden)
    yield "model.visual.blocks.0.norm1.weight", (16,)
    yield "mtp.layers.0.mlp.gate.weight", (experts, hidden)


def hard_groups(random):
    """Groups of 64 at the edges of the quantiser."""
    steps = np.arange(64) % 16
    return np.stack(
        [
            np.zeros(64),
            np.full(64, 1.5),
            np.full(64, -0.01),
            np.eye(1, 64, 3)[0],
            -np.eye(1, 64, 60)[0] * 1e-3,
            np.abs(random.normal(size=64)),
            -np.abs(random.normal(size=64)),
            random.normal(size=64) * 1e-8,
            random.normal(size=64) * 1e-30,
            random.normal(size=64) * 1e-40,
            random.normal(size=64) * 1e30,
            np.where(steps < 8, -1.0, 1.0),
            steps - 7.5,
            (steps - 7) / 8 + 1 / 16,
            random.integers(-30, 31, size=64) / 4,
            random.integers(-255, 256, size=64) / 2,
            np.linspace(0.5, 1.0, 64),
            10 + random.normal(size=64) / 100,
        ]
    )


def make_checkpoint(directory):
    random = np.random.default_rng(11)
    tensors = {}
    for name, shape in shapes():
        values = random.normal(size=shape) * 0.05
        if values.ndim > 1 and shape[-1] % 64 == 0:
            groups = values.reshape(-1, 64)
            hard = hard_groups(random)
            at = random.permutation(len(groups))[: len(hard)]
            groups[at] = hard[: len(at)]
        dtype = mx.float32 if name.endswith("A_log") else mx.bfloat16
        tensors[name] = mx.array(values.astype(np.float32)).astype(dtype)
    names = list(tensors)
    halves = {
        "model-00001-of-00002.safetensors": names[: len(names) // 2],
        "model-00002-of-00002.safetensors": names[len(names) // 2 :],
    }
    for file, part in halves.items():
        mx.save_safetensors(str(directory / file), {n: tensors[n] for n in part}, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {n: file for file, part in halves.items() for n in part}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"model_type": "qwen3_5_moe", "tie_word_embeddings": False, "text_config": TEXT}
    (directory / "config.json").write_text(json.dumps(config))


def convert_by_mlx(source, out):
    model, config = load_model(source, lazy=True)
    model, config = quantize_model(model, config, 64, 4)
    save_model(out, model)
    save_config(config, out / "config.json")


def read_tensors(directory):
    tensors = {}
    for file in sorted(directory.glob("*.safetensors")):
        data = file.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8 : 8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                raw = np.frombuffer(data[8 + size + begin : 8 + size + end], np.uint8)
                tensors[name] = (entry["dtype"], entry["shape"], raw)
    return tensors


def main():
    lily = sys.argv[1]
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        (root / "hf").mkdir()
        make_checkpoint(root / "hf")
        convert_by_mlx(root / "hf", root / "mlx")
        subprocess.run([lily, "convert", root / "hf", root / "lily"], check=True)
        expected, found = read_tensors(root / "mlx"), read_tensors(root / "lily")
        assert expected.keys() == found.keys(), expected.keys() ^ found.keys()
        different = 0
        for name, (dtype, shape, raw) in expected.items():
            assert found[name][:2] == (dtype, shape), (name, found[name][:2], dtype, shape)
            count = int((found[name][2] != raw).sum())
            if count:
                print(f"{name}: {count} of {len(raw)} bytes differ")
            different += count
        total = sum(len(raw) for _, _, raw in expected.values())
        print(f"{different} of {total} bytes differ in {len(expected)} tensors")
        quantization = [json.loads((root / who / "config.json").read_text())["quantization"] for who in ("mlx", "lily")]
        assert quantization[0] == quantization[1]
        sys.exit(different != 0)


if __name__ == "__main__":
    main()
