"""BitNet b1.58 as `transformers` runs it: RMS norms, rotary positions, gated ReLU², norms before the
output and down projections, ternary weights and 8-bit activations, head tied to the embedding.

Training sees a clean stream, causal inside its conversations, and noisy pieces, which see the clean
tokens before them and themselves. One set of weights so learns to continue and to fill in. Matrix
products run in bf16, where ternary weights and 8-bit activations are exact; sums are f32.
"""
import torch
import torch.nn.functional as F
from torch import nn

from presets import Model
from tokens import BOS

from bitnet.ternary import bit_linear, norm

POSITIONS = 2048  # of the table of angles
STRIDE = 128


class BitLinear(nn.Linear):
    """A ternary matrix and 8-bit activations."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, bias=False)
        nn.init.normal_(self.weight, std=0.8 * inputs**-0.5)

    def forward(self, x):
        return bit_linear(x, self.weight)


class Layer(nn.Module):
    dtype = torch.bfloat16  # of attention's products

    def __init__(self, c: Model):
        super().__init__()
        self.heads = c.heads
        self.input_norm, self.post_norm = (nn.Parameter(torch.ones(c.hidden)) for _ in range(2))
        self.attention_norm = nn.Parameter(torch.ones(c.hidden))
        self.ff_norm = nn.Parameter(torch.ones(c.ff))
        self.qkv, self.o = BitLinear(c.hidden, 3 * c.hidden), BitLinear(c.hidden, c.hidden)
        self.gate_up, self.down = BitLinear(c.hidden, 2 * c.ff), BitLinear(c.ff, c.hidden)

    def project(self, x, cos, sin):
        """Queries, keys and values [B, heads, T, 64] in bf16; `cos` and `sin` are [B, 1, T, 32]."""
        batch, length, _ = x.shape
        parts = self.qkv(norm(x, self.input_norm)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)

        def turn(t):
            a, b = t.float().chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(self.dtype)

        return turn(q), turn(k), v

    def finish(self, x, attended):
        """The layer's output, from what its heads attended to."""
        attended = attended.transpose(1, 2).flatten(2)
        x = x + self.o(norm(attended, self.attention_norm))
        gate, up = self.gate_up(norm(x, self.post_norm)).chunk(2, -1)
        return x + self.down(norm(F.relu(gate).square() * up, self.ff_norm))


def scores(q, k):
    return (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5


def attend(q, k, v, mask):
    """Plain bf16 products: on CPUs with AMX faster than the fused kernel."""
    return (scores(q, k) + mask).softmax(-1).to(v.dtype) @ v


def attend_clean(q, k, v, mask):
    """Causal attention in strides of queries, which need not look at what comes after them."""
    spans = [(end - STRIDE, end) for end in range(STRIDE, q.shape[2] + 1, STRIDE)]
    return torch.cat([
        attend(q[:, :, start:end], k[:, :, :end], v[:, :, :end], mask[:, :, start:end, :end])
        for start, end in spans], 2)


def attend_pieces(q, k, v, clean_k, clean_v, mask, width: int):
    """Attention of noisy pieces: to clean keys through the mask, and to all of their own piece."""
    def split(t):
        return t.unflatten(2, (-1, width))

    past = scores(q, clean_k) + mask
    own = scores(split(q), split(k)).flatten(2, 3)
    share = torch.cat([past, own], -1).softmax(-1).to(v.dtype)
    past, own = share.split([past.shape[-1], width], -1)
    return past @ clean_v + (split(own) @ split(v)).flatten(2, 3)


def masks(rows, pieces) -> list:
    """For the clean stream, and each group of pieces, what is added to the scores of clean keys: 0
    for those of the same conversation that stand before, else minus infinity."""
    place = torch.arange(rows.shape[1], device=rows.device)
    talk = (rows == BOS).cumsum(1)
    seen = [(talk[:, :, None] == talk[:, None, :]) & (place[:, None] >= place)]
    for tokens, start in pieces:
        past = (talk.gather(1, start)[..., None] == talk[:, None, :]) & (place < start[..., None])
        seen.append(past.repeat_interleave(tokens.shape[-1], 1))
    return [torch.where(s, 0.0, -torch.inf)[:, None] for s in seen]


class LM(nn.Module):
    dtype = torch.bfloat16  # of the head's product

    def __init__(self, c: Model):
        super().__init__()
        self.config = c
        self.embedding = nn.Embedding(c.vocab, c.hidden)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.final_norm = nn.Parameter(torch.ones(c.hidden))
        half = c.hidden // c.heads // 2
        angles = torch.outer(torch.arange(POSITIONS), c.theta ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def head(self, x):
        weight = self.embedding.weight.to(self.dtype)
        return F.linear(norm(x, self.final_norm).to(self.dtype), weight).float()

    def forward(self, rows, pieces, masks):
        """Final states of the clean stream [B, T] and of `pieces`, pairs of tokens [B, K, W] and
        starts [B, K], one after the other: [B, T + all pieces' slots, hidden]."""
        stream, places = [rows], [torch.arange(rows.shape[1], device=rows.device).expand_as(rows)]
        for tokens, start in pieces:
            slots = torch.arange(tokens.shape[-1], device=rows.device)
            stream.append(tokens.flatten(1))
            places.append((start[..., None] + slots).flatten(1))
        sizes = [tokens.shape[1] for tokens in stream]
        places = torch.cat(places, 1)[:, None]
        cos, sin = self.cos[places], self.sin[places]
        x = self.embedding(torch.cat(stream, 1))
        for layer in self.layers:
            q, k, v = (t.split(sizes, 2) for t in layer.project(x, cos, sin))
            attended = [attend_clean(q[0], k[0], v[0], masks[0])]
            for i, (tokens, _) in enumerate(pieces, 1):
                width = tokens.shape[-1]
                attended.append(attend_pieces(q[i], k[i], v[i], k[0], v[0], masks[i], width))
            x = layer.finish(x, torch.cat(attended, 2))
        return x
