"""Makes a small trained Nemotron-Labs-Diffusion, and what a plain reference without caches computes with it.

    python nemotron.py train   the weights, into models/nemotron (JAX, two minutes)
    python nemotron.py golden  logits and decodings of these weights, next to them (NumPy alone, f64)

The reference is written from the description of the family: committed tokens are causal, a block's rows see all
committed tokens and each other, blocks begin at the prompt's end. It computes every pass from the whole text.
README.md says what the files hold.
"""
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent / "models" / "nemotron"
UNK, BOS, EOS, PAD, MASK = range(5)
CHARS = "abcdefghijklmnopqrstuvwxyz .,!?'-0123456789:;"
VOCAB, HIDDEN, FF, LAYERS, HEADS, KV, DIM, BLOCK = 64, 48, 112, 3, 4, 2, 16, 8
THETA, FACTOR, ORIGINAL, BETA_FAST, BETA_SLOW, BETA, EPS = 1e4, 16.0, 32, 8.0, 0.25, 0.1, 1e-5
RANK, ALPHA = 4, 16
# f of the rules that have a threshold and a factor.
FACTORS = 2
IDS = {c: 5 + i for i, c in enumerate(CHARS)}


def encode(text):
    return [IDS[c] for c in text]


# ---------------------------------------------------------------- text

def story(rng):
    """Three sentences, the second of which repeats words of the first."""
    pick = lambda words: words[rng.integers(len(words))]
    name, verb = pick(["anna", "ben", "cleo", "dan"]), pick(["sees", "likes", "helps", "paints"])
    thing = pick(["the red cat", "a blue bird", "the old tree", "a small boat"])
    end = pick(["it is late.", "the sun sets.", "we go home."])
    return f"{name} {verb} {thing}. {thing} {verb} {name}. {end}"


def batch(rng, count, length):
    """Stories one after the other, each ended by EOS."""
    rows = np.zeros((count, length + 1), np.int64)
    for row in rows:
        ids = []
        while len(ids) < 2 * length + 1:
            ids += [BOS, *encode(story(rng)), EOS]
        at = rng.integers(length) if rng.random() < 0.5 else 0
        row[:] = ids[at:at + length + 1]
    return rows[:, :length]


# ---------------------------------------------------------------- model

def frequencies(theta=THETA, factor=FACTOR, original=ORIGINAL, fast=BETA_FAST, slow=BETA_SLOW, dim=DIM):
    """Radians of a position for each pair of columns: YaRN."""
    pair = np.arange(dim // 2)
    plain = theta ** (-2.0 * pair / dim)
    bound = lambda turns: dim * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(theta))
    low, high = max(np.floor(bound(fast)), 0), min(np.ceil(bound(slow)), dim - 1)
    ramp = np.clip((pair - low) / max(high - low, 0.001), 0, 1)
    return plain / factor * ramp + plain * (1 - ramp)


