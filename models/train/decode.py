"""Decoding in PyTorch, one text at a time: the reference that `wf-run` is compared with."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from model import LM
from noise import DRAFT, SUB_BLOCK
from tokens import EOS, MASK

from bitnet.ternary import eight_bits, ternary


class Frozen(torch.nn.Module):
    """A BitLinear whose ternary values are taken once."""

    def __init__(self, linear):
        super().__init__()
        self.values, self.scale = ternary(linear.weight.detach())

    def forward(self, x):
        scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
        return F.linear((x * scale).round().clamp(-128, 127), self.values) * (self.scale / scale)


def freeze(model: LM) -> LM:
    """The model for decoding alone: in f32, with the embedding that an export has."""
    model.dtype = torch.float32
    model.embedding.weight.data = eight_bits(model.embedding.weight.data)
    for layer in model.layers:
        layer.dtype = torch.float32
        for name in ("qkv", "o", "gate_up", "down"):
            setattr(layer, name, Frozen(getattr(layer, name)))
    return model.eval()


class Cache:
    """A text's keys and values, and the model that makes them."""

    def __init__(self, model: LM):
        self.model, self.kept, self.passes = model, [], 0

    def __len__(self):
        return self.kept[0][0].shape[2] if self.kept else 0

    @torch.no_grad()
    def forward(self, ids, causal: bool, keep: bool):
        """Logits [T, vocab] after what is kept, for tokens that see each other or look back."""
        model, past, count = self.model, len(self), len(ids)
        self.passes += 1
        place = torch.arange(past, past + count)
        cos, sin = model.cos[place], model.sin[place]
        x = model.embedding(torch.tensor([ids]))
        mask = torch.zeros(count, past + count)
        if causal:
            mask[:, past:].fill_(-torch.inf).triu_(1)
        kept = []
        for number, layer in enumerate(model.layers):
            q, k, v = layer.project(x, cos, sin)
            if self.kept:
                old_k, old_v = self.kept[number]
                k, v = torch.cat([old_k, k], 2), torch.cat([old_v, v], 2)
            share = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + mask).softmax(-1)
            x = layer.finish(x, share @ v)
            kept.append((k, v))
        if keep:
            self.kept = kept
        return model.head(x)[0]

    def cut(self, length: int):
        self.kept = [(k[:, :, :length], v[:, :, :length]) for k, v in self.kept]


@dataclass
class Answer:
    """Decoded ids, without what ends them; passes of the model after the prompt's."""
    ids: list
    passes: int
    accepted: list  # of each draft


def choose(logits, temperature: float, g) -> int:
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=g))


def ar(model: LM, prompt, limit: int, temperature: float = 0.0, seed: int = 0) -> Answer:
    """One token a pass."""
    cache, out, g = Cache(model), [], torch.Generator().manual_seed(seed)
    logits = cache.forward(prompt, True, True)
    while len(out) < limit:
        token = choose(logits[-1], temperature, g)
        if token == EOS:
            break
        out.append(token)
        logits = cache.forward([token], True, True)
    return Answer(out, cache.passes - 1, [])


def verify(model: LM, prompt, limit: int) -> Answer:
    """`ar`'s text, drafted by a noisy pass and checked by a causal one."""
    cache, out, accepted = Cache(model), [], []
    token = int(cache.forward(prompt, True, True)[-1].argmax())
    while token != EOS and len(out) < limit:
        out.append(token)
        logits = cache.forward([token] + [MASK] * DRAFT, False, False)[:-1]
        logits[:, MASK] = -torch.inf
        draft, length = logits.argmax(-1).tolist(), len(cache)
        said = cache.forward([token, *draft], True, True).argmax(-1).tolist()
        count = next((i for i, (a, b) in enumerate(zip(draft, said)) if a != b), DRAFT)
        accepted.append(count)
        if EOS in draft[:count]:
            out += draft[:draft.index(EOS)]
            break
        out += draft[:count]
        token = said[count]
        cache.cut(length + 1 + count)
    return Answer(out[:limit], cache.passes - 1, accepted)


def unmask(cache: Cache, block: list, scope: range, threshold: float):
    """A pass that fills the masked slots of the scope that it is sure of, and the surest."""
    logits = cache.forward(block, False, False)
    logits[:, MASK] = -torch.inf
    sure, token = logits.softmax(-1).max(-1)
    slots = [slot for slot in scope if block[slot] == MASK]
    best = max(slots, key=lambda slot: sure[slot - 1])
    for slot in slots:
        if slot == best or sure[slot - 1] > threshold:
            block[slot] = int(token[slot - 1])


def iterative(model: LM, prompt, limit: int, threshold: float = 0.9) -> Answer:
    """Block diffusion, sub-block after sub-block. A threshold of 0 takes all slots at once."""
    size, cache = model.config.block, Cache(model)
    whole = len(prompt) // size * size
    sub = SUB_BLOCK if threshold > 0 else size
    out, known = [], list(prompt[whole:])
    logits = cache.forward(prompt[:whole], True, True) if whole else None
    cache.passes = 0
    while len(out) < limit:
        if not known:
            known = [int(logits[-1].argmax())]
            out += known
        block, old = known + [MASK] * (size - len(known)), len(known)
        while MASK in block and EOS not in out:
            first = block.index(MASK) // sub * sub
            unmask(cache, block, range(first, first + sub), threshold)
            end = block.index(MASK) if MASK in block else size
            out += block[old:end]
            old = max(old, end)
        if EOS in out:
            return Answer(out[:out.index(EOS)], cache.passes, [])
        logits, known = cache.forward(block, True, True), []
    return Answer(out[:limit], cache.passes, [])
