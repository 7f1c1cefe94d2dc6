"""Makes tests/golden/gguf: bytes of every GGUF type and what they mean as f32.

    pip install gguf==0.19.0 numpy && python tests/golden/gguf_types.py

`TYPE.bin` / `TYPE.f32`: 2 rows of 256 weights from random bytes. The types that the gguf package
knows are dequantized by it; Q2_0, PQ2_0, PTQ1_0 and I2_S by the loops below, written from the
format descriptions, one weight at a time.
`tiny.gguf` / `tiny.f32`: a llama model by the package's own writer, with q and k rows permuted as
mainline converters do, and its weights in their original order.
"""

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

OUT = Path(__file__).parent / "gguf"
ROWS, COLS = 2, 256
rng = np.random.default_rng(2026)


def blocks(weights, size, scale_at, total=ROWS * COLS):
    """Random blocks for `total` weights, their scales finite and not tiny."""
    data = rng.integers(0, 256, (total // weights, size), dtype=np.uint8)
    d = rng.uniform(0.01, 2, (len(data), 1)).astype(np.float16)
    data[:, scale_at : scale_at + 2] = d.view(np.uint8)
    return data


def save(name, data, values):
    (OUT / f"{name}.bin").write_bytes(data.tobytes())
    (OUT / f"{name}.f32").write_bytes(np.asarray(values, np.float32).tobytes())


def half(block, at):
    return np.float32(block[at : at + 2].view(np.float16)[0])


def two_bit(data, weights):
    out = []
    for block in data:
        for j in range(weights):
            code = block[2 + j // 4] >> (2 * (j % 4)) & 3
            out.append(np.float32(int(code) - 1) * half(block, 0))
    return out


def ptq1_0(data):
    out = []
    for block in data:
        for e in range(128):
            if e < 80:
                byte, n = block[e % 16], e // 16
            elif e < 120:
                byte, n = block[16 + (e - 80) % 8], (e - 80) // 8
            else:
                byte, n = block[24 + (e - 120) % 2], (e - 120) // 2
            digit = (int(byte) * 3**n % 256) * 3 // 256
            out.append(np.float32(digit - 1) * half(block, 26))
    return out


def i2_s():
    codes = rng.integers(0, 3, ROWS * COLS)
    scale = np.float32(0.37)
    data = np.zeros(ROWS * COLS // 4 + 32, np.uint8)
    for e, code in enumerate(codes):
        block, within = divmod(e, 128)
        data[32 * block + within % 32] |= code << (6 - 2 * (within // 32))
    data[-32:-28] = np.frombuffer(scale.tobytes(), np.uint8)
    save("I2_S", data, (codes - 1).astype(np.float32) * scale)


def types():
    for kind, scale_at in [(T.TQ1_0, 52), (T.TQ2_0, 64), (T.Q8_0, 0), (T.Q4_0, 0), (T.Q6_K, 208)]:
        data = blocks(*gguf.GGML_QUANT_SIZES[kind], scale_at)
        save(kind.name, data, gguf.quants.dequantize(data.reshape(ROWS, -1), kind))
    for name, weights in [("Q2_0", 64), ("PQ2_0", 128)]:
        data = blocks(weights, 2 + weights // 4, 0)
        save(name, data, two_bit(data, weights))
    data = blocks(128, 28, 26)
    save("PTQ1_0", data, ptq1_0(data))
    i2_s()


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def tiny():
    hidden, ff, heads, kv, dim, vocab = 256, 32, 2, 1, 8, 8
    w = gguf.GGUFWriter(OUT / "tiny.gguf", "llama")
    w.add_context_length(64)
    w.add_embedding_length(hidden)
    w.add_block_count(1)
    w.add_feed_forward_length(ff)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_rope_dimension_count(dim)
    w.add_rope_freq_base(500000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list([f"t{i}" for i in range(vocab)])
    w.add_token_types([1] * vocab)
    w.add_token_merges(["t 0", "t 1"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_eot_token_id(3)
    w.add_chat_template("{{ messages }}")
    expected = []

    def add(name, rows, cols, kind, heads=0):
        if kind in (T.TQ1_0, T.TQ2_0):
            x = rng.integers(-1, 2, (rows, cols)).astype(np.float32) * np.float32(0.25)
        else:
            x = rng.normal(0, 1, (rows, cols)).astype(np.float32)
        order = (lambda a: permute(a, heads)) if heads else (lambda a: a)
        if kind == T.Q6_K:  # the package only reads it
            data = blocks(256, 210, 208, rows * cols).reshape(rows, -1)
            x = gguf.quants.dequantize(data, kind)
        else:
            data = gguf.quants.quantize(order(x), kind)
            values = gguf.quants.dequantize(data, kind)
            back = np.empty_like(x)
            back[order(np.arange(rows))] = values
            x = back
        w.add_tensor(name, data, raw_dtype=kind)
        expected.append(x.astype(np.float32).ravel())

    def norm(name, n):
        x = rng.normal(1, 0.1, n).astype(np.float32)
        w.add_tensor(name, x)
        expected.append(x)

    add("token_embd.weight", vocab, hidden, T.BF16)
    add("output.weight", vocab, hidden, T.F32)
    norm("output_norm.weight", hidden)
    norm("blk.0.attn_norm.weight", hidden)
    add("blk.0.attn_q.weight", heads * dim, hidden, T.TQ1_0, heads)
    add("blk.0.attn_k.weight", kv * dim, hidden, T.TQ2_0, kv)
    add("blk.0.attn_v.weight", kv * dim, hidden, T.Q6_K)
    add("blk.0.attn_output.weight", hidden, heads * dim, T.F16)
    norm("blk.0.ffn_norm.weight", hidden)
    add("blk.0.ffn_gate.weight", ff, hidden, T.Q8_0)
    add("blk.0.ffn_up.weight", ff, hidden, T.Q4_0)
    add("blk.0.ffn_down.weight", hidden, ff, T.Q8_0)
    # Values that converters store for rope_scaling llama3, factor 8, over 8192 positions.
    freqs = 500000.0 ** -(np.arange(0, dim, 2) / dim)
    wavelength = 2 * np.pi / freqs
    smooth = (8192 / wavelength - 1) / 3
    factors = np.where(wavelength < 2048, 1, np.where(wavelength > 8192, 8, 1 / ((1 - smooth) / 8 + smooth)))
    w.add_tensor("rope_freqs.weight", factors.astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    (OUT / "tiny.f32").write_bytes(np.concatenate(expected).tobytes())


def q4_k():
    data = blocks(256, 144, 0)
    data[:, 2:4] = rng.uniform(0.01, 2, (len(data), 1)).astype(np.float16).view(np.uint8)
    save("Q4_K", data, gguf.quants.dequantize(data.reshape(ROWS, -1), T.Q4_K))


def with_halves(kind, places, offset=0.0):
    """Random blocks with finite f16 numbers at these places."""
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    data = blocks(weights, size, places[0])
    for place in places[1:]:
        half = rng.uniform(0.01, 2, (len(data), 1)) - offset
        data[:, place : place + 2] = half.astype(np.float16).view(np.uint8)
    return data


def more_types():
    places = [
        (T.Q4_1, [0, 2]),
        (T.Q5_0, [0]),
        (T.Q5_1, [0, 2]),
        (T.Q2_K, [80, 82]),
        (T.Q3_K, [108]),
        (T.Q5_K, [0, 2]),
        (T.IQ4_NL, [0]),
        (T.IQ4_XS, [0]),
    ]
    for kind, at in places:
        data = with_halves(kind, at, 1.0 if kind in (T.Q4_1, T.Q5_1) else 0.0)
        save(kind.name, data, gguf.quants.dequantize(data.reshape(ROWS, -1), kind))
    data = rng.integers(0, 256, (ROWS * COLS // 32, 17), dtype=np.uint8)
    data[:, 0] = rng.integers(100, 140, len(data))
    data[0, 0] = 5  # almost no weight
    save("MXFP4", data, gguf.quants.dequantize(data.reshape(ROWS, -1), T.MXFP4))


def row_scaled():
    """ik_llama.cpp's types, which the gguf package does not know."""
    codes = rng.integers(0, 3, (ROWS, COLS))
    for name, scales in [("IQ1_BN", [0.5, 1.25]), ("IQ2_BN", [0.37, 0.37])]:
        out = []
        for row, scale in zip(codes, scales):
            kind = np.float16 if name == "IQ1_BN" else np.float32
            out.append(np.array([scale], kind).tobytes())
            for block in row.reshape(-1, 64):
                out.append(bytes((iq1_bn if name == "IQ1_BN" else iq2_bn)(block)))
        scales = np.array(scales, np.float32)[:, None]
        save(name, np.frombuffer(b"".join(out), np.uint8), (codes - 1) * scales)


def iq1_bn(block):
    """Base-3 fractions of 256, rounded up: groups of five, and every 16th weight in the last byte."""
    fives = [block[16 * q + 5 * k : 16 * q + 5 * k + 5] for q in range(4) for k in range(3)]
    fives.append(np.append(block[15::16], 0))
    return [-(-sum(int(t) * 3**i for i, t in enumerate(five)) * 256 // 243) for five in fives]


def iq2_bn(block):
    return [sum(int(block[j + 16 * k]) << (2 * k) for k in range(4)) for j in range(16)]


OUT.mkdir(exist_ok=True)
types()
tiny()
q4_k()
more_types()
row_scaled()
