"""Writes the seeds of the checkpoint fuzz targets to tests/fuzz/corpus: make_checkpoint_corpus.py SOURCE_DIR

Each seed is one small valid file or one kind of damage, so that the fuzzer starts beside every check.
"""
import json
import sys
from pathlib import Path


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def header_seeds():
    """First byte: 0 for a whole file, an odd number n for a header that gets n bytes of data."""
    good = {"__metadata__": {"format": "mlx"}, "a": entry("F32", [2], 0, 8), "b": entry("BF16", [2, 1], 8, 12)}
    headers = {
        "good": (13, {**good, "c": entry("U8", [1], 12, 13)}),
        "empty": (1, {}),
        "scalar": (5, {"a": entry("F32", [], 0, 4), "b": entry("U8", [1], 4, 5)}),
        "no_values": (1, {"a": entry("F32", [0, 7], 0, 0), "b": entry("U8", [1], 0, 1)}),
        "overlap": (5, {"a": entry("U8", [3], 0, 3), "b": entry("U8", [3], 2, 5)}),
        "hole": (3, {"a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 2, 3)}),
        "outside": (3, {"a": entry("U8", [4], 0, 4)}),
        "negative": (1, {"a": entry("U8", [-1], 0, 1)}),
        "overflow": (1, {"a": entry("F32", [1 << 32, 1 << 32], 0, 0)}),
        "unknown": (1, {"a": entry("F4", [2], 0, 1)}),
        "fields": (1, {"a": {"dtype": "U8", "shape": [1]}}),
    }
    for name, (size, header) in headers.items():
        yield name, bytes([size]) + json.dumps(header, separators=(",", ":")).encode()
    text = json.dumps(good).encode()
    yield "file", b"\0" + len(text).to_bytes(8, "little") + text + bytes(12)
    yield "twice", b'\x01{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{}}'
    yield "deep", b"\x01" + b'{"a":' * 20
    yield "long", b"\0" + b"\xff" * 8 + b"{}"


def index_seeds():
    shard = "model-00001-of-00002.safetensors"
    documents = {
        "good": {"metadata": {"total_size": 12}, "weight_map": {"a": shard, "b": "model-00002-of-00002.safetensors"}},
        "parent": {"weight_map": {"a": "../model.safetensors"}},
        "absolute": {"weight_map": {"a": "/model.safetensors"}},
        "nul": {"weight_map": {"a": "x\0.safetensors"}},
        "number": {"weight_map": {"a": 1}},
        "list": {"weight_map": [shard]},
        "none": {"metadata": None},
    }
    for name, document in documents.items():
        yield name, json.dumps(document).encode()
    yield "twice", b'{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}'
    yield "deep", b"[" * 100


def config_seeds(source):
    config = json.loads((source / "models/demo/config.json").read_text())
    config["text_config"].update(num_hidden_layers=2, layer_types=["linear_attention"] * 2)
    gate = "language_model.model.layers.0.mlp.gate"
    config["quantization"] = {"group_size": 64, "bits": 4, "mode": "affine", gate: {"group_size": 64, "bits": 8}}
    del config["quantization_config"]
    yield "nested", json.dumps(config, separators=(",", ":")).encode()
    flat = {**config["text_config"], "quantization": config["quantization"], "rope_theta": 1e6}
    yield "flat", json.dumps(flat, separators=(",", ":")).encode()
    del flat["quantization"]
    yield "plain", json.dumps(flat, separators=(",", ":")).encode()


def main():
    source = Path(sys.argv[1])
    corpora = {
        "safetensors_header_fuzz": header_seeds(),
        "shard_index_fuzz": index_seeds(),
        "config_fuzz": config_seeds(source),
    }
    for target, seeds in corpora.items():
        directory = source / "tests/fuzz/corpus" / target
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in seeds:
            (directory / name).write_bytes(data)


if __name__ == "__main__":
    main()