def forward(xp, w, tokens, sees, lora=None, radians=None, scaled=True, positions=None):
    """Logits of all rows. `sees[i, j]` is true where row i attends to row j; `lora` is 1 for rows with the adapter."""
    positions = xp.arange(len(tokens)) if positions is None else positions
    radians = frequencies() if radians is None else radians
    angle = positions[:, None] * radians[None]
    cos, sin = xp.cos(angle)[:, None], xp.sin(angle)[:, None]
    grow = 1 + BETA * xp.log1p(positions // ORIGINAL) if scaled else xp.ones(len(tokens))

    def norm(x, g):
        return x / xp.sqrt((x * x).mean(-1, keepdims=True) + EPS) * g

    def rope(x):
        a, b = x[..., :DIM // 2], x[..., DIM // 2:]
        return xp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x = w["encoder.embed_tokens.weight"][tokens]
    for i in range(LAYERS):
        p = f"encoder.layers.{i}."
        m = lambda name: w[p + name + ".weight"]
        y = norm(x, m("input_layernorm"))
        q = rope((y @ m("self_attn.q_proj").T).reshape(-1, HEADS, DIM)) * grow[:, None, None]
        k = rope((y @ m("self_attn.k_proj").T).reshape(-1, KV, DIM))
        v = (y @ m("self_attn.v_proj").T).reshape(-1, KV, DIM)
        k, v = xp.repeat(k, HEADS // KV, 1), xp.repeat(v, HEADS // KV, 1)
        score = xp.einsum("ihd,jhd->hij", q, k) / np.sqrt(DIM)
        score = xp.where(sees[None], score, -1e30)
        score = xp.exp(score - score.max(-1, keepdims=True))
        a = xp.einsum("hij,jhd->ihd", score / score.sum(-1, keepdims=True), v).reshape(-1, HEADS * DIM)
        o = a @ m("self_attn.o_proj").T
        if lora is not None:
            down, up = w[f"lora.{i}.A"], w[f"lora.{i}.B"]
            o = o + lora[:, None] * (ALPHA / RANK) * (a @ down.T @ up.T)
        x = x + o
        y = norm(x, m("post_attention_layernorm"))
        gate = y @ m("mlp.gate_proj").T
        x = x + (gate / (1 + xp.exp(-gate)) * (y @ m("mlp.up_proj").T)) @ m("mlp.down_proj").T
    return norm(x, w["encoder.norm.weight"]) @ w["diffusion_head.weight"].T


def initial(rng):
    w = {}
    mat = lambda name, out, inp, gain=1.0: w.update({name + ".weight": rng.normal(size=(out, inp)) * gain * inp**-0.5})
    mat("encoder.embed_tokens", VOCAB, HIDDEN, 3.0)
    mat("diffusion_head", VOCAB, HIDDEN)
    for i in range(LAYERS):
        p = f"encoder.layers.{i}."
        for name, out, inp in [("self_attn.q_proj", HEADS * DIM, HIDDEN), ("self_attn.k_proj", KV * DIM, HIDDEN),
                               ("self_attn.v_proj", KV * DIM, HIDDEN), ("self_attn.o_proj", HIDDEN, HEADS * DIM),
                               ("mlp.gate_proj", FF, HIDDEN), ("mlp.up_proj", FF, HIDDEN), ("mlp.down_proj", HIDDEN, FF)]:
            mat(p + name, out, inp)
        for name in ("input_layernorm", "post_attention_layernorm"):
            w[p + name + ".weight"] = np.ones(HIDDEN)
        w[f"lora.{i}.A"] = rng.normal(size=(RANK, HEADS * DIM)) * (HEADS * DIM) ** -0.5
        w[f"lora.{i}.B"] = np.zeros((HIDDEN, RANK))
    w["encoder.norm.weight"] = np.ones(HIDDEN)
    return w


# ---------------------------------------------------------------- training

def train(seconds=(90, 30), length=64, count=24):
    import time
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(7)
    w = {name: jnp.asarray(value, jnp.float32) for name, value in initial(rng).items()}

    def views(ids):
        """Noisy and clean copies of each text: tokens, who sees whom, positions, which rows count."""
        start = rng.integers(4, 12, len(ids))
        at = np.arange(length)
        block = np.where(at[None] < start[:, None], -1, (at[None] - start[:, None]) // BLOCK)
        first = (at[None] - start[:, None]) % BLOCK == 0
        masked = (rng.random(ids.shape) < rng.random((len(ids), 1))) | (rng.random((len(ids), 1)) < 0.3)
        masked &= (block >= 0) & ~first
        noisy = np.where(masked, MASK, ids)
        tokens = np.concatenate([noisy, ids], 1)
        n, clean = np.zeros((len(ids), 2 * length, 2 * length), bool), np.tril(np.ones((length, length), bool))
        n[:, :length, :length] = (block[:, :, None] == block[:, None]) & (block[:, :, None] >= 0)
        before = np.where(block >= 0, start[:, None] + block * BLOCK, 1)
        n[:, :length, length:] = at[None, None] < before[:, :, None]
        n[:, length:, length:] = clean
        return tokens, n, np.tile(at, 2), masked

    def loss(w, frozen, ids, tokens, sees, positions, masked, lora):
        w = {**frozen, **w}
        logits = jax.vmap(lambda t, s: forward(jnp, w, t, s, lora, positions=positions))(tokens, sees)
        logp = jax.nn.log_softmax(logits)
        noisy = jnp.take_along_axis(logp[:, :length], ids[..., None], -1)[..., 0]
        causal = jnp.take_along_axis(logp[:, length:-1], ids[:, 1:, None], -1)[..., 0]
        return -(noisy * masked).sum() / masked.sum() - causal.mean()

    def run(names, budget, lora, rate):
        part, rest = {n: w[n] for n in names}, {n: v for n, v in w.items() if n not in names}
        mean = {n: jnp.zeros_like(v) for n, v in part.items()}
        square = dict(mean)

        @jax.jit
        def update(part, mean, square, step, rate, data):
            value, grads = jax.value_and_grad(loss)(part, rest, *data, lora)
            for n, g in grads.items():
                mean = {**mean, n: 0.9 * mean[n] + 0.1 * g}
                square = {**square, n: 0.99 * square[n] + 0.01 * g * g}
                up = mean[n] / (1 - 0.9**step) / (jnp.sqrt(square[n] / (1 - 0.99**step)) + 1e-8)
                part = {**part, n: part[n] - rate * up}
            return value, part, mean, square

        begin, step, value = time.time(), 0, 0.0
        while time.time() - begin < budget:
            ids = batch(rng, count, length)
            step += 1
            left = max(0.02, 1 - (time.time() - begin) / budget)
            value, part, mean, square = update(part, mean, square, step, rate * left, (ids, *views(ids)))
            if step % 200 == 0:
                print(step, float(value), flush=True)
        w.update(part)

    base = [n for n in w if not n.startswith("lora")]
    run(base, seconds[0], None, 4e-3)
    run([n for n in w if n.startswith("lora")], seconds[1], jnp.concatenate([jnp.ones(length), jnp.zeros(length)]), 4e-3)
    write({name: np.asarray(value) for name, value in w.items()})


# ---------------------------------------------------------------- files

def halves(values):
    """bf16 as u16, half to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        part = halves(values).tobytes()
        header[name] = dict(dtype="BF16", shape=list(values.shape), data_offsets=[len(data), len(data) + len(part)])
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        begin, end = entry["data_offsets"]
        bits = np.frombuffer(raw[8 + size + begin:8 + size + end], np.uint16).astype(np.uint32) << 16
        tensors[name] = bits.view(np.float32).astype(np.float64).reshape(entry["shape"])
    return tensors


def write_json(name, value):
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def adapter_name(layer, side):
    return f"base_model.model.encoder.layers.{layer}.self_attn.o_proj.lora_{side}.weight"


def write(w):
    write_json("config.json", dict(
        architectures=["NemotronLabsDiffusionModel"], model_type="nemotron_labs_diffusion", vocab_size=VOCAB,
        hidden_size=HIDDEN, intermediate_size=FF, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV, head_dim=DIM, hidden_act="silu", rms_norm_eps=EPS, tie_word_embeddings=False,
        attention_bias=False, mlp_bias=False, max_position_embeddings=int(FACTOR * ORIGINAL), bos_token_id=BOS,
        eos_token_id=EOS, mask_token_id=MASK, block_size=BLOCK, dlm_paradigm="bidirectional", torch_dtype="bfloat16",
        sliding_window=None,
        rope_parameters=dict(rope_type="yarn", rope_theta=THETA, factor=FACTOR, original_max_position_embeddings=ORIGINAL,
                             beta_fast=BETA_FAST, beta_slow=BETA_SLOW, mscale=1.0, mscale_all_dim=1.0,
                             llama_4_scaling_beta=BETA)))
    special = ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]
    vocab = {token: i for i, token in enumerate(special)} | IDS
    write_json("tokenizer.json", dict(
        version="1.0", truncation=None, padding=None, normalizer=None, pre_tokenizer=None, post_processor=None,
        added_tokens=[dict(id=i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
                      for i, t in enumerate(special)],
        decoder=dict(type="Fuse"),
        model=dict(type="BPE", dropout=None, unk_token="<unk>", continuing_subword_prefix=None, end_of_word_suffix=None,
                   fuse_unk=False, byte_fallback=False, ignore_merges=False, vocab=vocab, merges=[])))
    write_json("tokenizer_config.json", dict(
        bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>",
        chat_template="{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"))
    write_json("generation_config.json", dict(bos_token_id=BOS, eos_token_id=EOS))
    base = {n: v for n, v in w.items() if not n.startswith("lora")}
    # What files hold and nobody reads.
    extra = {f"encoder.layers.0.self_attn.{side}_scale": np.ones(1) for side in "kv"}
    safetensors(HERE / "model.safetensors", base | extra | {"encoder.rotary_emb.inv_freq": np.ones(DIM // 2)})
    write_json("linear_spec_lora/adapter_config.json", dict(
        peft_type="LORA", r=RANK, lora_alpha=ALPHA, target_modules=["o_proj"], bias="none", use_rslora=False, fan_in_fan_out=False))
    safetensors(HERE / "linear_spec_lora" / "adapter_model.safetensors",
                {adapter_name(i, side): w[f"lora.{i}.{side}"] for i in range(LAYERS) for side in "AB"})


def weights():
    w = read(HERE / "model.safetensors")
    adapter = read(HERE / "linear_spec_lora" / "adapter_model.safetensors")
    return w | {f"lora.{i}.{side}": adapter[adapter_name(i, side)] for i in range(LAYERS) for side in "AB"}


# ---------------------------------------------------------------- decoding

class Reference:
    """Decodes from the whole text in every pass. `gap` is the smallest distance to another decision."""

    def __init__(self, w):
        self.w, self.gap = w, np.inf

    def rows(self, committed, block=(), lora=False, causal=False):
        """Logits of all rows: committed tokens are causal, the block's rows see everything."""
        tokens = np.array([*committed, *block])
        sees = np.tril(np.ones((len(tokens),) * 2, bool))
        if not causal:
            sees[len(committed):] = True
        flags = np.r_[np.zeros(len(committed)), np.ones(len(block))] if lora else None
        return forward(np, self.w, tokens, sees, flags)

    def best(self, logits):
        """The most likely token except MASK, and its probability."""
        logits = logits.copy()
        logits[MASK] = -np.inf
        p = np.exp(logits - logits.max())
        p /= p.sum()
        order = np.sort(p)
        self.gap = min(self.gap, np.log(order[-1] / order[-2]))
        return int(p.argmax()), float(p.max())

    def choose(self, probabilities, rule, value):
        """Which slots a pass fills: the best one, and the others that the rule allows."""
        order = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])
        p = [probabilities[i] for i in order]
        if rule == "fixed":
            # Equally sure slots beyond the limit would be a matter of rounding.
            if value < len(p):
                self.gap = min(self.gap, p[value - 1] - p[value])
            return order[:value]
        if rule != "threshold":
            ranked = [1 - FACTORS / (rank + 2) for rank in range(len(p))]
            fits = {
                "threshold_factor": lambda rank: min(p[rank] - value, p[rank] - ranked[rank]),
                "threshold_or_factor": lambda rank: max(p[rank] - value, min(p[rank] - 0.45, p[rank] - ranked[rank])),
                "product": lambda rank: float(np.prod(p[:rank + 1])) - value,
            }[rule]
            margins = [fits(rank) for rank in range(len(p))]
            self.gap = min(self.gap, min(abs(m) for m in margins))
            if len(p) > 1:
                self.gap = min(self.gap, min(abs(a - b) for a, b in zip(p, p[1:])))
            count = next((rank for rank, margin in enumerate(margins) if margin < 0), len(p))
            return order[:max(1, count)]
        self.gap = min(self.gap, min(abs(x - value) for x in p))
        if len(p) > 1 and p[0] < value:
            self.gap = min(self.gap, p[0] - p[1])
        return [i for rank, i in enumerate(order) if rank == 0 or p[rank] >= value]

    def ar(self, prompt, most):
        text = list(prompt)
        while len(text) < len(prompt) + most:
            text.append(self.best(self.rows(text)[-1])[0])
            if text[-1] == EOS:
                break
        return text[len(prompt):]

    def iterative(self, prompt, most, rule, value):
        text, passes = list(prompt), []
        while len(text) < len(prompt) + most:
            size = min(BLOCK, len(prompt) + most - len(text))
            block = [self.best(self.rows(text, causal=True)[-1])[0]] + [MASK] * (size - 1)
            while MASK in block:
                passes.append(list(block))
                logits = self.rows(text, block)[len(text):]
                slots = [i for i, token in enumerate(block) if token == MASK]
                found = [self.best(logits[i]) for i in slots]
                for chosen in self.choose([p for _, p in found], rule, value):
                    block[slots[chosen]] = found[chosen][0]
            text += block
            if EOS in block:
                break
        out = text[len(prompt):]
        return passes, out[:out.index(EOS) + 1] if EOS in out else out

    def speculative(self, prompt, most, window, lora):
        """Linear self-speculation: the verified blocks, and the text."""
        text, rounds = list(prompt), []
        text.append(self.best(self.rows(text)[-1])[0])
        ends = lambda: len(text) == len(prompt) + most or text[-1] == EOS
        while not ends():
            size = min(window, len(prompt) + most - len(text))
            block = [text[-1]] + [MASK] * (size - 1)
            if size > 1:
                logits = self.rows(text[:-1], block, lora)[len(text) - 1:]
                block[1:] = [self.best(row)[0] for row in logits[1:]]
            logits = self.rows(text[:-1] + block, causal=True)[len(text) - 1:]
            taken = 0
            while taken < size and not ends():
                text.append(self.best(logits[taken])[0])
                taken += 1
                if taken < size and block[taken] != text[-1]:
                    break
            rounds.append(dict(block=block, taken=taken))
        return rounds, text[len(prompt):]


def golden():
    w = weights()
    rng = np.random.default_rng(3)
    tokens = [BOS, *encode(story(rng)), EOS, BOS, *encode(story(rng)), EOS]
    tokens = tokens[:100]
    np.save(HERE / "tokens.npy", np.array(tokens))
    reference = Reference(w)
    causal = reference.rows(tokens, causal=True)
    np.save(HERE / "causal.npy", causal.astype(np.float32))
    # A block in the middle of a text, off every grid, of which some slots are known.
    prompt, block = tokens[:45], [tokens[45], MASK, MASK, tokens[48], MASK, MASK, MASK, MASK]
    save = lambda name, rows: np.save(HERE / name, rows[len(prompt):].astype(np.float32))
    right = reference.rows(prompt, block)
    save("block.npy", right)
    adapted = reference.rows(prompt, block, lora=True)
    save("block_lora.npy", adapted)
    off = lambda a, b: float(np.abs(a - b).max() / np.abs(b).max())
    late = slice(len(prompt), None)
    sees = np.tril(np.ones((len(prompt) + BLOCK,) * 2, bool))
    ids, open_end = np.array(prompt + block), sees.copy()
    open_end[len(prompt):] = True
    grid = open_end.copy()
    for i in range(len(prompt)):
        grid[i, :min((i // BLOCK + 1) * BLOCK, len(prompt))] = True
    plain = THETA ** (-2.0 * np.arange(DIM // 2) / DIM)
    mistakes = dict(
        no_yarn=forward(np, w, ids, open_end, radians=plain), block_causal_prompt=forward(np, w, ids, grid),
        causal_block=forward(np, w, ids, sees), unscaled_queries=forward(np, w, ids, open_end, scaled=False))
    facts = {name: off(rows[late], right[late]) for name, rows in mistakes.items()}
    facts["no_adapter"] = off(right[late], adapted[late])

    texts = ["anna likes the red", "ben sees a blue bird. a blue", "cleo paints the old tree. the old tree paints cleo. it", "dan "]
    cases, skipped = [], 0
    for prompt in [[BOS, *encode(text)] for text in texts] + [[BOS], tokens[:61]]:
        for most in (1, 5, 8, 29, 70):
            ar = Reference(w)
            case = dict(prompt=prompt, max_tokens=most, ar=ar.ar(prompt, most), iterative=[], speculative=[])
            skipped += ar.gap < 1e-3
            if ar.gap < 1e-3:
                continue
            rules = [("threshold", t) for t in (0.3, 0.6, 0.9, 0.99, 1.0)] + [("fixed", n) for n in (1, 3)]
            rules += [("threshold_factor", 0.6), ("threshold_or_factor", 0.9), ("product", 0.5), ("product", 0.9)]
            for rule, value in rules:
                r = Reference(w)
                passes, out = r.iterative(prompt, most, rule, value)
                skipped += r.gap < 1e-6
                if r.gap >= 1e-6:
                    case["iterative"].append(dict(rule=rule, value=value, passes=passes, output=out))
            for window, lora in ((8, False), (8, True), (4, True)):
                r = Reference(w)
                rounds, out = r.speculative(prompt, most, window, lora)
                assert out == case["ar"], (out, case["ar"])
                case["speculative"].append(dict(window=window, lora=lora, rounds=rounds))
            cases.append(case)
    (HERE / "decodings.json").write_text(json.dumps(cases) + "\n")
    tokens_of = lambda runs: sum(len(r["output"]) for r in runs) / max(1, sum(len(r["passes"]) for r in runs))
    by = {}
    for case in cases:
        for run in case["iterative"]:
            by.setdefault(f"{run['rule']} {run['value']}", []).append(run)
    facts["tokens_a_pass"] = {name: round(tokens_of(runs), 2) for name, runs in by.items()}
    drafts = {}
    for case in cases:
        for run in case["speculative"]:
            drafts.setdefault(f"{run['window']} {'adapter' if run['lora'] else 'plain'}", []).extend(run["rounds"])
    facts["tokens_a_round"] = {n: round(sum(r["taken"] for r in rounds) / len(rounds), 2) for n, rounds in drafts.items()}
    facts["cases"], facts["skipped"] = len(cases), int(skipped)
    write_json("facts.json", facts)
    print(json.dumps(facts, indent=1))
    print(repr("".join({v: k for k, v in IDS.items()}.get(t, "|") for t in cases[0]["ar"])))


if __name__ == "__main__":
    {"train": train, "golden": golden}[sys.argv[1]]()
