"""Makes small random `qwen35` checkpoints (Gated DeltaNet + gated attention) and their logits.

    python qwen35.py make                     the committed ones, into models/
    python qwen35.py make OUT [NAME...]       every variant, or the named ones, into OUT/
    python qwen35.py check OUT [WF_RUN]       compares llama.cpp, and `WF_RUN logits`, with the logits in OUT/
    python qwen35.py text                     ids of a small tokenizer of this family, into qwen35_text.json

The logits are those of `transformers` in f32 for the very weights that a file means: a rotated matrix is unfolded
in f64 first. Everything is seeded. README.md says what the files hold.
"""
import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # eager is the definition; no compiler in the loop

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from safetensors.torch import save_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.utils import logging

from models import tiny_vocabulary
from peers import llama_logits, wf_logits

logging.set_verbosity_error()
torch.set_grad_enabled(False)
HERE = Path(__file__).resolve().parent
TOKENS = 208
EVERY = 4  # rows of logits that are kept
VOCAB = 120
DTYPE = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}

# hidden, ff, heads, kv heads, head_dim, key heads, value heads, key width, value width, layers
EQUAL = dict(h=40, ff=48, nh=4, nkv=2, hd=24, nk=2, nv=2, dk=16, dv=16, layers=4)
THRICE = dict(h=36, ff=44, nh=3, nkv=1, hd=32, nk=2, nv=6, dk=12, dv=8, layers=4)
WIDE = dict(h=64, ff=96, nh=4, nkv=2, hd=16, nk=4, nv=8, dk=16, dv=16, layers=5)
G128 = dict(h=128, ff=128, nh=2, nkv=1, hd=64, nk=2, nv=4, dk=32, dv=32, layers=3)
G128_EQUAL = dict(h=128, ff=256, nh=4, nkv=2, hd=32, nk=4, nv=4, dk=32, dv=32, layers=2)
G256 = dict(h=256, ff=512, nh=4, nkv=2, hd=64, nk=2, nv=4, dk=64, dv=64, layers=2)
THREE = dict(h=128, ff=384, nh=2, nkv=1, hd=64, nk=2, nv=6, dk=64, dv=64, layers=2)  # widths of three blocks

