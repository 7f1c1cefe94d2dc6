"""Writes a synthetic ternary model as GGUF: random weights in TQ2_0, or in IQ2_BN or Q2_0.

    python write.py SHAPE OUT.gguf [IQ2_BN | Q2_0 | ROTATED]

Every matrix of a layer has one scale, as BitNet's have, so all engines compute with the same
weights. A token is a letter or a filler that no text holds: a prompt has as many tokens as letters.
ROTATED is Q2_0 with `prism.hadamard` keys: matrices that read inputs in a rotated basis.
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
# Ternary-Bonsai-2: linear attention in three of four layers. `values` counts value heads, `block` is the
# width of the Hadamard transform.
HYBRIDS = {
    "bonsai2-2b": dict(
        hidden=2048, ff=6144, layers=24, heads=8, kv=2, values=16, tied=True, block=2048
    ),
    "bonsai2-9b": dict(
        hidden=4096, ff=12288, layers=32, heads=16, kv=4, values=32, tied=False, block=4096
    ),
}
HYBRID_VOCABULARY = 248_320
ATTENDS = 4
"""Every so many-th layer of a hybrid has attention."""
HEAD, LINEAR_HEAD, KEY_HEADS, KERNEL = 256, 128, 16, 4
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


def q2_0(rows, cols):
    """The same weights with a scale for 64 columns in front of their codes, four neighbors a byte."""
    codes = tq2_0(rows, cols).reshape(-1, BLOCK // 4 + 2)[:, :-2].reshape(-1, 16)
    d = half((cols * 2 / 3) ** -0.5, len(codes))
    return np.concatenate([d, codes], 1).reshape(rows, -1)


def q6_k(rows, cols):
    count = rows * cols // BLOCK
    weights = rng.integers(0, 256, (count, BLOCK * 6 // 8), np.uint8)
    scales = rng.integers(16, 33, (count, BLOCK // 16), np.uint8)
    return np.concatenate([weights, scales, half(1e-4, count)], 1).reshape(rows, -1)


def f16(rows, cols):
    values = rng.random((rows, cols), np.float32)
    return ((values - 0.5) * 0.1).astype(np.float16)


# Ids that `gguf` does not know.
IQ2_BN, MOSTLY_IQ2_BN, Q2_0 = 135, 137, 42
KINDS = {
    "Q6_K": (q6_k, Q.Q6_K),
    "F16": (f16, Q.F16),
    "TQ2_0": (tq2_0, Q.TQ2_0),
    "IQ2_BN": (iq2_bn, IQ2_BN),
    "Q2_0": (q2_0, Q2_0),
}


def vocabulary(size):
    """Control tokens, ASCII as GPT-2 writes it, the merge that must be, and fillers.

    Without the other bytes: @wllama/wllama 3.8.1 throws when a token is half a character.
    """
    control = ["<unk>", "<bos>", "<eos>"]
    tokens = [*control, *map(chr, range(33, 127)), "Ġ", "Ċ", "ĠĠ"]
    types = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (size - 3)
    return tokens + [f"[{i}]" for i in range(len(tokens), size)], types


class Writer(gguf.GGUFWriter):
    """A file of one architecture, whose tensors are named without `.weight`."""

    def about(self, ternary, layers, hidden, ff, heads, kv, vocab):
        self.add_block_count(layers)
        self.add_embedding_length(hidden)
        self.add_feed_forward_length(ff)
        self.add_head_count(heads)
        self.add_head_count_kv(kv)
        self.add_vocab_size(vocab)
        self.add_file_type(
            MOSTLY_IQ2_BN if ternary == "IQ2_BN" else gguf.LlamaFileType.MOSTLY_TQ2_0
        )
        self.add_quantization_version(gguf.GGML_QUANT_VERSION)

    def tokenizer(self, pre, vocab):
        tokens, types = vocabulary(vocab)
        self.add_tokenizer_model("gpt2")
        self.add_tokenizer_pre(pre)
        self.add_token_list(tokens)
        self.add_token_types(types)
        self.add_token_merges(["Ġ Ġ"])
        self.add_bos_token_id(1)
        self.add_eos_token_id(2)

    def matrix(self, name, rows, cols, kind):
        blocks, number = KINDS[kind]
        # `gguf` would conclude the shape from other bytes than int8, for the kinds that it knows.
        data = blocks(rows, cols).view(np.int8)
        self.add_tensor(f"{name}.weight", data, raw_shape=(rows, cols), raw_dtype=number)

    def numbers(self, name, low, high, *shape):
        self.add_tensor(name, rng.uniform(low, high, shape).astype(np.float32))

    def norm(self, name, size):
        self.numbers(f"{name}.weight", 0.8, 1.2, size)

    def finish(self):
        self.write_header_to_file()
        self.write_kv_data_to_file()
        self.write_tensors_to_file()
        self.close()


def write(path, ternary, arch, embed, hidden, ff, layers, heads, kv, vocab):
    w = Writer(path, arch)
    w.about(ternary, layers, hidden, ff, heads, kv, vocab)
    w.add_context_length(2048)
    w.add_rope_dimension_count(hidden // heads)
    w.add_rope_freq_base(500000.0)
    w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    w.add_rope_scaling_factor(1.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.tokenizer("llama-bpe", vocab)
    w.add_add_bos_token(True)

    def matrix(name, rows, cols):
        w.matrix(name, rows, cols, ternary)

    # The embedding is the output head too.
    w.matrix("token_embd", vocab, hidden, embed)
    w.norm("output_norm", hidden)
    sub_norms = arch.startswith("bitnet")
    width = hidden // heads * kv
    for i in range(layers):
        w.norm(f"blk.{i}.attn_norm", hidden)
        matrix(f"blk.{i}.attn_q", hidden, hidden)
        matrix(f"blk.{i}.attn_k", width, hidden)
        matrix(f"blk.{i}.attn_v", width, hidden)
        if sub_norms:
            w.norm(f"blk.{i}.attn_sub_norm", hidden)
            w.norm(f"blk.{i}.ffn_sub_norm", ff)
        matrix(f"blk.{i}.attn_output", hidden, hidden)
        w.norm(f"blk.{i}.ffn_norm", hidden)
        matrix(f"blk.{i}.ffn_gate", ff, hidden)
        matrix(f"blk.{i}.ffn_up", ff, hidden)
        matrix(f"blk.{i}.ffn_down", hidden, ff)
    w.finish()


def write_hybrid(path, ternary, hidden, ff, layers, heads, kv, values, tied, block):
    """Architecture `qwen35`. All matrices are ternary, but for the small ones of the gates."""
    w = Writer(path, "qwen35")
    rotated, ternary = ternary == "ROTATED", "Q2_0" if ternary == "ROTATED" else ternary
    w.about(ternary, layers, hidden, ff, heads, kv, HYBRID_VOCABULARY)
    w.add_context_length(262_144)
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_rope_dimension_count(HEAD // 4)
    w.add_rope_freq_base(1e7)
    w.add_rope_dimension_sections([11, 11, 10, 0])
    w.add_layer_norm_rms_eps(1e-6)
    w.add_ssm_conv_kernel(KERNEL)
    w.add_ssm_state_size(LINEAR_HEAD)
    w.add_ssm_group_count(KEY_HEADS)
    w.add_ssm_time_step_rank(values)
    w.add_ssm_inner_size(values * LINEAR_HEAD)
    w.add_uint32("qwen35.full_attention_interval", ATTENDS)
    w.tokenizer("qwen35", HYBRID_VOCABULARY)
    folded, widths = [], set()

    def matrix(name, rows, cols):
        folded.append(f"{name}.weight")
        widths.add(cols)
        w.matrix(name, rows, cols, ternary)

    w.matrix("token_embd", HYBRID_VOCABULARY, hidden, ternary)
    w.norm("output_norm", hidden)
    if not tied:
        matrix("output", HYBRID_VOCABULARY, hidden)
    for i in range(layers):
        w.norm(f"blk.{i}.attn_norm", hidden)
        w.norm(f"blk.{i}.post_attention_norm", hidden)
        matrix(f"blk.{i}.ffn_gate", ff, hidden)
        matrix(f"blk.{i}.ffn_up", ff, hidden)
        matrix(f"blk.{i}.ffn_down", hidden, ff)
        if (i + 1) % ATTENDS == 0:
            matrix(f"blk.{i}.attn_q", 2 * heads * HEAD, hidden)
            matrix(f"blk.{i}.attn_k", kv * HEAD, hidden)
            matrix(f"blk.{i}.attn_v", kv * HEAD, hidden)
            matrix(f"blk.{i}.attn_output", hidden, heads * HEAD)
            w.norm(f"blk.{i}.attn_q_norm", HEAD)
            w.norm(f"blk.{i}.attn_k_norm", HEAD)
            continue
        inner = values * LINEAR_HEAD
        channels = 2 * KEY_HEADS * LINEAR_HEAD + inner
        matrix(f"blk.{i}.attn_qkv", channels, hidden)
        matrix(f"blk.{i}.attn_gate", inner, hidden)
        matrix(f"blk.{i}.ssm_out", hidden, inner)
        w.matrix(f"blk.{i}.ssm_alpha", values, hidden, "F16")
        w.matrix(f"blk.{i}.ssm_beta", values, hidden, "F16")
        w.numbers(f"blk.{i}.ssm_conv1d.weight", -0.5, 0.5, channels, KERNEL)
        w.numbers(f"blk.{i}.ssm_a", -0.5, -0.01, values)
        w.numbers(f"blk.{i}.ssm_dt.bias", -1, 1, values)
        w.norm(f"blk.{i}.ssm_norm", LINEAR_HEAD)
    if rotated:
        rotation(w, folded, sorted(widths), tied, block)
    w.finish()


def rotation(w, folded, widths, tied, block):
    prefix = "prism.hadamard."
    w.add_uint32(f"{prefix}version", 2 if tied else 1)
    w.add_uint32(f"{prefix}block_size", block)
    w.add_string(f"{prefix}transform", "normalized-sylvester-walsh-hadamard")
    w.add_string(f"{prefix}axis", "input-last-dimension")
    w.add_string(f"{prefix}sign_mode", "explicit")
    w.add_array(f"{prefix}weight_names", folded)
    w.add_array(f"{prefix}sign_widths", widths)
    signs = rng.integers(0, 2, sum(widths)) * 2 - 1
    w.add_array(f"{prefix}sign_values", signs.tolist())
    w.add_array(f"{prefix}inverse_weight_names", ["token_embd.weight"])
    w.add_bool(f"{prefix}gdn_v_grouped", True)
    if tied:
        w.add_bool(f"{prefix}tied_output", True)


if __name__ == "__main__":
    shape, out, *ternary = sys.argv[1:]
    kind = (*ternary, "TQ2_0")[0]
    if shape in HYBRIDS:
        write_hybrid(out, kind, **HYBRIDS[shape])
    else:
        write(out, kind, **SHAPES[shape])
