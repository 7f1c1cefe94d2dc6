"""Makes tiny random models and their golden logits with Hugging Face transformers, in f32 on a CPU.

    python models.py make [NAME...]            all models below, or the named ones, into models/
    python models.py hidden NAME...            the final hidden states alone, of models that are there
    python models.py logits DIR 1,2,3 OUT.npy  f32 [tokens, vocab] of any Hugging Face directory, causal
    python models.py pilot DIR                 the larger witness, into pilot/

Everything is seeded: a second run writes the same weights and tokens. README.md says what the files hold.
"""
import json
import os
import shutil
import sys
import tempfile
import typing
from pathlib import Path

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # eager is the definition; no compiler in the loop

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.bitnet import AutoBitLinear, BitLinear, pack_weights
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_grad_enabled(False)
HERE = Path(__file__).resolve().parent
T, T_GGUF, BLOCKS = 66, 40, (32, 5)
DTYPE = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
BITNET_ROLES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

# Sizes avoid multiples of 16 where the format allows: packed U8 needs out % 4 == 0, groups need columns % 64 == 0.
MODELS = {
    "bitnet-online": dict(
        seed=1, store="bf16", linear="autobitlinear", mode="online",
        config=dict(model_type="bitnet", hidden_size=60, intermediate_size=84, num_hidden_layers=2, num_attention_heads=6,
                    num_key_value_heads=2, vocab_size=157, hidden_act="relu2", rms_norm_eps=1e-5, rope_theta=500000.0,
                    tie_word_embeddings=True)),
    "bitnet-packed": dict(
        seed=2, store="packed", linear="autobitlinear", mode="offline", scale_dtype="f32", norm_dtype="f32", embed_dtype="bf16",
        config=dict(model_type="bitnet", hidden_size=60, intermediate_size=92, num_hidden_layers=3, num_attention_heads=6,
                    num_key_value_heads=2, vocab_size=159, hidden_act="relu2", rms_norm_eps=1e-5, rope_theta=10000.0,
                    tie_word_embeddings=True)),
    "llama-bitlinear": dict(
        seed=3, store="packed", linear=None, mode=None, scale_dtype="bf16", norm_dtype="bf16", embed_dtype="bf16",
        config=dict(model_type="llama", hidden_size=56, intermediate_size=84, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, vocab_size=162, hidden_act="silu", rms_norm_eps=1e-6, rope_theta=10000.0,
                    rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                      original_max_position_embeddings=32),
                    tie_word_embeddings=False)),
    "llama-plain": dict(
        seed=4, store="f16",
        config=dict(model_type="llama", hidden_size=48, intermediate_size=54, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=1, head_dim=14, vocab_size=159, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0,
                    attention_bias=True, mlp_bias=True, tie_word_embeddings=False)),
    "qwen2": dict(
        seed=5, store="bf16",
        config=dict(model_type="qwen2", hidden_size=52, intermediate_size=70, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=1, vocab_size=151, hidden_act="silu", rms_norm_eps=1e-6, rope_theta=1000000.0,
                    use_sliding_window=False, sliding_window=32, max_window_layers=1, tie_word_embeddings=True)),
    # The way transformers 5 writes a config: `dtype` and `rope_parameters`; the others use the older keys.
    "qwen3": dict(
        seed=6, store="f32", shards=2,
        config=dict(model_type="qwen3", hidden_size=48, intermediate_size=54, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=14, vocab_size=155, hidden_act="silu", rms_norm_eps=1e-6,
                    rope_parameters=dict(rope_type="default", rope_theta=25000.0), attention_bias=False,
                    tie_word_embeddings=False)),
    "qwen3-online": dict(
        seed=7, store="bf16", linear="autobitlinear", mode="online",
        config=dict(model_type="qwen3", hidden_size=44, intermediate_size=50, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=22, vocab_size=160, hidden_act="silu", rms_norm_eps=1e-6,
                    rope_theta=1000000.0, attention_bias=False, tie_word_embeddings=True)),
    "qwen3-groups": dict(
        seed=8, store="f16", norm_dtype="f32", groups=64, gguf={"q2_0.gguf": "Q2_0"},
        config=dict(model_type="qwen3", hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=1, head_dim=32, vocab_size=131, hidden_act="silu", rms_norm_eps=1e-6,
                    rope_theta=1000000.0, attention_bias=False, tie_word_embeddings=False)),
    "gguf-bitnet": dict(
        seed=9, store="packed", linear="autobitlinear", mode="offline", scale_dtype="f16", norm_dtype="f32", embed_dtype="f16",
        gguf={"tq2_0.gguf": "TQ2_0", "tq1_0.gguf": "TQ1_0"}, only_gguf=True,
        config=dict(model_type="bitnet", hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4,
                    num_key_value_heads=1, vocab_size=117, hidden_act="relu2", rms_norm_eps=1e-5, rope_theta=500000.0,
                    tie_word_embeddings=True)),
    "gguf-llama": dict(
        seed=10, store="f16", norm_dtype="f32", gguf={"f16.gguf": "F16"}, only_gguf=True,
        config=dict(model_type="llama", hidden_size=56, intermediate_size=60, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, vocab_size=123, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0,
                    rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                      original_max_position_embeddings=32),
                    tie_word_embeddings=False)),
    "gguf-qwen3": dict(
        seed=11, store="f32", q8=True, gguf={"q8_0.gguf": "Q8_0"}, only_gguf=True,
        config=dict(model_type="qwen3", hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=24, vocab_size=125, hidden_act="silu", rms_norm_eps=1e-6,
                    rope_theta=1000000.0, attention_bias=False, tie_word_embeddings=False)),
    # Positions beyond those that the model knew, by division and by YaRN; the latter also with every rule of its own.
    "llama-linear": dict(
        seed=12, store="f16", norm_dtype="f32", gguf={"f16.gguf": "F16"},
        config=dict(model_type="llama", hidden_size=48, intermediate_size=54, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, vocab_size=121, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0,
                    rope_scaling=dict(type="linear", factor=4.0), tie_word_embeddings=False)),
    "qwen3-yarn": dict(
        seed=13, store="f16", norm_dtype="f32", gguf={"f16.gguf": "F16"},
        config=dict(model_type="qwen3", hidden_size=48, intermediate_size=54, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=1, head_dim=32, vocab_size=127, hidden_act="silu", rms_norm_eps=1e-6,
                    rope_theta=10000.0, rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64),
                    attention_bias=False, tie_word_embeddings=False)),
    "qwen2-yarn": dict(
        seed=14, store="bf16",
        config=dict(model_type="qwen2", hidden_size=52, intermediate_size=58, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=1, vocab_size=131, hidden_act="silu", rms_norm_eps=1e-6,
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64,
                                         beta_fast=8.0, beta_slow=0.5, mscale=1.0, mscale_all_dim=0.4, truncate=False),
                    tie_word_embeddings=True)),
}
ARCH = {"bitnet": "BitNetForCausalLM", "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


# ---------------------------------------------------------------- weights

def head_dim(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def full_config(m):
    c = dict(architectures=[ARCH[m["config"]["model_type"]]], max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
             **m["config"])
    c["dtype" if "rope_parameters" in c else "torch_dtype"] = {"f16": "float16", "f32": "float32"}.get(m["store"], "bfloat16")
    if "linear" in m:
        quant = dict(quant_method="bitnet", linear_class=m["linear"], quantization_mode=m["mode"])
        c["quantization_config"] = {k: v for k, v in quant.items() if v is not None}
    return c


def settle_off_ties(w):
    """Moves bf16 masters away from the rounding boundaries of absmean quantisation, so no summation order can flip a trit."""
    for _ in range(20):
        r = w / w.abs().mean()
        bad = ((r.abs() - 0.5).abs() < 4e-3)
        if not bad.any():
            return w
        w = torch.where(bad, w * 1.03, w).bfloat16().float()
    raise AssertionError("a weight stays on a rounding boundary")


def make_weights(m):
    """name -> (f32 values the model computes with, tensors as stored)."""
    c, g = m["config"], torch.Generator().manual_seed(1000 + m["seed"])
    d, ff, hd, v = c["hidden_size"], c["intermediate_size"], head_dim(c), c["vocab_size"]
    qd, kd = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    normal = lambda *s, std: torch.randn(*s, generator=g) * std
    norm_t = DTYPE[m.get("norm_dtype", m["store"] if m["store"] in DTYPE else "f32")]
    embed_t = DTYPE[m.get("embed_dtype", m["store"] if m["store"] in DTYPE else "bf16")]
    stored = {}

    def norm(name, n):
        stored[name + ".weight"] = (torch.rand(n, generator=g) * 1.2 + 0.4).mul(torch.where(torch.rand(n, generator=g) < 0.1, -1, 1)).to(norm_t)

    def grouped(w):  # ternary x an f16 scale for every 64 columns
        w = w.reshape(w.shape[0], -1, m["groups"])
        s = (w.abs().mean(-1, keepdim=True) * (0.7 + 0.6 * torch.rand(w.shape[0], w.shape[1], 1, generator=g))).half().float()
        return ((w / s).round().clamp(-1, 1) * s).reshape(w.shape[0], -1)

    def dense(w, dtype):
        if "groups" in m:
            w = grouped(w)
        if m.get("q8"):
            w = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(w.numpy(), Q.Q8_0), Q.Q8_0))
        assert not ("groups" in m or m.get("q8")) or torch.equal(w.to(dtype).float(), w)  # a trit times its scale fits f16
        return w.to(dtype)

    def linear(name, out, inp, gain=1.0, bias=False):
        w = normal(out, inp, std=gain * inp**-0.5)
        if m["store"] == "packed":
            s = w.abs().mean()
            t = (w / s).round().clamp(-1, 1)
            scale = (s if m["linear"] == "autobitlinear" else 1 / s).reshape(1).to(DTYPE[m["scale_dtype"]])
            stored[name + ".weight"] = pack_weights(t.clone())  # adds one in place
            stored[name + ".weight_scale"] = scale
        else:
            w = dense(w, DTYPE[m["store"]])
            stored[name + ".weight"] = settle_off_ties(w.float()).to(w.dtype) if m.get("mode") == "online" else w
        if bias:
            stored[name + ".bias"] = normal(out, std=0.3).to(DTYPE[m["store"]])

    stored["model.embed_tokens.weight"] = dense(normal(v, d, std=0.35 * min(1, 64 / d)), embed_t)
    qkv_bias = c["model_type"] == "qwen2" or c.get("attention_bias", False)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        norm(p + "input_layernorm", d)
        linear(p + "self_attn.q_proj", qd, d, 1.6, qkv_bias)
        linear(p + "self_attn.k_proj", kd, d, 1.6, qkv_bias)
        linear(p + "self_attn.v_proj", kd, d, 1.2, qkv_bias)
        linear(p + "self_attn.o_proj", d, qd, 1.2, c.get("attention_bias", False))
        if c["model_type"] == "qwen3":
            norm(p + "self_attn.q_norm", hd)
            norm(p + "self_attn.k_norm", hd)
        norm(p + "post_attention_layernorm", d)
        linear(p + "mlp.gate_proj", ff, d, 1.3, c.get("mlp_bias", False))
        linear(p + "mlp.up_proj", ff, d, 1.3, c.get("mlp_bias", False))
        linear(p + "mlp.down_proj", d, ff, 1.3, c.get("mlp_bias", False))
        if c["model_type"] == "bitnet":
            norm(p + "self_attn.attn_sub_norm", qd)
            norm(p + "mlp.ffn_sub_norm", ff)
    norm("model.norm", d)
    if not c["tie_word_embeddings"]:
        stored["lm_head.weight"] = dense(normal(v, d, std=0.35), embed_t)
    return {k: w.contiguous() for k, w in stored.items()}