# A rotation: block, signs, version; `grouped` = gdn_v_grouped, `table` = rotated embeddings.
ROT = dict(signs="explicit", version=1, grouped=False, table=False)
VARIANTS = {
    # Directories. `tied`: which of the two flags says so; `extra`: mtp.* and model.visual.* next to the text model.
    "flat-f32-tied": dict(size=EQUAL, dtype="f32", tied="flat"),
    "flat-bf16": dict(size=THRICE, dtype="bf16"),
    "flat-f16-tied": dict(size=WIDE, dtype="f16", tied="flat"),
    "flat-f16": dict(size=EQUAL, dtype="f16"),
    "wrapped-bf16-tied": dict(size=EQUAL, dtype="bf16", wrapped=True, tied="outer", extra=True),
    "wrapped-f16": dict(size=THRICE, dtype="f16", wrapped=True, extra=True, interval=True),
    "wrapped-f32-tied": dict(size=WIDE, dtype="f32", wrapped=True, tied="inner"),
    "wrapped-bf16": dict(size=WIDE, dtype="bf16", wrapped=True, full=[1, 2]),
    # Dense GGUF.
    "gguf-f16": dict(size=EQUAL, gguf="f16"),
    "gguf-bf16-tied-mtp": dict(size=THRICE | dict(dk=8), gguf="bf16", tied="flat", mtp=True),
    "gguf-q8_0-fused": dict(size=WIDE, gguf="q8_0", fused=True),
    "gguf-f16-layers": dict(size=EQUAL, gguf="f16", full=[0, 2], arrays=True),
    "gguf-f32-rotated": dict(size=THREE, gguf="f32", mtp=True, fused=True, rot=dict(ROT, block=64, grouped=True, table=True)),
    "gguf-f32-rotated-tied": dict(size=G128, gguf="f32", tied="flat", rot=dict(ROT, block=32, version=2)),
    "gguf-f16-rotated": dict(size=WIDE, gguf="f16", rot=dict(ROT, block=32, grouped=True)),
    # Two-bit and base-3 blocks without rotation (first generation).
    "gguf-q2_0": dict(size=G128 | dict(layers=4), gguf="q2_0", gates="ternary"),
    "gguf-q2_0-old": dict(size=G128_EQUAL, gguf="q2_0-old", tied="flat"),
    "gguf-pq2_0": dict(size=G128, gguf="pq2_0"),
    "gguf-ptq1_0": dict(size=G128_EQUAL, gguf="ptq1_0", tied="flat"),
    # Rotated: blocks smaller than, equal to and larger than a group.
    "gguf-q2_0-b32-identity": dict(size=G128_EQUAL, gguf="q2_0", rot=dict(ROT, block=32, signs="identity")),
    "gguf-q2_0-b64": dict(size=G128, gguf="q2_0", rot=dict(ROT, block=64, grouped=True)),
    "gguf-q2_0-b128": dict(size=THREE, gguf="q2_0", rot=dict(ROT, block=128, grouped=True, table=True)),
    "gguf-q2_0-b128-tied": dict(size=THREE, gguf="q2_0", tied="flat", rot=dict(ROT, block=128, grouped=True, version=2)),
    "gguf-q2_0-old-b128": dict(size=THREE, gguf="q2_0-old", rot=dict(ROT, block=128, grouped=True)),
    "gguf-q2_0-old-b32-tied": dict(size=G128, gguf="q2_0-old", tied="flat", rot=dict(ROT, block=32, version=2)),
    "gguf-pq2_0-b64-identity": dict(size=G128, gguf="pq2_0", rot=dict(ROT, block=64, signs="identity", grouped=True)),
    "gguf-pq2_0-b64-tiled": dict(size=G128, gguf="pq2_0", rot=dict(ROT, block=64)),
    "gguf-pq2_0-b128": dict(size=THREE, gguf="pq2_0", rot=dict(ROT, block=128, grouped=True, table=True)),
    "gguf-pq2_0-b256-tied": dict(size=G256, gguf="pq2_0", tied="flat", rot=dict(ROT, block=256, grouped=True, version=2)),
    "gguf-ptq1_0-b64-tied-identity": dict(size=G128, gguf="ptq1_0", tied="flat",
                                          rot=dict(ROT, block=64, signs="identity", version=2, grouped=True)),
    "gguf-ptq1_0-b128": dict(size=G128_EQUAL, gguf="ptq1_0", rot=dict(ROT, block=128, grouped=True)),
    "gguf-ptq1_0-b256": dict(size=G256, gguf="ptq1_0", rot=dict(ROT, block=256, grouped=True)),
    # The fold is by name: a ternary matrix that is not listed, a dense one that is.
    "gguf-pq2_0-some": dict(size=G128, gguf="pq2_0", unlisted=["ffn_up", "attn_gate", "attn_k", "ssm_out"], dense=["attn_output", "attn_v"],
                            rot=dict(ROT, block=64, grouped=True)),
}
# Few enough to keep in the repository: each kind of file and each way to rotate once.
COMMITTED = ["flat-f32-tied", "flat-bf16", "wrapped-bf16-tied", "wrapped-f16", "gguf-bf16-tied-mtp", "gguf-q2_0", "gguf-q2_0-b32-identity",
             "gguf-q2_0-old-b32-tied", "gguf-pq2_0-b64-tiled", "gguf-pq2_0-some", "gguf-ptq1_0-b128", "gguf-q2_0-b128-tied"]


def interval(v):
    """Every so many-th layer attends: every fourth, or every second of few layers."""
    return 4 if v["size"]["layers"] >= 4 else 2


def layer_types(v):
    full = v.get("full") or [i for i in range(v["size"]["layers"]) if (i + 1) % interval(v) == 0]
    return ["full_attention" if i in full else "linear_attention" for i in range(v["size"]["layers"])]


