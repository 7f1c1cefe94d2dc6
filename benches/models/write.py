"""Writes a synthetic ternary model as GGUF: random weights in TQ2_0, or in IQ2_BN.

    python write.py SHAPE OUT.gguf [IQ2_BN]

Every matrix of a layer has one scale, as BitNet's have, so all engines compute with the same
weights. A token is a letter or a filler that no text holds: a prompt has as many tokens as letters.
"""

import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

SHAPES = {
    # Mainline llama.cpp knows `bitnet` (SiLU) only, and gives the embedding of a TQ2_0 file that
    # is the output head too Q6_K.
    "small": dict(
        arch="bitnet", embed="Q6_K", hidden=1024, ff=2816, layers=12, heads=16, kv=4, vocab=32000
    ),
    # As it is published; `wf-run convert --head q8` is for its embedding.
    "bitnet-2b": dict(
        arch="bitnet-b1.58",
        embed="F16",
        hidden=2560,
        ff=6912,
        layers=30,
        heads=20,
        kv=5,
        vocab=128256,
    ),
    # The same size without sub-norms, and a small model, as llama.cpp runs them fastest. Their heads
    # are what its own converter gives a file that has one matrix for both.
    "llama-2b": dict(
        arch="llama", embed="Q6_K", hidden=2560, ff=6912, layers=30, heads=20, kv=5, vocab=128256
    ),
    "llama-small": dict(
        arch="llama", embed="Q6_K", hidden=512, ff=1536, layers=8, heads=8, kv=8, vocab=4096
    ),
}
BLOCK = 256
rng = np.random.default_rng(2026)
# The bytes that hold four codes from 0 to 2: the fourth code means nothing.
TERNARY = np.array([b for b in range(256) if not b & b >> 1 & 0x55], np.uint8)


def half(value, count):
    return np.full((count, 1), value, np.float16).view(np.uint8)


def tq2_0(rows, cols):
    count = rows * cols // BLOCK
    codes = TERNARY[rng.integers(0, len(TERNARY), (count, BLOCK // 4), np.uint8)]
    # Two weights of three are ±1: rows of this length keep activations at their size.
    d = half((cols * 2 / 3) ** -0.5, count)
    return np.concatenate([codes, d], 1).reshape(rows, -1)


def iq2_bn(rows, cols):
    """The same weights as ik_llama.cpp has them: a scale a row, and four columns a byte that are 16
    apart instead of 32."""
    blocks = tq2_0(rows, cols).reshape(-1, BLOCK // 4 + 2)
    fields = np.arange(0, 8, 2, np.uint8)[:, None]
    codes = blocks[:, :-2].reshape(-1, 2, 1, 32) >> fields & 3
    packed = (codes.reshape(-1, 4, 16) << fields).sum(1, np.uint8).reshape(rows, -1)
    scales = blocks[:: cols // BLOCK, -2:].copy().view(np.float16).astype(np.float32)
    return np.concatenate([scales.view(np.uint8), packed], 1)


def q6_k(rows, cols):
    count = rows * cols // BLOCK
    weights = rng.integers(0, 256, (count, BLOCK * 6 // 8), np.uint8)
    scales = rng.integers(16, 33, (count, BLOCK // 16), np.uint8)
    return np.concatenate([weights, scales, half(1e-4, count)], 1).reshape(rows, -1)


def f16(rows, cols):
    values = rng.random((rows, cols), np.float32)
    return ((values - 0.5) * 0.1).astype(np.float16)


# Ids that `gguf` does not know.
IQ2_BN, MOSTLY_IQ2_BN = 135, 137
KINDS = {
    "Q6_K": (q6_k, Q.Q6_K),
    "F16": (f16, Q.F16),
    "TQ2_0": (tq2_0, Q.TQ2_0),
    "IQ2_BN": (iq2_bn, IQ2_BN),
}


def vocabulary(size):
    """Control tokens, ASCII as GPT-2 writes it, the merge that must be, and fillers.

    Without the other bytes: @wllama/wllama 3.8.1 throws when a token is half a character.
    """
    control = ["<unk>", "<bos>", "<eos>"]
    tokens = [*control, *map(chr, range(33, 127)), "Ġ", "Ċ", "ĠĠ"]
    types = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (size - 3)
    return tokens + [f"[{i}]" for i in range(len(tokens), size)], types


def write(path, ternary, arch, embed, hidden, ff, layers, heads, kv, vocab):
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(layers)
    w.add_context_length(2048)
    w.add_embedding_length(hidden)
    w.add_feed_forward_length(ff)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_rope_dimension_count(hidden // heads)
    w.add_rope_freq_base(500000.0)
    w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    w.add_rope_scaling_factor(1.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(vocab)
    w.add_file_type(MOSTLY_IQ2_BN if ternary == "IQ2_BN" else gguf.LlamaFileType.MOSTLY_TQ2_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    tokens, types = vocabulary(vocab)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(["Ġ Ġ"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_bos_token(True)

    def matrix(name, rows, cols, kind=ternary):
        blocks, number = KINDS[kind]
        # `gguf` would conclude the shape from other bytes than int8, for the kinds that it knows.
        data = blocks(rows, cols).view(np.int8)
        w.add_tensor(f"{name}.weight", data, raw_shape=(rows, cols), raw_dtype=number)

    def norm(name, size):
        w.add_tensor(f"{name}.weight", rng.uniform(0.8, 1.2, size).astype(np.float32))

    # The embedding is the output head too.
    matrix("token_embd", vocab, hidden, embed)
    norm("output_norm", hidden)
    sub_norms = arch.startswith("bitnet")
    width = hidden // heads * kv
    for i in range(layers):
        norm(f"blk.{i}.attn_norm", hidden)
        matrix(f"blk.{i}.attn_q", hidden, hidden)
        matrix(f"blk.{i}.attn_k", width, hidden)
        matrix(f"blk.{i}.attn_v", width, hidden)
        if sub_norms:
            norm(f"blk.{i}.attn_sub_norm", hidden)
            norm(f"blk.{i}.ffn_sub_norm", ff)
        matrix(f"blk.{i}.attn_output", hidden, hidden)
        norm(f"blk.{i}.ffn_norm", hidden)
        matrix(f"blk.{i}.ffn_gate", ff, hidden)
        matrix(f"blk.{i}.ffn_up", ff, hidden)
        matrix(f"blk.{i}.ffn_down", hidden, ff)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    shape, out, *ternary = sys.argv[1:]
    write(out, *(ternary or ["TQ2_0"]), **SHAPES[shape])
