"""Makes tiny random models of one to two bits and of their families, and golden logits by `transformers` in f32.

    python low_bit.py make [NAME...]        into models/
    python low_bit.py check WF_RUN          compares `wf-run logits` and llama.cpp with them

MiniCPM is not part of `transformers`: the reference is its Llama, with MiniCPM's three factors folded into the weights.
Bytes of Q1_0 and STQ1_0 are unpacked here by loops written from the formats' descriptions.
"""
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from safetensors.torch import save_file
from transformers import (HunYuanDenseV1Config, HunYuanDenseV1ForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

torch.set_grad_enabled(False)
HERE, TOKENS = Path(__file__).resolve().parent, 48
# Type id, weights and bytes of a block.
BLOCKS = {"Q1_0": (41, 128, 18), "STQ1_0": (43, 256, 42), "STQ1_0 as 42": (42, 256, 42), "TQ2_0": (35, 256, 66), "F16": (1, 1, 2),
          "F32": (0, 1, 4), "Q6_K": (14, 256, 210)}

HUNYUAN = dict(arch="hunyuan-dense", eps=1e-5, theta=10000.0, alpha=1000.0, norms=True)
MINICPM = dict(arch="minicpm", eps=1e-6, theta=10000.0, factors=dict(scale_emb=12.0, scale_depth=1.4, dim_model_base=16), tied=True)
MODELS = {
    "hunyuan": dict(HUNYUAN, seed=1, hidden=48, ff=56, layers=2, heads=4, kv=2, hd=14, vocab=121, kind="F16", tied=True, hf="rope_scaling"),
    "hunyuan-new": dict(HUNYUAN, seed=25, hidden=40, ff=44, layers=2, heads=2, kv=1, hd=20, vocab=117, kind="F16", bias=True, hf="rope_parameters"),
    "hunyuan-stq": dict(HUNYUAN, seed=21, hidden=256, ff=256, layers=1, heads=4, kv=1, hd=64, vocab=67, kind="STQ1_0 as 42", table="Q6_K", tied=True),
    "bonsai-q1": dict(arch="qwen3", seed=4, eps=1e-6, theta=1e6, norms=True, hidden=128, ff=256, layers=2, heads=2, kv=1, hd=64, vocab=67,
                      kind="Q1_0", table="Q1_0", yarn=dict(factor=4.0, original=16), context=64),
    "minicpm-long": dict(MINICPM, seed=20, hidden=48, ff=56, layers=3, heads=4, kv=2, hd=12, vocab=121, kind="F16", original=32, context=128, hf="old"),
    "minicpm-short": dict(MINICPM, seed=22, hidden=48, ff=56, layers=2, heads=4, kv=1, hd=12, vocab=121, kind="F16", original=128, context=128, tied=False, hf="new"),
    "minicpm-tq2": dict(MINICPM, seed=7, hidden=256, ff=256, layers=1, heads=4, kv=1, hd=64, vocab=67, kind="TQ2_0", table="F16"),
}


# ---------------------------------------------------------------- weights

def q1_0(block):
    d = np.float32(block[:2].view(np.float16)[0])
    return [d if block[2 + j // 8] >> j % 8 & 1 else -d for j in range(128)]


def stq1_0(block):
    d, out = np.float32(block[40:].view(np.float16)[0]), np.zeros(256, np.float32)
    for g in range(64):
        slot, sign = block[g // 2] >> 4 * (g % 2) & 15, block[32 + g // 8] >> g % 8 & 1
        signs = iter([1, -1 if slot & 1 else 1, -1 if slot & 2 else 1])
        for p in range(4):
            if p != slot >> 2:
                out[64 * (g // 16) + g % 16 + 16 * p] = d * next(signs) * (-1 if sign else 1)
    return out


def quantized(g, kind, rows, cols, gain):
    """Random bytes of a type and their values."""
    std = gain * cols**-0.5
    if kind in ("F16", "F32"):
        data = g.normal(0, std, (rows, cols)).astype(np.float16 if kind == "F16" else np.float32)
        return data.view(np.uint8).reshape(rows, -1), data.astype(np.float32)
    _, weights, size = BLOCKS[kind]
    data = g.integers(0, 256, (rows * cols // weights, size), dtype=np.uint8)
    at = {"Q1_0": 0, "TQ2_0": 64, "Q6_K": 208}.get(kind, 40)
    spread = g.uniform(0.5, 1.5, (len(data), 1))
    if kind == "TQ2_0":  # one scale for all blocks, which must not give the matrix 8-bit activations
        codes = g.integers(0, 3, (len(data), 64, 4), dtype=np.uint8)
        data[:, :64] = codes[..., 0] | codes[..., 1] << 2 | codes[..., 2] << 4 | codes[..., 3] << 6
        spread[:] = 1
    if kind == "Q6_K":
        spread /= 4000
    data[:, at:at + 2] = (std * spread).astype(np.float16).view(np.uint8)
    if kind in ("Q1_0", "STQ1_0", "STQ1_0 as 42"):
        unpack = q1_0 if kind == "Q1_0" else stq1_0
        values = np.array([unpack(block) for block in data], np.float32)
    else:
        values = gguf.quants.dequantize(data.reshape(rows, -1), Q[kind])
    return data.reshape(rows, -1), values.reshape(rows, cols)


def weights(m):
    """HF's name -> (type, bytes, f32 values)."""
    g, out = np.random.default_rng(m["seed"]), {}
    h, ff, q, kv = m["hidden"], m["ff"], m["heads"] * m["hd"], m["kv"] * m["hd"]

    def add(name, rows, cols, gain, kind=m["kind"], bias=False):
        out[name + ".weight"] = (kind, *quantized(g, kind, rows, cols, gain))
        if bias:
            vector(name + ".bias", rows, 0, 0.3)

    def vector(name, n, mean=1.0, std=0.3):
        values = g.normal(mean, std, n).astype(np.float32)
        out[name] = ("F32", values.view(np.uint8), values)

    table = m.get("table", m["kind"])
    add("model.embed_tokens", m["vocab"], h, 0.4 * h**0.5 / m.get("factors", {}).get("scale_emb", 1), table)
    for i in range(m["layers"]):
        p = f"model.layers.{i}."
        vector(p + "input_layernorm.weight", h)
        for role, rows in [("q", q), ("k", kv), ("v", kv)]:
            add(f"{p}self_attn.{role}_proj", rows, h, 1.6, bias=m.get("bias", False))
        add(p + "self_attn.o_proj", h, q, 1.2, bias=m.get("bias", False))
        if m.get("norms"):
            qk = ["q_norm", "k_norm"] if m["arch"] == "qwen3" else ["query_layernorm", "key_layernorm"]
            [vector(f"{p}self_attn.{role}.weight", m["hd"]) for role in qk]
        vector(p + "post_attention_layernorm.weight", h)
        add(p + "mlp.gate_proj", ff, h, 1.3)
        add(p + "mlp.up_proj", ff, h, 1.3)
        add(p + "mlp.down_proj", h, ff, 1.3)
    vector("model.norm.weight", h)
    if not m.get("tied"):
        add("lm_head", m["vocab"], h, 3.0, table)
    return out


def lists(m):
    """LongRoPE's factors."""
    i = np.arange(m["hd"] // 2)
    return [[float(np.float32(x)) for x in f] for f in (1.0 + 0.9 * i, 1.0 + 0.07 * i)]


def attention_factor(m):
    ratio = m.get("context", 256) / m["original"]
    return 1.0 if ratio <= 1 else float(np.sqrt(1 + np.log(ratio) / np.log(m["original"])))


# ---------------------------------------------------------------- reference

def config(m):
    c = dict(vocab_size=m["vocab"], hidden_size=m["hidden"], intermediate_size=m["ff"], num_hidden_layers=m["layers"],
             num_attention_heads=m["heads"], num_key_value_heads=m["kv"], max_position_embeddings=m.get("context", 256),
             rms_norm_eps=m["eps"], hidden_act="silu", attention_bias=m.get("bias", False), bos_token_id=1, eos_token_id=2)
    if m["arch"] != "minicpm":
        c["head_dim"] = m["hd"]
    return c


def reference(m, w):
    """The model of `transformers`, with these weights."""
    rope = dict(rope_theta=m["theta"], rope_type="default")
    match m["arch"]:
        case "hunyuan-dense":
            rope |= dict(rope_type="dynamic", alpha=m["alpha"], factor=1.0)
            make, conf = HunYuanDenseV1ForCausalLM, HunYuanDenseV1Config
        case "qwen3":
            rope |= dict(rope_type="yarn", factor=m["yarn"]["factor"], original_max_position_embeddings=m["yarn"]["original"])
            make, conf = Qwen3ForCausalLM, Qwen3Config
        case "minicpm":
            if "original" in m:
                long, short = lists(m)
                rope |= dict(rope_type="longrope", long_factor=long, short_factor=short, factor=1.0,
                             original_max_position_embeddings=m["original"], attention_factor=attention_factor(m))
            make, conf = LlamaForCausalLM, LlamaConfig
    model = make(conf(**config(m), rope_parameters=rope, tie_word_embeddings=False, attn_implementation="eager")).eval()
    state = {k: torch.tensor(v) for k, (_, _, v) in w.items()}
    state.setdefault("lm_head.weight", state["model.embed_tokens.weight"].clone())
    if f := m.get("factors"):
        state["model.embed_tokens.weight"] = state["model.embed_tokens.weight"] * f["scale_emb"]
        state["lm_head.weight"] = state["lm_head.weight"] / (m["hidden"] / f["dim_model_base"])
        for k in state:
            if k.endswith(("o_proj.weight", "down_proj.weight")):
                state[k] = state[k] * f["scale_depth"] / m["layers"]**0.5
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and not [k for k in missing if "inv_freq" not in k], (missing, unexpected)
    return model


# ---------------------------------------------------------------- files

def write_hf(m, w, out):
    c = config(m)
    rope = dict(factor=1.0)
    if m["arch"] == "hunyuan-dense":
        c |= dict(model_type="hunyuan_v1_dense", architectures=["HunYuanDenseV1ForCausalLM"], use_qk_norm=True, use_cla=False, num_experts=1)
        c["attention_head_dim"] = c.pop("head_dim")
        rope |= dict(alpha=m["alpha"], beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)
        kind = "dynamic"
    else:
        c |= dict(model_type="minicpm", architectures=["MiniCPMForCausalLM"], eos_token_id=[2, 3], mup_denominator=32,
                  sparse_config=dict(kernel_size=32, dense_len=8192), **m["factors"])
        long, short = lists(m)
        rope = dict(long_factor=long, short_factor=short, original_max_position_embeddings=m["original"])
        kind = "longrope"
    if m["hf"] in ("rope_scaling", "old"):
        c |= dict(rope_theta=m["theta"], rope_scaling=dict(rope, type=kind), torch_dtype="float16")
    else:
        c |= dict(rope_parameters=dict(rope, rope_type=kind, rope_theta=m["theta"]), dtype="float16")
    if m["hf"] != "old":
        c["tie_word_embeddings"] = bool(m.get("tied"))
    (out / "config.json").write_text(json.dumps(c, indent=1) + "\n")
    tensor = lambda kind, values: torch.tensor(values).to(torch.float16 if kind == "F16" else torch.float32)
    save_file({k: tensor(kind, v) for k, (kind, _, v) in w.items()}, out / "model.safetensors", {"format": "pt"})


NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.query_layernorm": "attn_q_norm",
         "self_attn.key_layernorm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    stem, end = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, i, role = stem.split(".", 3)
        return f"blk.{i}.{NAMES[role]}.{end}"
    return f"{NAMES[stem]}.{end}"


def write_gguf(m, w, path, dense=False):
    """Writes a file by hand, because the gguf package knows neither all types nor all keys. `dense` writes F32 matrices."""
    arch, text = m["arch"], lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
    keys = {"general.architecture": arch, "general.name": path.parent.name, "general.alignment": 32}
    own = {"vocab_size": m["vocab"], "context_length": m.get("context", 256), "embedding_length": m["hidden"], "block_count": m["layers"],
           "feed_forward_length": m["ff"], "attention.head_count": m["heads"], "attention.head_count_kv": m["kv"],
           "attention.key_length": m["hd"], "attention.value_length": m["hd"], "attention.layer_norm_rms_epsilon": float(m["eps"]),
           "rope.dimension_count": m["hd"], "rope.freq_base": float(m["theta"])}
    if arch == "hunyuan-dense":
        own |= {"rope.freq_base": m["theta"] * m["alpha"] ** (m["hd"] / (m["hd"] - 2)), "rope.scaling.type": "none",
                "rope.scaling.factor": 1.0, "rope.scaling.original_context_length": 262144}
        del own["rope.dimension_count"]
    if "yarn" in m:
        own |= {"rope.scaling.type": "yarn", "rope.scaling.factor": m["yarn"]["factor"], "rope.scaling.original_context_length": m["yarn"]["original"]}
    extra = {}
    if f := m.get("factors"):
        own |= {"embedding_scale": f["scale_emb"], "residual_scale": f["scale_depth"] / m["layers"]**0.5, "logit_scale": m["hidden"] / f["dim_model_base"]}
    if "original" in m:
        own |= {"rope.scaling.type": "longrope", "rope.scaling.attn_factor": attention_factor(m)}
        if m["original"] != m["context"]:
            own["rope.scaling.original_context_length"] = m["original"]
        for name, factors in zip(["rope_factors_long.weight", "rope_factors_short.weight"], lists(m)):
            extra[name] = ("F32", np.array(factors, np.float32).view(np.uint8), np.array(factors, np.float32))
    keys |= {f"{arch}.{k}": v for k, v in own.items()} | {"tokenizer.ggml.model": "no_vocab"}

    def value(v):
        match v:
            case str():
                return struct.pack("<I", 8) + text(v)
            case float():
                return struct.pack("<If", 6, v)
            case int():
                return struct.pack("<II", 4, v)

    head = b"".join(text(k) + value(v) for k, v in keys.items())
    infos, data, tensors = b"", b"", {gguf_name(k): t for k, t in w.items()} | extra
    for name, (kind, raw, values) in tensors.items():
        if arch == "minicpm" and name.endswith(("attn_q.weight", "attn_k.weight")):  # pairs are neighbours
            heads = m["heads"] if "attn_q" in name else m["kv"]
            order = np.arange(len(values)).reshape(heads, 2, -1).swapaxes(1, 2).ravel()
            raw, values = raw[order], values[order]
        if dense:
            kind, raw = "F32", np.ascontiguousarray(values, np.float32).view(np.uint8)
        infos += text(name) + struct.pack("<I", values.ndim) + b"".join(struct.pack("<Q", n) for n in values.shape[::-1])
        infos += struct.pack("<IQ", BLOCKS[kind][0], len(data))
        data += raw.tobytes() + bytes(-raw.size % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + head + infos
    path.write_bytes(head + bytes(-len(head) % 32) + data)


# ---------------------------------------------------------------- commands

def make(name):
    m, out = MODELS[name], HERE / "models" / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    w = weights(m)
    ids = np.random.default_rng(m["seed"]).integers(0, m["vocab"], TOKENS)
    model = reference(m, w)
    run = lambda model: model(input_ids=torch.tensor(ids)[None], use_cache=False).logits[0].numpy()
    logits = run(model)
    if "hf" in m:
        write_hf(m, w, out)
    write_gguf(m, w, out / "model.gguf")
    np.save(out / "tokens.npy", ids)
    np.save(out / "causal.npy", logits)
    gap = np.sort(logits, axis=1)
    noise = np.abs(run(model.double()) - logits).max() / np.abs(logits).max()
    size = sum(f.stat().st_size for f in out.iterdir()) / 1024
    least = (gap[:, -1] - gap[:, -2]).min() / np.abs(logits).max()
    assert least > 2e-3 and noise < 1e-5, f"{name}: {least:.1e}, {noise:.1e}: take another seed"
    print(f"{name:14} {size:5.0f} KB  f64 {noise:.1e}  gap {least:.1e}  sd {logits.std():.2f}", flush=True)


def relative(a, b):
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))


def check(wf_run):
    from peers import llama_logits, wf_logits
    for name, m in MODELS.items():
        out, line = HERE / "models" / name, f"{name:14}"
        want = np.load(out / "causal.npy")
        with tempfile.TemporaryDirectory() as tmp:
            for file in [out / "model.gguf", *([out] if "hf" in m else [])]:
                logits, why = wf_logits(wf_run, file, out / "tokens.npy")
                line += f"  {'directory' if file == out else 'gguf'} {relative(logits, want):.1e}" if logits is not None else f"  {why}"
            dense = Path(tmp) / "dense" / "model.gguf"
            dense.parent.mkdir()
            write_gguf(m, weights(m), dense, dense=True)
            logits, why = llama_logits(dense, out / "tokens.npy")
            line += f"  llama.cpp in f32 {relative(logits, want):.1e}" if logits is not None else f"  llama.cpp: {why}"
        print(line, flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", *names]:
            [make(name) for name in names or MODELS]
        case ["check", wf_run]:
            check(wf_run)
        case _:
            sys.exit(__doc__)
