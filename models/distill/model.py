"""Llama, Qwen2 and Qwen3 in PyTorch, by the names of their files, dense or on the way to ternary.

A ternary model has a norm before the output and down projections (SubLN), and `Quantizer.strength`
says how far it is from the dense one: at 0 the checkpoint's logits, at 1 those of its export.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from bitnet.ternary import bit_linear, norm, straight, ternary
from torch import nn
from torch.utils.checkpoint import checkpoint

from .haar import haar_ternary
from .shape import Shape


@dataclass
class Quantizer:
    """Quantization of a model's matrices, the same for all of them."""
    strength: float = 0.0  # 0: exact, 1: ternary weights and 8-bit activations
    dtype: torch.dtype = torch.float32  # of products
    keep: float = 1.0  # share of activations before each matrix (Q-Sparse)
    block: int = 0  # neighbors among which that share is kept; 0: the whole row
    haar: bool = False  # ternary in the Haar basis, with exact activations
    sub_norms: str = "warm"  # `warm`: they come with the strength; `at once`: as in BitDistill's code


@dataclass
class States:
    """Queries, keys and values of a layer after their projections, `[B, T, width]`."""
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


class Linear(nn.Linear):
    """A matrix of a layer."""

    def __init__(self, inputs: int, outputs: int, bias: bool, quantizer: Quantizer | None):
        super().__init__(inputs, outputs, bias=bias)
        nn.init.normal_(self.weight, std=0.8 * inputs**-0.5)
        if bias:
            nn.init.zeros_(self.bias)
        self.quantizer = quantizer

    def forward(self, x):
        how = self.quantizer
        if how is None or how.strength == 0:
            dtype = how.dtype if how else self.weight.dtype
            out = F.linear(x.to(dtype), self.weight.to(dtype))
        elif how.haar:
            weight = straight(haar_ternary(self.weight.detach()), self.weight, how.strength)
            out = F.linear(x.to(how.dtype), weight.to(how.dtype))
        else:
            out = bit_linear(x, self.weight, how.strength, how.dtype, how.keep, how.block)
        return out if self.bias is None else out + self.bias.to(out.dtype)


class Norm(nn.Module):
    """RMS norm in f32."""

    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x):
        return norm(x, self.weight.float(), self.epsilon)


class SubNorm(Norm):
    """The norm that a ternary model adds before a projection. It comes with the strength, so that a
    model of strength 0 is the checkpoint."""

    def __init__(self, width: int, epsilon: float, quantizer: Quantizer):
        super().__init__(width, epsilon)
        self.quantizer = quantizer

    def forward(self, x):
        share = 1.0 if self.quantizer.sub_norms == "at once" else self.quantizer.strength
        if share == 0:
            return x
        full = super().forward(x)
        return full if share == 1 else x + share * (full - x)


