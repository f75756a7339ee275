#!/usr/bin/env python3
"""synth_gguf.py [--layers N] [--quant q4_0|q4_K] [--seed N] OUT: random weights in Qwen3.6-35B-A3B's shape as GGUF.

For measuring llama.cpp's speed beside lily's (docs/bench.md) without the real model. `lily synth` is its counterpart.

Format: GGUF 3, little-endian, architecture `qwen35moe`: header, metadata, one line per tensor (name, extents with the
fastest first, type, offset in bytes from the first tensor), then the tensors, each at a multiple of 32 bytes. Types are
llama-quantize's: matrices in the type of --quant, output.weight in Q6_K, router, norms and convolution in F32.
Size: 19.7 GB with 40 layers, 0.5 GB less for each layer fewer. Memory: about 0.2 GB. The same seed gives the same file.

Values: matrices have mean 0 and standard deviation 0.02, norms are near 1, decays as a trained model begins with. So
activations stay finite, and the router spreads tokens evenly over the experts, which it does not do on real text.

What it does not do: no real weights or vocabulary (replies are nonsense), no other model, no mixed types (Q4_K_M), no
multi-token prediction, no vision. Needs NumPy. An existing OUT is never written over.
"""

import argparse
import itertools
import math
import os
import shutil
import struct
import sys
from collections import namedtuple


def fail(message):
    sys.exit(f"synth_gguf.py: {message}")


try:
    import numpy as np
except ImportError:
    fail("NumPy is missing; `pip install numpy`, or run this with build/venv/bin/python")

HIDDEN, VOCABULARY, LAYERS, FULL_ATTENTION_INTERVAL = 2048, 248320, 40, 4
HEADS, KV_HEADS, HEAD_DIM = 16, 2, 256
EXPERTS, EXPERTS_PER_TOKEN, EXPERT_ROWS = 256, 8, 512
LINEAR_KEY_HEADS, LINEAR_VALUE_HEADS, LINEAR_HEAD_DIM, CONV_KERNEL = 16, 32, 128, 4
LINEAR_VALUES = LINEAR_VALUE_HEADS * LINEAR_HEAD_DIM
CONV_CHANNELS = 2 * LINEAR_KEY_HEADS * LINEAR_HEAD_DIM + LINEAR_VALUES

ALIGNMENT = 32  # bytes
DEVIATION = 0.02  # of a matrix's values
CODE_DEVIATION = {"q4_0": 4.61, "q4_K": 4.61, "q6_K": 18.5}  # of uniform codes of 4 and of 6 bits
PIECE = 1 << 18  # blocks drawn at a time

Kind = namedtuple("Kind", "number values bytes")  # GGUF's number of a type; values and bytes of a block
KINDS = {"f32": Kind(0, 1, 4), "q4_0": Kind(2, 32, 18), "q4_K": Kind(12, 256, 144), "q6_K": Kind(14, 256, 210)}
FILE_TYPES = {"q4_0": 2, "q4_K": 14}  # general.file_type: mostly Q4_0, mostly Q4_K (small)

Tensor = namedtuple("Tensor", "name shape kind draw")  # draw(rng, values) for F32, None for blocks


# --- values ----------------------------------------------------------------------------------------------------------


def random_bytes(rng, rows, columns):
    return np.frombuffer(rng.bytes(rows * columns), np.uint8).reshape(rows, columns)


def half(values):
    """The bytes of float16 values, one value a row."""
    return values.astype("<f2")[:, None].view(np.uint8)


def scales(rng, blocks, kind, inner=1.0):
    """Scales of blocks for which the values have DEVIATION; `inner`: the mean of the scales inside a block."""
    return rng.uniform(0.6, 1.4, blocks) * DEVIATION / CODE_DEVIATION[kind] / inner


def q4_0_blocks(rng, blocks):
    """Scale d (f16), 32 codes of 4 bits: d * (code - 8). The sign of d is random: the codes' mean is -0.5."""
    d = scales(rng, blocks, "q4_0") * rng.choice([-1, 1], blocks)
    return np.hstack([half(d), random_bytes(rng, blocks, 16)])