def text_config(v):
    s = v["size"]
    rope = dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_interleaved=True, mrope_section=[s["hd"] // 8 - 2, 1, 1])
    return dict(model_type="qwen3_5_text", vocab_size=VOCAB, hidden_size=s["h"], intermediate_size=s["ff"], num_hidden_layers=s["layers"],
                num_attention_heads=s["nh"], num_key_value_heads=s["nkv"], head_dim=s["hd"], rms_norm_eps=1e-6, hidden_act="silu",
                max_position_embeddings=4096, layer_types=layer_types(v), linear_conv_kernel_dim=4, linear_key_head_dim=s["dk"],
                linear_value_head_dim=s["dv"], linear_num_key_heads=s["nk"], linear_num_value_heads=s["nv"], rope_parameters=rope,
                attention_bias=False, attn_output_gate=True, tie_word_embeddings="tied" in v, bos_token_id=None, eos_token_id=2)


# ---------------------------------------------------------------- weights

def random_weights(v, seed):
    """HF name (without `model.`) -> f32, HF order. Decays are slow enough that a state outlives many chunks."""
    s, g, out = v["size"], torch.Generator().manual_seed(seed), {}
    normal = lambda *shape, std: torch.randn(*shape, generator=g) * std
    uniform = lambda n, low, high: torch.rand(n, generator=g) * (high - low) + low

    def matrix(name, rows, cols, gain=1.0):
        out[name + ".weight"] = normal(rows, cols, std=gain * cols**-0.5)

    out["embed_tokens.weight"] = normal(VOCAB, s["h"], std=0.5)
    for i, kind in enumerate(layer_types(v)):
        p = f"layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            out[f"{p}{norm}.weight"] = normal(s["h"], std=0.3)
        if kind == "full_attention":
            matrix(p + "self_attn.q_proj", 2 * s["nh"] * s["hd"], s["h"], 1.3)
            matrix(p + "self_attn.k_proj", s["nkv"] * s["hd"], s["h"], 1.3)
            matrix(p + "self_attn.v_proj", s["nkv"] * s["hd"], s["h"], 1.3)
            matrix(p + "self_attn.o_proj", s["h"], s["nh"] * s["hd"], 1.3)
            for norm in ("q_norm", "k_norm"):
                out[f"{p}self_attn.{norm}.weight"] = normal(s["hd"], std=0.3)
        else:
            keys, values = s["nk"] * s["dk"], s["nv"] * s["dv"]
            matrix(p + "linear_attn.in_proj_qkv", 2 * keys + values, s["h"], 1.3)
            matrix(p + "linear_attn.in_proj_z", values, s["h"], 1.3)
            matrix(p + "linear_attn.in_proj_a", s["nv"], s["h"])
            matrix(p + "linear_attn.in_proj_b", s["nv"], s["h"])
            matrix(p + "linear_attn.out_proj", s["h"], values, 1.3)
            out[p + "linear_attn.conv1d.weight"] = normal(2 * keys + values, 1, 4, std=0.6)
            out[p + "linear_attn.A_log"] = torch.log(uniform(s["nv"], 0.01, 0.5))
            out[p + "linear_attn.dt_bias"] = normal(s["nv"], std=1.0)
            out[p + "linear_attn.norm.weight"] = 1 + normal(s["dv"], std=0.3)
        matrix(p + "mlp.gate_proj", s["ff"], s["h"], 1.3)
        matrix(p + "mlp.up_proj", s["ff"], s["h"], 1.3)
        matrix(p + "mlp.down_proj", s["h"], s["ff"], 1.3)
    out["norm.weight"] = normal(s["h"], std=0.3)
    if "tied" not in v:
        matrix("lm_head", VOCAB, s["h"], 2.0)
    return out


def reference(v, weights):
    """The model in f32 with these weights."""
    config = Qwen3_5TextConfig(**text_config(v))
    config._attn_implementation = "eager"
    model = Qwen3_5ForCausalLM(config).eval().float()
    state = {k if k.startswith("lm_head") else "model." + k: w.float() for k, w in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == ("tied" in v)
    return model


def run(model, ids):
    return model(input_ids=ids[None], use_cache=False).logits[0]


def relative(a, b):
    """Norm of the difference over the norm."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


# ---------------------------------------------------------------- directories

def write_directory(v, weights, out):
    """Returns the weights as stored, in f32."""
    dtype, flat = DTYPE[v["dtype"]], "wrapped" not in v
    kept = ("A_log", "linear_attn.norm.weight") if v["dtype"] == "bf16" else ()  # f32, as in published files
    stored = {k: w if k.endswith(kept) else w.to(dtype) for k, w in weights.items()}
    prefix = "model." if flat else "model.language_model."
    tensors = {k if k.startswith("lm_head") else prefix + k: w.contiguous() for k, w in stored.items()}
    if v.get("extra"):
        for name in ("mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight", "mtp.norm.weight", "model.visual.blocks.0.attn.proj.weight",
                     "model.visual.patch_embed.proj.weight"):
            tensors[name] = torch.ones(4, 3, dtype=dtype)
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    text = text_config(v)
    if v.get("interval"):
        del text["layer_types"]
        text["full_attention_interval"] = 4
    if flat:
        config = dict(architectures=["Qwen3_5ForCausalLM"], dtype=NAMES[dtype], **text)
    else:
        config = dict(architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", dtype=NAMES[dtype], image_token_id=5,
                      text_config=text, vision_config=dict(model_type="qwen3_5_vision", depth=1, hidden_size=16))
        text["tie_word_embeddings"] = v.get("tied") == "inner"
        if v.get("tied") != "inner":
            config["tie_word_embeddings"] = v.get("tied") == "outer"
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return {k: w.float() for k, w in stored.items()}


# ---------------------------------------------------------------- GGUF

BLOCKS = {"q2_0": (42, 64, 18), "q2_0-old": (42, 128, 34), "pq2_0": (142, 128, 34), "ptq1_0": (143, 128, 28)}
ROLES = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "post_attention_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
         "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.conv1d": "ssm_conv1d",
         "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.norm": "ssm_norm",
         "linear_attn.out_proj": "ssm_out", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
FOLDABLE = {"output", "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_gate", "attn_output", "ssm_out", "ffn_gate", "ffn_up", "ffn_down"}
PREFIX = "prism.hadamard."


def gguf_name(name):
    """(name in the file, role)"""
    stem = name.removesuffix(".weight")
    if not stem.startswith("layers."):
        return ROLES[stem] + ".weight", ROLES[stem]
    _, i, role = stem.split(".", 2)
    role = ROLES[role]
    return f"blk.{i}.{role}" + ("" if role in ("ssm_a", "ssm_dt.bias") else ".weight"), role


def hadamard(x, block):
    """The normalized Sylvester transform of each block of the last axis."""
    h = np.ones((1, 1))
    while len(h) < block:
        h = np.block([[h, h], [h, -h]])
    return (x.reshape(-1, block) @ (h / np.sqrt(block))).reshape(x.shape)


def value_rows(v, role, w):
    """The value heads' order as an index of rows, HF's grouped to the file's tiled; None where rows stay."""
    s = v["size"]
    heads = np.arange(s["nv"]).reshape(s["nk"], -1).T.reshape(-1)
    wide = (heads[:, None] * s["dv"] + np.arange(s["dv"])).reshape(-1)
    keys = 2 * s["nk"] * s["dk"]
    if role in ("attn_qkv", "ssm_conv1d"):
        return np.concatenate([np.arange(keys), keys + wide])
    return {"attn_gate": wide, "ssm_alpha": heads, "ssm_beta": heads, "ssm_a": heads, "ssm_dt.bias": heads, "ssm_out": wide}.get(role)


def ternary(w, group, g):
    """Codes and f16 scales of a matrix."""
    w = w.reshape(w.shape[0], -1, group)
    scale = np.abs(w).mean(-1, keepdims=True) * g.uniform(0.8, 1.2, (*w.shape[:2], 1))
    scale = scale.astype(np.float16)
    return np.clip(np.rint(w / scale.astype(np.float64)), -1, 1).astype(np.int8) + 1, scale


def base3(digits):
    """Bytes of trits, the first one the highest digit of five."""
    v = np.zeros(digits.shape[1:], np.int64)
    for n in range(5):
        v = v * 3 + (digits[n] if n < len(digits) else 0)
    return ((v * 256 + 242) // 243).astype(np.uint8)


def pack(codes, scale, kind):
    codes = codes.astype(np.uint8)
    scale = scale.view(np.uint8)
    if kind != "ptq1_0":
        c = codes.reshape(*codes.shape[:2], -1, 4)
        return np.concatenate([scale, c[..., 0] | c[..., 1] << 2 | c[..., 2] << 4 | c[..., 3] << 6], -1).reshape(len(codes), -1)
    stage = lambda at, size, trits: base3(np.stack([codes[..., at + size * n:at + size * (n + 1)] for n in range(trits)]))
    return np.concatenate([stage(0, 16, 5), stage(80, 8, 5), stage(120, 2, 4), scale], -1).reshape(len(codes), -1)


class Rotation:
    def __init__(self, v, seed):
        self.rot, self.g, self.signs = v.get("rot"), np.random.default_rng(seed), {}
        self.tied = "tied" in v
        self.names = []

    def table(self):
        return bool(self.rot) and (self.rot["table"] or self.rot["version"] == 2)

    def vector(self, width):
        if self.rot["signs"] == "identity":
            return np.ones(width)
        return self.signs.setdefault(width, self.g.choice([-1.0, 1.0], width))

    def fold(self, w):
        return hadamard(w * self.vector(w.shape[-1]), self.rot["block"])

    def unfold(self, w):
        return hadamard(w, self.rot["block"]) * self.vector(w.shape[-1])

    def keys(self, w):
        if not self.rot:
            return
        w.add_uint32(PREFIX + "version", self.rot["version"])
        w.add_uint32(PREFIX + "block_size", self.rot["block"])
        w.add_string(PREFIX + "transform", "normalized-sylvester-walsh-hadamard")
        w.add_string(PREFIX + "axis", "input-last-dimension")
        w.add_string(PREFIX + "sign_mode", self.rot["signs"])
        w.add_array(PREFIX + "weight_names", self.names)
        if self.rot["signs"] == "explicit":
            w.add_array(PREFIX + "sign_widths", list(self.signs))
            w.add_array(PREFIX + "sign_values", [int(x) for s in self.signs.values() for x in s])
        if self.table():
            w.add_array(PREFIX + "inverse_weight_names", ["token_embd.weight"])
        if self.rot["grouped"]:
            w.add_bool(PREFIX + "gdn_v_grouped", True)
        if self.rot["version"] == 2:
            w.add_bool(PREFIX + "tied_output", True)


def write_gguf(v, weights, path, seed):
    """Returns the weights as the file means them, in HF's form and order."""
    rotation, g, file, meant = Rotation(v, seed), np.random.default_rng(seed + 1), [], {}
    for name, w in weights.items():
        stored, role = gguf_name(name)
        w = w.double().numpy()
        if role == "ssm_conv1d":
            w = w[:, 0]
        order = value_rows(v, role, w)
        by_columns = role == "ssm_out"
        if by_columns and v.get("rot") and v["rot"]["grouped"] and role not in v.get("unlisted", ()):
            order = None
        if order is not None:
            w = w[:, order] if by_columns else w[order]
        kind = v["gguf"]
        if w.ndim == 1 or role == "ssm_conv1d":
            kind = "f32"
            if role == "ssm_a":
                w = -np.exp(w)
            elif "norm" in role and role != "ssm_norm":
                w = 1 + w
        elif role in ("ssm_alpha", "ssm_beta") and v.get("gates") != "ternary" and kind in BLOCKS:
            kind = "bf16"
        elif role in v.get("dense", ()):
            kind = "f16"
        folded = v.get("rot") and (role in FOLDABLE and role not in v.get("unlisted", ()) or role == "token_embd" and rotation.table())
        if folded:
            w = rotation.fold(w)
            if role != "token_embd":
                rotation.names.append(stored)
        if kind in BLOCKS:
            type_id, group, _ = BLOCKS[kind]
            codes, scale = ternary(w, group, g)
            data, w = pack(codes, scale, kind), ((codes - 1) * scale.astype(np.float64)).reshape(w.shape)
        else:
            type_id = Q[kind.upper()]
            data = gguf.quants.quantize(w.astype(np.float32), type_id)
            w = gguf.quants.dequantize(data, type_id).astype(np.float64)
        file.append((stored, np.ascontiguousarray(data), type_id))
        if folded:
            w = rotation.unfold(w)
        if order is not None:
            back = np.argsort(order)
            w = w[:, back] if by_columns else w[back]
        if role == "ssm_a":
            w = np.log(-w)
        elif "norm" in role and role != "ssm_norm":
            w = w - 1
        elif role == "ssm_conv1d":
            w = w[:, None]
        meant[name] = torch.from_numpy(w.astype(np.float32))
    if v.get("fused"):
        file, rotation.names = fuse(file), [fused for name in rotation.names if (fused := fused_name(name))]
    save_gguf(v, file, rotation, path, g)
    return meant


def fused_name(name):
    """The name of q with k and v; none for k and v themselves."""
    if name.endswith(("attn_k.weight", "attn_v.weight")):
        return None
    return name.replace("attn_q.", "attn_qkv.")


def fuse(file):
    """q, k and v of full-attention layers as one `attn_qkv`."""
    data = {name: d for name, d, _ in file}
    parts = lambda name: [data[name.replace("attn_q.", role)] for role in ("attn_q.", "attn_k.", "attn_v.")]
    return [(fused_name(n), np.concatenate(parts(n)) if ".attn_q." in n else d, kind) for n, d, kind in file if fused_name(n)]


def nextn_block(v, g):
    """A draft block with the names and shapes of a trunk layer, dense."""
    s, p = v["size"], f"blk.{v['size']['layers']}."
    shapes = {"attn_norm": [s["h"]], "post_attention_norm": [s["h"]], "attn_q": [2 * s["nh"] * s["hd"], s["h"]],
              "attn_k": [s["nkv"] * s["hd"], s["h"]], "attn_v": [s["nkv"] * s["hd"], s["h"]], "attn_output": [s["h"], s["nh"] * s["hd"]],
              "attn_q_norm": [s["hd"]], "attn_k_norm": [s["hd"]], "ffn_gate": [s["ff"], s["h"]], "ffn_up": [s["ff"], s["h"]],
              "ffn_down": [s["h"], s["ff"]], "nextn.eh_proj": [s["h"], 2 * s["h"]], "nextn.enorm": [s["h"]], "nextn.hnorm": [s["h"]]}
    for role, shape in shapes.items():
        kind = Q.F32 if len(shape) == 1 else Q.F16
        yield f"{p}{role}.weight", gguf.quants.quantize(g.normal(0, 0.1, shape).astype(np.float32), kind), kind


def save_gguf(v, file, rotation, path, g):
    s = v["size"]
    w = gguf.GGUFWriter(None, "qwen35")
    size = lambda key, n: w.add_uint32("qwen35." + key, n)
    w.add_name(path.parent.name)
    size("block_count", s["layers"] + bool(v.get("mtp")))
    size("context_length", 4096)
    size("embedding_length", s["h"])
    size("feed_forward_length", s["ff"])
    size("attention.head_count", s["nh"])
    size("attention.head_count_kv", s["nkv"])
    size("attention.key_length", s["hd"])
    size("attention.value_length", s["hd"])
    w.add_float32("qwen35.attention.layer_norm_rms_epsilon", 1e-6)
    half = s["hd"] // 8
    size("rope.dimension_count", 2 * half)
    w.add_array("qwen35.rope.dimension_sections", [(half + 2) // 3, (half + 1) // 3, half // 3, 0])
    w.add_float32("qwen35.rope.freq_base", 1e7)
    size("ssm.conv_kernel", 4)
    assert s["dk"] == s["dv"]
    size("ssm.state_size", s["dk"])
    size("ssm.group_count", s["nk"])
    size("ssm.time_step_rank", s["nv"])
    size("ssm.inner_size", s["nv"] * s["dv"])
    if v.get("arrays"):
        w.add_array("qwen35.attention.recurrent_layers", [kind == "linear_attention" for kind in layer_types(v)])
    else:
        size("full_attention_interval", interval(v))
    if v.get("mtp"):
        size("nextn_predict_layers", 1)
        file = [*file, *nextn_block(v, g)]
    tokens, types, merges = tiny_vocabulary(VOCAB)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen35")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_eos_token_id(2)
    rotation.keys(w)
    for name, data, kind in file:
        if kind in (42, 142, 143):
            gguf.GGML_QUANT_SIZES[kind] = next(b[1:] for k, b in BLOCKS.items() if k == v["gguf"])
        w.add_tensor(name, data, raw_dtype=kind)
    w.write_header_to_file(path)
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---------------------------------------------------------------- tokenizer

MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
MARKED = ["x\u0301y z\u0302\u0303 \u0301a \u0301 1\u0301", "हिन्दी में संयुक्ताक्षर क्षेत्र", "ภาษาไทย น้ำ ผู้", "<think>\nHm.\n</think>\n\n42<|im_end|>",
          "שָׁלוֹם עֲלֵיכֶם", "e\u0301 \u1100\u1161\u11a8 \u212b"]


def text():
    from text import TEXTS
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
    from transformers import Qwen3_5Tokenizer
    texts, plain = TEXTS + MARKED, Tokenizer(models.BPE())
    plain.pre_tokenizer = Qwen3_5Tokenizer().backend_tokenizer.pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    plain.train_from_iterator(texts * 4, trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(plain.to_str())["model"]
    tokenizer = Qwen3_5Tokenizer(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]])
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(t, special=True, normalized=False) for t in MARKS]})
    ids = [tokenizer.encode(t, add_special_tokens=False) for t in texts]
    rows = [dict(text=t, ids=i) for t, i in zip(texts, ids)]
    golden = dict(tokenizer=json.loads(tokenizer.backend_tokenizer.to_str()), rows=rows)
    (HERE / "qwen35_text.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


# ---------------------------------------------------------------- commands

def make(name, root):
    v, seed = VARIANTS[name], 500 + sorted(VARIANTS).index(name)
    out = root / ("qwen35-" + name)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    weights = random_weights(v, seed)
    meant = write_gguf(v, weights, out / "model.gguf", seed) if "gguf" in v else write_directory(v, weights, out)
    ids = torch.randint(0, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(seed))
    model = reference(v, meant)
    logits = run(model, ids)
    whole = run(model.double(), ids)
    np.save(out / "tokens.npy", ids.numpy())
    np.save(out / "causal.npy", logits.float().numpy()[EVERY - 1::EVERY])
    early = ids.clone()
    early[3] = (early[3] + 1) % VOCAB  # the first chunk's tokens matter in the last
    memory = relative(run(model.float(), early)[-8:], logits[-8:])
    size = sum(f.stat().st_size for f in out.iterdir()) / 1024
    print(f"{name:32} {size:5.0f} KB  f64 {relative(logits, whole):.1e}  early token {memory:.1e}  sd {logits.std():.2f}", flush=True)


def check(root, wf_run=None):
    worst = 0.0
    for out in sorted(p for p in root.iterdir() if (p / "causal.npy").exists() and p.name.startswith("qwen35-")):
        want, ids, file, line = np.load(out / "causal.npy"), out / "tokens.npy", out / "model.gguf", f"{out.name:40}"
        if file.exists():
            logits, why = llama_logits(file, ids)
            line += f"  llama.cpp {relative(logits[EVERY - 1::EVERY], want):.1e}" if logits is not None else f"  llama.cpp: {why}"
        if wf_run:
            logits, why = wf_logits(wf_run, file if file.exists() else out, ids)
            off = relative(logits[EVERY - 1::EVERY], want) if logits is not None else np.inf
            line += f"  wf-run {off:.1e} {why}"
            worst = max(worst, off / (1e-2 if file.exists() else 2e-3))
        print(line, flush=True)
    assert worst <= 1, "wf-run is off"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make"]:
            [make(name, HERE / "models") for name in COMMITTED]
        case ["make", out, *names]:
            [make(name, Path(out)) for name in names or VARIANTS]
        case ["check", out, *wf_run]:
            check(Path(out), *wf_run)
        case ["text"]:
            text()
        case _:
            sys.exit(__doc__)