class Attention(nn.Module):
    def __init__(self, c: Shape, quantizer: Quantizer | None):
        super().__init__()
        self.shape = c
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.q_proj = Linear(c.hidden, q, c.biases, quantizer)
        self.k_proj = Linear(c.hidden, kv, c.biases, quantizer)
        self.v_proj = Linear(c.hidden, kv, c.biases, quantizer)
        self.o_proj = Linear(q, c.hidden, False, quantizer)
        if c.head_norms:
            self.q_norm, self.k_norm = (Norm(c.head_dim, c.epsilon) for _ in range(2))
        if quantizer:
            self.attn_sub_norm = SubNorm(q, c.epsilon, quantizer)

    def forward(self, x, angles, mask):
        c, states = self.shape, States(self.q_proj(x), self.k_proj(x), self.v_proj(x))

        def heads(t):
            return t.unflatten(-1, (-1, c.head_dim)).transpose(1, 2)

        q, k, v = heads(states.q), heads(states.k), heads(states.v)
        if c.head_norms:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = turned(q, *angles).to(v.dtype), turned(k, *angles).to(v.dtype)
        if c.heads != c.kv_heads:
            k, v = (t.repeat_interleave(c.heads // c.kv_heads, 1) for t in (k, v))
        attended = attend(q, k, v, mask).transpose(1, 2).flatten(2)
        if hasattr(self, "attn_sub_norm"):
            attended = self.attn_sub_norm(attended)
        return self.o_proj(attended), states


def turned(x, cos, sin):
    """Rotary positions: `x` is `[B, heads, T, head_dim]`, the angles `[B, 1, T, head_dim / 2]`."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q, k, v, mask):
    """Attention over the positions that the mask `[B, T, T]` allows."""
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, mask[:, None])
    scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    return scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1).to(v.dtype) @ v


class FeedForward(nn.Module):
    def __init__(self, c: Shape, quantizer: Quantizer | None):
        super().__init__()
        self.squared = c.activation == "relu2"
        self.gate_proj = Linear(c.hidden, c.ff, False, quantizer)
        self.up_proj = Linear(c.hidden, c.ff, False, quantizer)
        self.down_proj = Linear(c.ff, c.hidden, False, quantizer)
        if quantizer:
            self.ffn_sub_norm = SubNorm(c.ff, c.epsilon, quantizer)

    def forward(self, x):
        gate = self.gate_proj(x)
        x = (F.relu(gate).square() if self.squared else F.silu(gate)) * self.up_proj(x)
        if hasattr(self, "ffn_sub_norm"):
            x = self.ffn_sub_norm(x)
        return self.down_proj(x)


class Layer(nn.Module):
    def __init__(self, c: Shape, quantizer: Quantizer | None):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (
            Norm(c.hidden, c.epsilon) for _ in range(2))
        self.self_attn = Attention(c, quantizer)
        self.mlp = FeedForward(c, quantizer)

    def forward(self, x, angles, mask):
        attended, states = self.self_attn(self.input_layernorm(x), angles, mask)
        x = x + attended.float()
        return x + self.mlp(self.post_attention_layernorm(x)).float(), states


class Decoder(nn.Module):
    """A model. With a quantizer it has sub-norms, and its matrices are on the way to ternary."""

    def __init__(self, shape: Shape, quantizer: Quantizer | None = None,
                 dtype: torch.dtype = torch.float32):
        super().__init__()
        self.shape, self.quantizer, self.dtype = shape, quantizer, dtype
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        nn.init.normal_(self.model.embed_tokens.weight, std=0.02)
        self.model.layers = nn.ModuleList(Layer(shape, quantizer) for _ in range(shape.layers))
        self.model.norm = Norm(shape.hidden, shape.epsilon)
        if not shape.tied:
            self.lm_head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        self.checkpointing = False

    def angles(self, positions):
        """Cosines and sines of rotary positions `[B, T]`: `[B, 1, T, head_dim / 2]` each."""
        half = self.shape.head_dim // 2
        pair = torch.arange(half, device=positions.device, dtype=torch.float64) / half
        turns = positions[..., None].double() * self.shape.theta ** -pair
        return turns.cos().float()[:, None], turns.sin().float()[:, None]

    def forward(self, tokens, positions, mask, rows=None, tap: int | None = None):
        """Returns logits of the rows of the flat batch `[N]`, or of all, and the states of the layer
        `tap`. `mask` `[B, T, T]` is true where a position sees another."""
        x, angles, tapped = self.model.embed_tokens(tokens).float(), self.angles(positions), None
        for number, layer in enumerate(self.model.layers):
            if self.checkpointing and self.training:
                x, states = checkpoint(
                    layer, x, angles, mask, use_reentrant=False)
            else:
                x, states = layer(x, angles, mask)
            if number == tap:
                tapped = states
        x = self.model.norm(x).flatten(0, 1)
        x = x if rows is None else x[rows]
        head = self.model.embed_tokens if self.shape.tied else self.lm_head
        return F.linear(x.to(self.dtype), head.weight.to(self.dtype)).float(), tapped

    def matrices(self) -> dict[str, Linear]:
        """Returns the matrices that are ternary in an export, by name."""
        return {name: module for name, module in self.named_modules() if isinstance(module, Linear)}


def ternary_weight(weight, haar: bool):
    """Returns a matrix as it multiplies at strength 1."""
    if haar:
        return haar_ternary(weight)
    values, scale = ternary(weight)
    return values * scale