def q4_k_blocks(rng, blocks):
    """d and dmin (f16), 8 scales s and 8 minima m of 6 bits, 256 codes of 4 bits: d * s * code - dmin * m.

    With m = s and dmin = 7.5 d the mean is 0. The 12 bytes of s and m: the low 6 bits of bytes 0-3 and 4-7 are s and m
    of the first four; of the last four, bytes 8-11 hold the low 4 bits (s below m), the top of bytes 0-7 the high 2.
    """
    d = scales(rng, blocks, "q4_K", inner=40)
    s = rng.integers(24, 57, (blocks, 8), np.uint8)
    first, last = s[:, :4], s[:, 4:]
    low_and_top = first | (last >> 4) << 6
    packed = [low_and_top, low_and_top, (last & 15) | (last & 15) << 4]
    return np.hstack([half(d), half(7.5 * d), *packed, random_bytes(rng, blocks, 128)])


def q6_k_blocks(rng, blocks):
    """256 codes of 6 bits in 192 bytes, 16 scales s (int8), d (f16): d * s * (code - 32). The sign of s is random."""
    s = rng.integers(48, 112, (blocks, 16), np.int8) * rng.choice(np.array([-1, 1], np.int8), (blocks, 16))
    return np.hstack([random_bytes(rng, blocks, 192), s.view(np.uint8), half(scales(rng, blocks, "q6_K", inner=80))])


BLOCKS = {"q4_0": q4_0_blocks, "q4_K": q4_k_blocks, "q6_K": q6_k_blocks}


def norm(rng, values):
    return 1 + 0.05 * rng.standard_normal(values)


def normal(deviation):
    return lambda rng, values: deviation * rng.standard_normal(values)


def time_step(rng, values):
    """dt_bias: softplus of it is a time step between 0.001 and 0.1."""
    return np.log(np.expm1(np.exp(rng.uniform(math.log(1e-3), math.log(1e-1), values))))


def decay(rng, values):
    """-exp(A_log)"""
    return -rng.uniform(1, 16, values)


# --- tensors ---------------------------------------------------------------------------------------------------------


def attention(quant):
    return [Tensor("attn_q.weight", (HIDDEN, 2 * HEADS * HEAD_DIM), quant, None),  # queries and the output's gate
            Tensor("attn_k.weight", (HIDDEN, KV_HEADS * HEAD_DIM), quant, None),
            Tensor("attn_v.weight", (HIDDEN, KV_HEADS * HEAD_DIM), quant, None),
            Tensor("attn_output.weight", (HEADS * HEAD_DIM, HIDDEN), quant, None),
            Tensor("attn_q_norm.weight", (HEAD_DIM,), "f32", norm),
            Tensor("attn_k_norm.weight", (HEAD_DIM,), "f32", norm)]


def linear_attention(quant):
    return [Tensor("attn_qkv.weight", (HIDDEN, CONV_CHANNELS), quant, None),
            Tensor("attn_gate.weight", (HIDDEN, LINEAR_VALUES), quant, None),
            Tensor("ssm_conv1d.weight", (CONV_KERNEL, CONV_CHANNELS), "f32", normal(0.35)),
            Tensor("ssm_dt.bias", (LINEAR_VALUE_HEADS,), "f32", time_step),
            Tensor("ssm_a", (LINEAR_VALUE_HEADS,), "f32", decay),
            Tensor("ssm_alpha.weight", (HIDDEN, LINEAR_VALUE_HEADS), quant, None),
            Tensor("ssm_beta.weight", (HIDDEN, LINEAR_VALUE_HEADS), quant, None),
            Tensor("ssm_norm.weight", (LINEAR_HEAD_DIM,), "f32", norm),
            Tensor("ssm_out.weight", (LINEAR_VALUES, HIDDEN), quant, None)]


