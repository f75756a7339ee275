"""`lily synth` and `lily info` against MLX-LM: commands_oracle.py LILY

A synthetic checkpoint loads into MLX-LM without a missing or an unexpected tensor and its activations are sane; `lily info`
counts what MLX-LM counts.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import compute_bits_per_weight, load_model

SIZES = "--layers 8 --hidden 128 --vocab 8192 --experts 16 --experts-per-token 4 --heads 4 --kv-heads 2 --head-dim 64"


def main():
    lily = sys.argv[1]
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "model"
        subprocess.run([lily, "synth", path, "--seed", "4", "--shard-size", "1", *SIZES.split()], check=True)
        assert len(list(path.glob("*.safetensors"))) > 1
        model, config = load_model(path, lazy=False)
        logits = model(mx.array([list(range(1, 40))])).astype(mx.float32)
        deviation = float(mx.std(logits))
        print(f"logits' standard deviation {deviation:.3f}, expected about 2")
        assert 1.5 < deviation < 2.5

        info = json.loads(subprocess.run([lily, "info", "--json", "-m", path], check=True, capture_output=True).stdout)
        leaves = tree_flatten(model.parameters())
        assert info["missing"] == []
        assert info["tensors"] == len(leaves)
        assert info["bytes"]["text_model"] == sum(leaf.nbytes for _, leaf in leaves)
        assert abs(info["bits_per_weight"] - compute_bits_per_weight(model)) < 1e-3
        parts = sum(size for name, size in info["bytes"].items() if name not in ("text_model", "skipped"))
        assert parts == info["bytes"]["text_model"]
        text = config["text_config"]
        for name in ("hidden_size", "num_hidden_layers", "vocab_size", "num_experts", "head_dim"):
            assert info[name] == text[name], name


if __name__ == "__main__":
    main()
