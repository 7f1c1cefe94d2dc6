"""Our GGUF file as the arrays that litespark-inference computes with.

    python convert.py MODEL.gguf OUT.npz

Its own loader takes files from a hub only and quantizes what it finds; the arrays are the same.
"""

import sys

import gguf
import numpy as np
from gguf.quants import dequantize
from litespark_inference.torchless.loader import _quantize_embedding_int4
from litespark_inference.torchless.pack import pack_ternary_4_per_byte

NAMES = {
    "attn_q": "q_proj",
    "attn_k": "k_proj",
    "attn_v": "v_proj",
    "attn_output": "o_proj",
    "ffn_gate": "gate_proj",
    "ffn_up": "up_proj",
    "ffn_down": "down_proj",
    "attn_norm": "input_norm",
    "ffn_norm": "post_attn_norm",
}


def bf16(values):
    """As published models have them: its fused kernels are for these."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def halves(rows, heads):
    """Rows in the order of rotations by halves; GGUF's `llama` has them in pairs."""
    size, columns = rows.shape
    return rows.reshape(heads, size // heads // 2, 2, columns).swapaxes(1, 2).reshape(size, columns)


def field(reader, name):
    return reader.get_field(f"llama.{name}").contents()


def arrays(reader):
    heads = {"attn_q": field(reader, "attention.head_count")}
    heads["attn_k"] = field(reader, "attention.head_count_kv")
    for tensor in reader.tensors:
        name = tensor.name.removesuffix(".weight")
        values = dequantize(tensor.data, tensor.tensor_type)
        if name == "token_embd":
            yield from zip(("embed", "embed_scale"), _quantize_embedding_int4(bf16(values)))
        elif name == "output_norm":
            yield "final_norm", bf16(values)
        else:
            _, layer, part = name.split(".")
            key = f"{layer}.{NAMES[part]}"
            if values.ndim == 1:
                yield key, bf16(values)
                continue
            codes = np.sign(values).astype(np.int8)
            if part in heads:
                codes = halves(codes, heads[part])
            yield key, pack_ternary_4_per_byte(np.ascontiguousarray(codes))
            yield f"{key}.scale", np.abs(values).max()


def shape(reader):
    names = {
        "hidden_size": "embedding_length",
        "num_layers": "block_count",
        "num_heads": "attention.head_count",
        "num_kv_heads": "attention.head_count_kv",
        "intermediate_size": "feed_forward_length",
        "vocab_size": "vocab_size",
        "max_position_embeddings": "context_length",
        "rope_theta": "rope.freq_base",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    }
    return {ours: np.array(field(reader, theirs)) for ours, theirs in names.items()}


if __name__ == "__main__":
    source, out = sys.argv[1:]
    reader = gguf.GGUFReader(source)
    np.savez(out, **dict(arrays(reader)), **shape(reader))
