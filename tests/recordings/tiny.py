"""Writes tiny models as Hugging Face folders: safetensors, configuration, a tokenizer with a token per byte, a template."""

import json
import math
import struct

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_letters():
    """Returns the letter that stands for each byte in byte-level BPE files."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(256 + len(letters) - len(plain))
    return letters


LETTER = byte_letters()


def spelled(text):
    """Returns a text in the letters of byte-level BPE."""
    return "".join(LETTER[byte] for byte in text.encode())


def bf16(values):
    """Returns the upper halves of f32 numbers."""
    floats, halves = struct.pack(f"<{len(values)}f", *values), bytearray(2 * len(values))
    halves[0::2], halves[1::2] = floats[2::4], floats[3::4]
    return bytes(halves)


def constant(shape, value=0.0):
    """Returns a tensor, shape and bytes, of one value."""
    return shape, bf16([value]) * math.prod(shape)


def rows(values):
    """Returns a matrix, shape and bytes, of lists of numbers."""
    return [len(values), len(values[0])], b"".join(map(bf16, values))


def safetensors(tensors):
    """Returns the file of `tensors`: name to shape and bytes in bf16."""
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        offsets = [offset, offset + len(data)]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": offsets}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values())


def tokenizer(vocab, added, merges=()):
    """Returns the content of `tokenizer.json`: byte-level BPE."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": None,
        "post_processor": None,
        "added_tokens": [
            {"id": i, "content": text, **flags, "special": text in SPECIAL} for text, i in added.items()
        ],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab | added,
            "merges": list(merges),
        },
    }


def config(hybrid, vocab_size, end, context, width, layers):
    """Returns the content of `config.json`: Qwen3's shape, or the hybrid one of Qwen3.5."""
    common = {
        "hidden_size": width,
        "intermediate_size": width,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "num_hidden_layers": layers,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": context,
        "vocab_size": vocab_size,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": end,
        "torch_dtype": "bfloat16",
    }
    if not hybrid:
        own = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rope_theta": 1e6}
        return common | own
    rope = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    return common | {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "attn_output_gate": True,
        "rope_parameters": rope | {"mrope_section": [2, 1, 1], "mrope_interleaved": True},
    }


def layers(hybrid, width, count):
    """Returns the tensors of layers that add nothing: all matrices are zero."""
    one = 0.0 if hybrid else 1.0  # Norms of qwen3_5 multiply by 1 + w.
    tensors = {}
    for i in range(count):
        layer = {
            "input_layernorm": constant([width], one),
            "post_attention_layernorm": constant([width], one),
            "mlp.gate_proj": constant([width, width]),
            "mlp.up_proj": constant([width, width]),
            "mlp.down_proj": constant([width, width]),
        }
        if not hybrid or i % 4 == 3:
            layer |= {
                "self_attn.q_proj": constant([64 * (2 if hybrid else 1), width]),
                "self_attn.k_proj": constant([32, width]),
                "self_attn.v_proj": constant([32, width]),
                "self_attn.o_proj": constant([width, 64]),
                "self_attn.q_norm": constant([32], one),
                "self_attn.k_norm": constant([32], one),
            }
        else:
            layer |= {
                "linear_attn.in_proj_qkv": constant([256, width]),
                "linear_attn.in_proj_z": constant([128, width]),
                "linear_attn.in_proj_a": constant([4, width]),
                "linear_attn.in_proj_b": constant([4, width]),
                "linear_attn.conv1d": constant([256, 1, 4]),
                "linear_attn.out_proj": constant([width, 128]),
                "linear_attn.norm": constant([32], 1.0),
            }
            for name in ("A_log", "dt_bias"):
                tensors[f"model.layers.{i}.linear_attn.{name}"] = constant([4])
        tensors |= {f"model.layers.{i}.{name}.weight": tensor for name, tensor in layer.items()}
    return tensors


def write(folder, tensors, configuration, tokens, template):
    """Writes a model into `folder`."""
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    (folder / "config.json").write_text(json.dumps(configuration))
    (folder / "tokenizer.json").write_text(json.dumps(tokens))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (folder / "chat_template.jinja").write_text(template)