def experts(quant):
    return [Tensor("ffn_gate_inp.weight", (HIDDEN, EXPERTS), "f32", normal(0.03)),
            Tensor("ffn_gate_inp_shexp.weight", (HIDDEN,), "f32", normal(0.02)),
            Tensor("ffn_gate_exps.weight", (HIDDEN, EXPERT_ROWS, EXPERTS), quant, None),
            Tensor("ffn_up_exps.weight", (HIDDEN, EXPERT_ROWS, EXPERTS), quant, None),
            Tensor("ffn_down_exps.weight", (EXPERT_ROWS, HIDDEN, EXPERTS), quant, None),
            Tensor("ffn_gate_shexp.weight", (HIDDEN, EXPERT_ROWS), quant, None),
            Tensor("ffn_up_shexp.weight", (HIDDEN, EXPERT_ROWS), quant, None),
            Tensor("ffn_down_shexp.weight", (EXPERT_ROWS, HIDDEN), quant, None)]


def layer(index, quant):
    mixer = attention if (index + 1) % FULL_ATTENTION_INTERVAL == 0 else linear_attention
    norms = [Tensor(name, (HIDDEN,), "f32", norm) for name in ("attn_norm.weight", "post_attention_norm.weight")]
    return [tensor._replace(name=f"blk.{index}.{tensor.name}") for tensor in norms + mixer(quant) + experts(quant)]


def model(layers, quant):
    tensors = [Tensor("token_embd.weight", (HIDDEN, VOCABULARY), quant, None),
               Tensor("output_norm.weight", (HIDDEN,), "f32", norm),
               Tensor("output.weight", (HIDDEN, VOCABULARY), "q6_K", None)]
    for index in range(layers):
        tensors += layer(index, quant)
    return tensors


def size(tensor):
    kind = KINDS[tensor.kind]
    return math.prod(tensor.shape) // kind.values * kind.bytes


# --- metadata --------------------------------------------------------------------------------------------------------


def hyperparameters(layers, quant):
    general = {"architecture": "qwen35moe", "type": "model",
               "name": f"synthetic Qwen3.6-35B-A3B shape, {layers} layers, {quant}", "size_label": "35B-A3B",
               "quantization_version": 2, "file_type": FILE_TYPES[quant]}
    shape = {"block_count": layers, "context_length": 262144, "embedding_length": HIDDEN, "vocab_size": VOCABULARY,
             "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD_DIM,
             "attention.value_length": HEAD_DIM, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e7,
             "rope.dimension_count": HEAD_DIM // 4, "rope.dimension_sections": [11, 11, 10, 0],
             "expert_count": EXPERTS, "expert_used_count": EXPERTS_PER_TOKEN,
             "expert_feed_forward_length": EXPERT_ROWS, "expert_shared_feed_forward_length": EXPERT_ROWS,
             "ssm.conv_kernel": CONV_KERNEL, "ssm.inner_size": LINEAR_VALUES, "ssm.state_size": LINEAR_HEAD_DIM,
             "ssm.time_step_rank": LINEAR_VALUE_HEADS, "ssm.group_count": LINEAR_KEY_HEADS,
             "full_attention_interval": FULL_ATTENTION_INTERVAL}
    return {**{f"general.{key}": value for key, value in general.items()},
            **{f"qwen35moe.{key}": value for key, value in shape.items()}}