def write_hf(m, stored, out):
    (out / "config.json").write_text(json.dumps(full_config(m), indent=1) + "\n")
    if m.get("shards", 1) == 1:
        save_file(stored, out / "model.safetensors", {"format": "pt"})
        return
    names, n, index = sorted(stored), m["shards"], {}
    for s in range(n):
        file = f"model-{s + 1:05}-of-{n:05}.safetensors"
        part = {k: stored[k] for k in names[s * len(names) // n:(s + 1) * len(names) // n]}
        save_file(part, out / file, {"format": "pt"})
        index.update({k: file for k in part})
    total = sum(t.numel() * t.element_size() for t in stored.values())
    (out / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=1) + "\n")


# ---------------------------------------------------------------- reference

def load(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    # Offline autobitlinear leaves embeddings (and a tied head) in their stored type; this only widens. model.float() refuses.
    model = torch.nn.Module.float(model)
    model.config.use_cache = False
    off = [n for n, t in (*model.named_parameters(), *model.named_buffers()) if t.dtype not in (torch.float32, torch.uint8)]
    assert not off, f"not f32: {off}"
    quant = getattr(model.config, "quantization_config", None)
    if quant is not None:  # quantisation must really be active
        want = AutoBitLinear if quant.linear_class == "autobitlinear" else BitLinear
        for n, x in model.named_modules():
            role = n.rsplit(".")[-1]
            if role in BITNET_ROLES:
                assert type(x) is want, (n, type(x))
                if want is AutoBitLinear:
                    assert x.online_quant == (quant.quantization_mode == "online"), n
                    if not x.online_quant:
                        assert set(x.weight.unique().tolist()) <= {-1.0, 0.0, 1.0}, n
            elif role == "lm_head":
                assert type(x) is torch.nn.Linear, type(x)
    return model


def sight_mask(n, block, dtype=torch.float32):
    """Additive [1, 1, n, n]; block 1 is causal."""
    i = torch.arange(n) // block
    return torch.zeros(n, n, dtype=dtype).masked_fill(i[:, None] < i[None, :], torch.finfo(dtype).min)[None, None]


def run(model, ids, block):
    """ids [batch, n] -> logits [batch, n, vocab]"""
    dtype = model.model.embed_tokens.weight.dtype
    return model(input_ids=ids, attention_mask=sight_mask(ids.shape[1], block, dtype), use_cache=False).logits


def run_all(model, ids, sights):
    """Logits of the same tokens under every attention mask: [masks, tokens, vocab]"""
    dtype, n = model.model.embed_tokens.weight.dtype, len(ids)
    mask = torch.cat([sight_mask(n, b, dtype) for b in sights])
    return model(input_ids=ids.expand(len(sights), n), attention_mask=mask, use_cache=False).logits


class Rounding:
    """The least distance of the quantized layers' scaled activations from a rounding boundary (n + 1/2)."""

    def __init__(self, model):
        self.seen, self.names = {}, {x: n for n, x in model.named_modules() if isinstance(x, (BitLinear, AutoBitLinear))}
        self.hooks = [x.register_forward_pre_hook(self.hook) for x in self.names]

    def hook(self, module, args):
        x = args[0].float()
        y = x * (127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5))
        self.seen[self.names[module]] = (y - y.floor() - 0.5).abs().reshape(-1, y.shape[-1]), x.reshape(y.shape[0] * y.shape[1], -1)

    def rows(self):
        """The least distance of each row of the batch, over all layers and channels."""
        return torch.stack([d.amin(-1) for d, _ in self.seen.values()]).amin(0)

    def close(self):
        [h.remove() for h in self.hooks]


def gaps(logits):
    """Best logit less the second, in units of the largest: [..., tokens]"""
    top = logits.topk(2).values
    return (top[..., 0] - top[..., 1]) / logits.abs().amax((-1, -2))[..., None]


def trits(module):
    return unpack_hf(module.weight) if isinstance(module, BitLinear) else module.weight


def settle_roundings(model, m, ids, sights, stored, target=1e-3):
    """One int8 activation that rounds the other way moves these small models' logits by 1 %, so a golden that hangs on the
    last bit of an f32 sum would test nothing. Layer by layer, moves norm weights a little, or swaps two weights of the
    row that makes a channel (which keeps the tensor's mean), until no activation is within `target` of a boundary."""
    c, watch, g = m["config"], Rounding(model), torch.Generator().manual_seed(m["seed"])
    group, hd, modules = c["num_attention_heads"] // c["num_key_value_heads"], head_dim(c), dict(model.named_modules())
    pick = lambda n: int(torch.randint(0, n, (1,), generator=g))

    def nudge(layer, role, channel):
        sub = c["model_type"] == "bitnet"
        name = {"q_proj": "input_layernorm", "gate_proj": "post_attention_layernorm",
                "o_proj": "self_attn.attn_sub_norm" if sub else "self_attn.v_proj",
                "down_proj": "mlp.ffn_sub_norm" if sub else "mlp.up_proj"}[role]
        name = f"model.layers.{layer}.{name}"
        module, row = modules[name], channel
        if "norm" in name:
            old = module.weight.data[row].clone()
            new = old * (0.95 + 0.1 * torch.rand((), generator=g))
            module.weight.data[row] = new.to(stored[name + ".weight"].dtype).float()
            return lambda: module.weight.data.index_copy_(0, torch.tensor([row]), old[None])
        if role == "o_proj":
            row = channel // hd // group * hd + channel % hd
        old, w = module.weight.data.clone(), trits(module).clone()
        i, j = pick(w.shape[1]), pick(w.shape[1])
        w[row, i], w[row, j] = w[row, j].clone(), w[row, i].clone()
        module.weight.data.copy_(pack_weights(w) if isinstance(module, BitLinear) else w)
        return lambda: module.weight.data.copy_(old)

    for layer in range(c["num_hidden_layers"]):
        for role in ("q_proj", "o_proj", "gate_proj", "down_proj"):
            name = next(n for n in watch.names.values() if n.startswith(f"model.layers.{layer}.") and n.endswith(role))

            def cost():
                run_all(model, ids, sights)
                return (1 - watch.seen[name][0] / target).clamp(min=0)

            now = cost()
            for _ in range(20000):
                bad = now.nonzero()
                if not len(bad):
                    break
                row, channel = bad[pick(len(bad))].tolist()
                if pick(4) == 0:  # the row's largest channel sets its scale
                    channel = int(watch.seen[name][1][row].abs().argmax())
                undo = nudge(layer, role, channel)
                then = cost()
                if then.sum() < now.sum():
                    now = then
                else:
                    undo()
                    cost()
            assert not now.any(), f"{name} does not settle"
    watch.close()


def settle_argmax(model, m, ids, sights, stored, target=3e-3):
    """Moves the final norm until no position's argmax is nearly a tie."""
    g, norm, dtype = torch.Generator().manual_seed(m["seed"]), model.model.norm, stored["model.norm.weight"].dtype
    cost = lambda: float((1 - gaps(run_all(model, ids, sights)) / target).clamp(min=0).sum())
    now = cost()
    for _ in range(3000):
        if now == 0:
            return
        old = norm.weight.data.clone()
        norm.weight.data = (old * (1 + 0.1 * torch.randn(old.shape, generator=g) * (torch.rand(old.shape, generator=g) < 0.2))).to(dtype).float()
        then = cost()
        if then < now:
            now = then
        else:
            norm.weight.data = old
    raise AssertionError("near ties remain")


def check_sights(model, ids, goldens):
    """The mask is really used: blocks see their own later tokens and nothing after."""
    causal = goldens[1]
    assert torch.allclose(model(input_ids=ids[None], use_cache=False).logits[0], causal, atol=1e-5 * causal.abs().max())
    for b, want in goldens.items():
        assert b == 1 or (want - causal).abs().max() > 0.05 * causal.abs().max()
        at = 2 * b - 1 if b > 1 else 37  # the last token of the second block
        other = ids.clone()
        other[at] = (other[at] + 7) % causal.shape[1]
        moved = (run(model, other[None], b)[0] - want).abs().amax(-1)
        first = at // b * b
        assert moved[:first].max() == 0, "a later block leaked"
        assert moved[first:at + 1].min() > 1e-3, "a later token of the block is not seen"


def make(name):
    m = MODELS[name]
    c, out = m["config"], HERE / "models" / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    stored = make_weights(m)
    sights = (1,) if m.get("only_gguf") else (1, *BLOCKS)
    with tempfile.TemporaryDirectory() as tmp:
        hf = Path(tmp) if m.get("only_gguf") else out
        write_hf(m, stored, hf)
        model = load(hf)
        ids = torch.randint(0, c["vocab_size"], (T_GGUF if m.get("only_gguf") else T,), generator=torch.Generator().manual_seed(m["seed"]))
        if "linear" in m:
            settle_roundings(model, m, ids, sights, stored)
        settle_argmax(model, m, ids, sights, stored)
        for part, module in model.named_modules():
            if (old := stored.get(part + ".weight")) is not None:
                stored[part + ".weight"] = pack_weights(trits(module).clone()) if old.dtype == torch.uint8 else module.weight.data.to(old.dtype)
        write_hf(m, stored, hf)
        model = load(hf)
        if m["store"] != "packed":  # what the model computes with is what was stored
            for k, t in model.state_dict().items():
                k = "model.embed_tokens.weight" if k == "lm_head.weight" and c["tie_word_embeddings"] else k
                assert torch.equal(t, stored[k].float()), k
        watch, goldens = Rounding(model), {}
        for b in sights:
            goldens[b] = run(model, ids[None], b)[0]
            assert not watch.seen or watch.rows().min() > 9e-4
        run_all(model, ids, sights)
        margin = float(watch.rows().min()) if watch.seen else None
        watch.close()
        check_sights(model, ids, goldens)
        for file, kind in m.get("gguf", {}).items():
            write_gguf(m, stored, out / file, kind)
            check_gguf(m, model, out / file)
        gap = min(float(gaps(x).min()) for x in goldens.values())
        model = model.double()  # another rounding of the same sums: how far f32 may wander
        noise = max(float((run(model, ids[None], b)[0] - x).abs().max() / x.abs().max()) for b, x in goldens.items())
    np.save(out / "tokens.npy", ids.numpy())
    for b, x in goldens.items():
        np.save(out / ("causal.npy" if b == 1 else f"blocks{b}.npy"), x.numpy())
    facts = dict(seed=m["seed"], rounding_margin=margin, argmax_gap=gap, f64_difference=noise)
    (out / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    x = goldens[1]
    print(f"{name:16} {size(out) / 1024:6.0f} KB  logits ±{x.abs().max():.1f} sd {x.std():.2f}  argmaxes {len(x.argmax(-1).unique())}, "
          f"= input {(x.argmax(-1) == ids).float().mean():.2f}", facts, flush=True)


def size(path):
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


# ---------------------------------------------------------------- GGUF

Q2_0, Q2_0_BLOCK, Q2_0_BYTES = 42, 64, 18  # newer than the gguf package: its bytes are laid out here
GGUF_NAME = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
GGUF_ROLE = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
             "self_attn.attn_sub_norm": "attn_sub_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
             "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.ffn_sub_norm": "ffn_sub_norm"}


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem in GGUF_NAME:
        return GGUF_NAME[stem] + ".weight"
    _, _, i, role = stem.split(".", 3)
    return f"blk.{i}.{GGUF_ROLE[role]}.weight"


def interleave(w, heads):
    """Rows of q or k from halves to pairs, as mainline files of the llama architecture hold them."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(w.shape)


def halves(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def pack_q2_0(w):
    w = w.reshape(w.shape[0], -1, Q2_0_BLOCK)
    d = np.abs(w).max(-1, keepdims=True)
    code = np.rint(w / np.where(d == 0, 1, d)).astype(np.int8) + 1
    code = code.astype(np.uint8).reshape(*w.shape[:2], Q2_0_BLOCK // 4, 4)
    qs = code[..., 0] | code[..., 1] << 2 | code[..., 2] << 4 | code[..., 3] << 6
    return np.concatenate([d.astype(np.float16).view(np.uint8), qs], -1).reshape(w.shape[0], -1)


def unpack_q2_0(data):
    b = data.reshape(data.shape[0], -1, Q2_0_BYTES)
    d = np.ascontiguousarray(b[..., :2]).view(np.float16).astype(np.float32)
    code = (b[..., 2:, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(*b.shape[:2], Q2_0_BLOCK)
    return ((code.astype(np.float32) - 1) * d).reshape(data.shape[0], -1)


def unpack_hf(packed):
    return torch.cat([(packed >> 2 * i & 3).float() - 1 for i in range(4)])


def tiny_vocabulary(n):
    """n tokens of a byte-level vocabulary over printable ASCII: 4 control tokens, the bytes, some merges, unused slots."""
    control = ["<|mask|>", "<|bos|>", "<|eos|>", "<|user|>"]
    chars = [chr(b) for b in range(33, 127)] + ["Ġ", "Ċ"]
    merges = ["t h", "th e", "Ġ the", "i n", "a n", "an d", "Ġ and", "o u", "y ou", "Ġ a", "Ġ w", "e r", "in g", "Ġ t", "r e", "o n"]
    tokens = control + chars + [m.replace(" ", "") for m in merges]
    assert len(tokens) <= n and len(set(tokens)) == len(tokens)
    types = [gguf.TokenType.CONTROL] * 4 + [gguf.TokenType.NORMAL] * (len(tokens) - 4)
    types += [gguf.TokenType.UNUSED] * (n - len(tokens))
    return tokens + [f"[PAD{i}]" for i in range(len(tokens), n)], types, merges


def rope_type(c):
    scaling = c.get("rope_scaling", {})
    return scaling.get("rope_type", scaling.get("type"))


def llama3_factors(c):
    """Divisors of the inverse frequencies by the llama3 rule; a llama.cpp file has these, not the rule."""
    s = c["rope_scaling"]
    inv = 1.0 / c["rope_theta"] ** (np.arange(0, head_dim(c), 2, dtype=np.float32) / head_dim(c))
    wave, old, lo, hi = 2 * np.pi / inv, s["original_max_position_embeddings"], s["low_freq_factor"], s["high_freq_factor"]
    smooth = (old / wave - lo) / (hi - lo)
    between = 1 / ((1 - smooth) / s["factor"] + smooth)
    return np.where(wave < old / hi, 1, np.where(wave > old / lo, s["factor"], between)).astype(np.float32)


def write_gguf(m, stored, path, kind):
    c = m["config"]
    # `bitnet` names the first BitNet models, with SiLU; those with squared ReLU are `bitnet-b1.58`.
    w = gguf.GGUFWriter(None, {"bitnet": "bitnet-b1.58"}.get(c["model_type"], c["model_type"]))
    w.add_type(gguf.GGUFType.MODEL)
    w.add_name(path.parent.name)
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(256)
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_key_length(head_dim(c))
    w.add_value_length(head_dim(c))
    w.add_vocab_size(c["vocab_size"])
    if c["model_type"] in ("bitnet", "llama"):
        w.add_rope_dimension_count(head_dim(c))
    if c["model_type"] == "bitnet":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(1.0)
    w.add_file_type({"TQ1_0": 36, "TQ2_0": 37, "F16": 1, "Q8_0": 7}.get(kind, 1024))
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    tokens, types, merges = tiny_vocabulary(c["vocab_size"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2" if c["model_type"] == "qwen3" else "llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_bos_token(c["model_type"] != "qwen3")
    w.add_chat_template("{{ bos_token }}{% for m in messages %}<|user|>{{ m['content'] }}{{ eos_token }}{% endfor %}")
    match rope_type(c):
        case "llama3":
            w.add_tensor("rope_freqs.weight", llama3_factors(c))
        case "linear" | "yarn" as kind_of_rope:
            w.add_rope_scaling_type(gguf.RopeScalingType(kind_of_rope))
            w.add_rope_scaling_factor(c["rope_scaling"]["factor"])
            if kind_of_rope == "yarn":
                w.add_rope_scaling_orig_ctx_len(c["rope_scaling"]["original_max_position_embeddings"])
    for name, t in stored.items():
        if name.endswith(".weight_scale"):
            continue
        if t.dtype == torch.uint8:
            t = unpack_hf(t) * stored[name + "_scale"].float()
        a = t.float().numpy()
        if c["model_type"] == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            a = interleave(a, c["num_attention_heads" if "q_proj" in name else "num_key_value_heads"])
        if a.ndim == 1:
            w.add_tensor(gguf_name(name), a)
        elif kind == "Q2_0":
            gguf.GGML_QUANT_SIZES[Q2_0] = (Q2_0_BLOCK, Q2_0_BYTES)
            w.add_tensor(gguf_name(name), pack_q2_0(a), raw_dtype=Q2_0)
        else:
            q = Q.F16 if kind.startswith("TQ") and "embed" in name else Q[kind]
            w.add_tensor(gguf_name(name), np.ascontiguousarray(gguf.quants.quantize(a, q)), raw_dtype=q)
    w.write_header_to_file(path)
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def check_gguf(m, model, path):
    """Reads the file back with the package's own dequantisation: the very numbers the reference computed with."""
    c, have = m["config"], {}
    if "Q2_0" in m["gguf"].values():
        have = read_gguf_q2_0(path.read_bytes())
    else:
        for t in gguf.GGUFReader(path).tensors:
            have[t.name] = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(t.shape[::-1])
    modules, n = dict(model.named_modules()), 0
    for name, p in model.state_dict().items():
        if name.endswith("weight_scale") or (name == "lm_head.weight" and c["tie_word_embeddings"]):
            continue
        got = have[gguf_name(name)]
        if c["model_type"] == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            got = halves(got, c["num_attention_heads" if "q_proj" in name else "num_key_value_heads"])
        module = modules[name.rsplit(".", 1)[0]]
        want = p * module.weight_scale if isinstance(module, AutoBitLinear) else p
        assert np.array_equal(got, want.numpy()), name
        n += 1
    assert n == len(have) - ("rope_freqs.weight" in have)
    if rope_type(c) == "llama3":
        inv = 1.0 / c["rope_theta"] ** (np.arange(0, head_dim(c), 2, dtype=np.float32) / head_dim(c))
        assert np.allclose(inv / have["rope_freqs.weight"], model.model.rotary_emb.inv_freq.numpy(), rtol=1e-6)


class ReaderWithQ2_0(gguf.GGUFReader):
    """GGUFReader keeps to the types it knows; this one reads the tensor table of a file with type 42 by hand."""

    def _build_tensors(self, start_offs, fields):
        self.table = [([int(x) for x in f.parts[3][::-1]], int(f.parts[4][0]), start_offs + int(f.parts[5][0]), f.name) for f in fields]
        self.tensors = []


def read_gguf_q2_0(raw):
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        f.write(raw)
        f.flush()
        have = {}
        for shape, kind, at, name in ReaderWithQ2_0(f.name).table:
            count = int(np.prod(shape))
            if kind == Q2_0:
                n = count // Q2_0_BLOCK * Q2_0_BYTES
                have[name] = unpack_q2_0(np.frombuffer(raw, np.uint8, n, at).reshape(shape[0], -1))
            else:
                assert kind == Q.F32, (name, kind)
                have[name] = np.frombuffer(raw, np.float32, count, at).reshape(shape)
        return have


# ---------------------------------------------------------------- the larger witness

# Of these the greedy text counts that is surest of its tokens, among those that no rounding tips.
PILOT_MESSAGES = ["Tell me a story about an owl and a lamp.", "Tell me a story about a fox named Pip.",
                  "Tell me a story about Mia and a lost kite.", "Tell me a story about a boat.",
                  "Tell me a story about a fox.", "Tell me a story about a bear named Otto."]


def pilot(path):
    out, model, tok = HERE / "pilot", load(path), AutoTokenizer.from_pretrained(path)
    out.mkdir(exist_ok=True)
    watch, g = Rounding(model), torch.Generator().manual_seed(60)
    ids = torch.tensor([1])
    for _ in range(59):  # likely next tokens, of which the one whose activations stay farthest from a rounding boundary
        logits = model(input_ids=ids[None], use_cache=False).logits[0, -1]
        likely = torch.multinomial(logits.softmax(-1), 48, generator=g).unique()
        cand = torch.cat([ids.expand(len(likely), -1), likely[:, None]], 1)
        last = model(input_ids=cand, use_cache=False).logits[:, -1:]
        score = torch.minimum(watch.rows().reshape(len(cand), -1)[:, -1] / 3e-4, gaps(last)[:, 0] / 2e-3)
        ids = cand[int(score.argmax())]
    logits = model(input_ids=ids[None], use_cache=False).logits[0]
    least = float(watch.rows().min())
    np.save(out / "tokens.npy", ids.numpy())
    np.save(out / "causal.npy", logits.numpy())
    facts = dict(tokens_rounding_margin=least, tokens_argmax_gap=float(gaps(logits[None])[0].min()))
    told = [told_by(model, tok, message) for message in PILOT_MESSAGES]
    wide = model.double()
    noise = (wide(input_ids=ids[None], use_cache=False).logits[0] - logits).abs().max() / logits.abs().max()
    # A text that neither the cache nor twice the bits change: no rounding tips it.
    steady = [t for t in told if all(torch.equal(t.seq[t.prompt:], again[t.prompt - 1:-1].argmax(-1))
                                     for again in (t.again, wide(input_ids=t.seq[None], use_cache=False).logits[0]))]
    assert steady, "a rounding tips every greedy text: transformers does not agree with itself"
    chosen = max(steady, key=lambda t: t.gap)
    prompt, continuation = chosen.seq[:chosen.prompt], chosen.seq[chosen.prompt:]
    (out / "greedy.json").write_text(json.dumps(dict(message=chosen.message, prompt=prompt.tolist(), continuation=continuation.tolist(),
                                                     text=tok.decode(continuation))) + "\n")
    facts |= dict(greedy_rounding_margin=chosen.margin, greedy_argmax_gap=chosen.gap, f64_difference=float(noise))
    (out / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(facts, tok.decode(ids), tok.decode(chosen.seq), f"{len(steady)} of {len(told)} texts are steady", sep="\n")


class Told(typing.NamedTuple):
    """A greedy text: the message, how many tokens its prompt has, all tokens, what a pass without a cache gives for
    them, and how near that comes to a rounding boundary and to another token."""
    message: str
    prompt: int
    seq: torch.Tensor
    again: torch.Tensor
    margin: float
    gap: float


def told_by(model, tok, message):
    prompt = tok.apply_chat_template([dict(role="user", content=message)], tokenize=True, return_dict=True)["input_ids"]
    seq = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=64, use_cache=True)[0]
    watch = Rounding(model)
    again = model(input_ids=seq[None], use_cache=False).logits[0]
    margin = float(watch.rows().min())
    watch.close()
    return Told(message, len(prompt), seq, again, margin, float(gaps(again[None])[0, len(prompt) - 1:-1].min()))


def hidden(name):
    """The output of the final norm for the same tokens, causal."""
    path = HERE / "models" / name
    ids = torch.tensor(np.load(path / "tokens.npy"))[None]
    np.save(path / "hidden.npy", load(path).model(input_ids=ids, use_cache=False).last_hidden_state[0].numpy())


def main():
    match sys.argv[1:]:
        case ["make", *names]:
            for name in names or MODELS:
                make(name)
            for name in [name for name in names or MODELS if not name.startswith("gguf")]:
                hidden(name)
            print(f"{size(HERE) / 1e6:.2f} MB in all")
        case ["logits", path, ids, out]:
            ids = torch.tensor([[int(i) for i in ids.split(",")]])
            np.save(out, load(path)(input_ids=ids, use_cache=False).logits[0].numpy())
        case ["hidden", *names]:
            for name in names:
                hidden(name)
        case ["pilot", path]:
            pilot(path)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
