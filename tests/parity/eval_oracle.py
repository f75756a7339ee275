"""`lily eval --json` against NumPy: eval_oracle.py LILY SOURCE_DIR

The scores of MLX-LM's own run are computed here once more from the stored numbers. lily's perplexity is bound to the
reference's by the ratio, its other figures by their limits; lily's logits themselves are parity_test's subject.
"""

import json
import math
import subprocess
import sys

import numpy as np

TYPES = {"F32": np.float32, "I32": np.int32}


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            raw = data[8 + size + begin : 8 + size + end]
            tensors[name] = np.frombuffer(raw, TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def scores(tensors, positions):
    cut = {name: tensor[:positions] for name, tensor in tensors.items()}
    loss = (cut["native_logsumexp"].astype(np.float64) - cut["native_target_logits"]).mean()
    reference = (cut["logsumexp"].astype(np.float64) - cut["target_logits"]).mean()
    errors = [
        np.abs(cut["native_top_logits"].astype(np.float64) - cut["top_logits"]).max(),
        np.abs(cut["native_target_logits"].astype(np.float64) - cut["target_logits"]).max(),
    ]
    return {
        "top1_agreement": (cut["native_top_id"] == cut["top_ids"][:, 0]).mean(),
        "perplexity": math.exp(loss),
        "perplexity_ratio": math.exp(loss - reference),
        "max_logit_error": max(errors),
    }, math.exp(reference)


def close(name, found, expected):
    if not math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-9):
        sys.exit(f"{name}: lily says {found}, NumPy {expected}")


def check(lily, tensors, positions):
    command = [lily, "eval", "--json", "--positions", str(positions)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    expected, reference = scores(tensors, positions)
    if report["positions"] != positions:
        sys.exit(f"{report['positions']} positions, expected {positions}")
    for name, value in expected.items():
        close(name, report["mlx_native"][name], value)
    close("reference_perplexity", report["reference_perplexity"], reference)
    close("perplexity", report["perplexity"], report["perplexity_ratio"] * reference)
    if not (abs(report["perplexity_ratio"] - 1) < 0.001 and report["top1_agreement"] >= 0.98):
        sys.exit(f"out of bounds: {report}")


def main():
    lily, source = sys.argv[1:3]
    tensors = read_safetensors(f"{source}/models/demo-goldens/goldens.safetensors")
    positions = len(tensors["logsumexp"])
    if positions < 2000:
        sys.exit(f"only {positions} positions")
    check(lily, tensors, positions)
    check(lily, tensors, 192)


if __name__ == "__main__":
    main()