def byte_characters():
    """The character that stands for each byte in a byte-level BPE: its own where it is printable, else from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = itertools.count(256)
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def tokenizer():
    """A vocabulary of the real size: bytes, 700 pairs of letters with their merges, and names for the rest."""
    letters = "etaoinshrdlucmfwygpbvkxqjz"
    characters = byte_characters()
    pairs = list(itertools.islice(itertools.product([characters[ord(" ")], *letters], letters), 700))
    control = {248044: "<|endoftext|>", 248045: "<|im_start|>", 248046: "<|im_end|>"}
    tokens = characters + [first + second for first, second in pairs]
    tokens += [control.get(token, f"zq{token}") for token in range(len(tokens), VOCABULARY)]
    chat_template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    values = {"model": "gpt2", "pre": "qwen35", "tokens": tokens,
              "token_type": [3 if token in control else 1 for token in range(VOCABULARY)],  # 1: normal, 3: control
              "merges": [f"{first} {second}" for first, second in pairs],
              "eos_token_id": 248046, "padding_token_id": 248044, "bos_token_id": 248044, "add_bos_token": False}
    return {**{f"tokenizer.ggml.{key}": value for key, value in values.items()},
            "tokenizer.chat_template": chat_template}


# --- file ------------------------------------------------------------------------------------------------------------


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def encoded(value):
    """GGUF's number of the value's type, and its bytes."""
    if isinstance(value, bool):
        return 7, struct.pack("<B", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    if isinstance(value[0], str):
        return 9, struct.pack("<IQ", 8, len(value)) + b"".join(map(text, value))
    return 9, struct.pack(f"<IQ{len(value)}i", 5, len(value), *value)


def padding(length):
    return bytes(-length % ALIGNMENT)


def header(metadata, tensors):
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        number, data = encoded(value)
        parts += [text(key), struct.pack("<I", number), data]
    offset = 0
    for tensor in tensors:
        extents = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        parts += [text(tensor.name), extents, struct.pack("<IQ", KINDS[tensor.kind].number, offset)]
        offset += size(tensor) + len(padding(size(tensor)))
    data = b"".join(parts)
    return data + padding(len(data))


def write_tensor(file, tensor, rng):
    if tensor.draw:
        file.write(tensor.draw(rng, math.prod(tensor.shape)).astype("<f4").tobytes())
    else:
        left = size(tensor) // KINDS[tensor.kind].bytes
        while left:
            blocks = min(left, PIECE)
            file.write(BLOCKS[tensor.kind](rng, blocks))
            left -= blocks
    file.write(padding(size(tensor)))


def write_whole(path, length, write):
    """Calls write(file) on `path`.part, then renames that. Whatever goes wrong before, the part is removed."""
    part = path + ".part"
    try:
        file = open(part, "xb")
    except FileExistsError:
        fail(f"{part} exists: another run writes it, or one was killed; then remove it")
    try:
        with file:
            if os.path.lexists(path):
                fail(f"{path} exists and is not written over; remove it or name another file")
            free = shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free
            if free < length:
                fail(f"{path} would take {length / 1e9:.2f} GB and {free / 1e9:.2f} GB are free there")
            write(file)
        os.rename(part, path)
    except BaseException:
        os.unlink(part)
        raise


def write_model(path, layers, quant, seed):
    tensors = model(layers, quant)
    start = header({**hyperparameters(layers, quant), **tokenizer()}, tensors)
    length = len(start) + sum(size(tensor) + len(padding(size(tensor))) for tensor in tensors)
    rng = np.random.default_rng(seed)

    def write(file):
        file.write(start)
        for tensor in tensors:
            write_tensor(file, tensor, rng)

    write_whole(path, length, write)
    weights = sum(math.prod(tensor.shape) for tensor in tensors)
    print(f"{path}: {len(tensors)} tensors, {weights / 1e9:.2f} billion weights, {length / 1e9:.2f} GB")


def whole_number(least, multiple, what):
    def parse(argument):
        if not argument.isascii() or not argument.isdigit() or int(argument) < least or int(argument) % multiple:
            raise argparse.ArgumentTypeError(f"'{argument}' is not {what}")
        return int(argument)

    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--layers", default=LAYERS, help="a multiple of 4, the period of their kinds; default 40",
                        type=whole_number(4, FULL_ATTENTION_INTERVAL, "a multiple of 4 from 4 on"))
    parser.add_argument("--quant", default="q4_0", choices=FILE_TYPES, help="type of the matrices; default q4_0")
    parser.add_argument("--seed", default=1, type=whole_number(0, 1, "a whole number from 0 on"), help="default 1")
    parser.add_argument("out", metavar="OUT")
    options = parser.parse_args()
    try:
        write_model(options.out, options.layers, options.quant, options.seed)
    except OSError as error:
        fail(f"{options.out}: {error.strerror}")
    except KeyboardInterrupt:
        fail("interrupted; nothing is left of the file")


if __name__ == "__main__":
    main()
