"""Distributions that the sampler must have, in plain NumPy float64: python make_sampling_goldens.py tests/golden/sampling.json

The chain is the one that Transformers' generate() builds: sequence bias, repetition penalty, (OpenAI's presence and
frequency penalty,) temperature, TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper, softmax. Each function restates one of
these classes. Cases in which a cut falls so close to a token that float32 could decide otherwise are drawn again.
"""

import argparse
import json

import numpy as np

CLOSE = 1e-5


class TooClose(Exception):
    """A filter's decision hangs on rounding."""


def softmax(scores):
    e = np.exp(scores - scores.max())
    return e / e.sum()


def bias_and_penalties(scores, case):
    scores = scores.copy()
    for token, bias in case["logit_bias"]:
        scores[token] += bias
    for token in set(case["generated"]):
        penalty = case["repetition_penalty"]
        scores[token] = scores[token] * penalty if scores[token] < 0 else scores[token] / penalty
        count = case["generated"].count(token)
        scores[token] -= case["presence_penalty"] + case["frequency_penalty"] * count
    return scores


def top_k(scores, k):
    if k == 0 or k >= len(scores):
        return scores
    ordered = np.sort(scores)[::-1]
    if ordered[k - 1] - ordered[k] < CLOSE:
        raise TooClose
    return np.where(scores < ordered[k - 1], -np.inf, scores)


def top_p(scores, p):
    if p >= 1:
        return scores
    order = np.argsort(scores, kind="stable")
    cumulative = softmax(scores)[order].cumsum()
    if np.abs(cumulative[:-1] - (1 - p)).min() < CLOSE:
        raise TooClose
    removed = cumulative <= 1 - p
    removed[-1] = False
    first = np.count_nonzero(removed)
    if first > 0 and scores[order[first]] - scores[order[first - 1]] < CLOSE:
        raise TooClose
    result = scores.copy()
    result[order[removed]] = -np.inf
    return result


def min_p(scores, p):
    if p == 0:
        return scores
    probs = softmax(scores)
    if np.abs(probs / probs.max() - p)[probs < probs.max()].min(initial=1.0) < CLOSE:
        raise TooClose
    return np.where(probs < p * probs.max(), -np.inf, scores)


def distribution(case):
    scores = np.array(case["logits"], np.float64)
    scores[case["forbidden"]] = -np.inf
    scores = bias_and_penalties(scores, case) / case["temperature"]
    probs = softmax(min_p(top_p(top_k(scores, case["top_k"]), case["top_p"]), case["min_p"]))
    kept = np.flatnonzero(probs)
    return {"kept": kept.tolist(), "probs": probs[kept].round(9).tolist()}


def draw_case(rng):
    vocab = int(rng.choice([5, 33, 300, 700]))
    pick = lambda *values: float(rng.choice(values))
    generated = rng.integers(0, vocab, int(rng.choice([0, 4, 30]))).tolist()
    biased = rng.choice(vocab, int(rng.choice([0, 3])), replace=False)
    return {
        "temperature": pick(0.6, 0.7, 1.0, 1.7),
        "top_k": int(rng.choice([0, 0, 3, 20, 200])),
        "top_p": pick(0.5, 0.8, 0.95, 1.0, 1.0),
        "min_p": pick(0.0, 0.0, 0.05, 0.2),
        "presence_penalty": pick(0.0, 1.5, -0.5),
        "frequency_penalty": pick(0.0, 0.3),
        "repetition_penalty": pick(1.0, 1.1, 0.9),
        "logit_bias": [[int(t), round(float(rng.normal(0, 1)), 3)] for t in biased],
        "generated": generated,
        "forbidden": rng.choice(vocab, int(rng.choice([0, 2])), replace=False).tolist(),
        "logits": rng.normal(0, pick(0.5, 1.5), vocab).round(3).tolist(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--cases", type=int, default=80)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    cases = []
    while len(cases) < args.cases:
        case = draw_case(rng)
        try:
            cases.append(case | distribution(case))
        except TooClose:
            pass
    with open(args.out, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
