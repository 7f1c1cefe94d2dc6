"""Inputs and targets of a model: rows of samples, and the noisy and clean halves of block diffusion.

A row packs samples. Each begins at a block's start and at position 0, and is padded with MASK to a
block's end; attention does not cross samples.
"""
from dataclasses import dataclass, fields

import torch
from bitnet.noise import complementary, uniform

CLEAN = -1  # the number of the clean half, next to those of noisy views


@dataclass
class Rows:
    """Rows `[B, T]` of tokens; `counts` is true for those that are learned, `sample` numbers the
    samples of a row (−1 fills its end), `position` counts inside a sample."""
    tokens: torch.Tensor
    counts: torch.Tensor
    sample: torch.Tensor
    position: torch.Tensor

    def to(self, device) -> "Rows":
        return Rows(*(getattr(self, f.name).to(device) for f in fields(self)))

    def predicted(self) -> torch.Tensor:
        """Returns true for tokens that count and have a token before them in their sample."""
        return self.counts & (self.position > 0)

    def same_sample(self) -> torch.Tensor:
        """Returns true where two positions are in one sample: `[B, T, T]`."""
        return self.sample[:, :, None] == self.sample[:, None, :]


@dataclass
class Targets:
    """Rows of the flat input `[N]` that predict, what they predict, and the weights of the losses."""
    rows: torch.Tensor
    tokens: torch.Tensor
    weight: torch.Tensor
    source: torch.Tensor  # flat places of the tokens in `Rows`


@dataclass
class Inputs:
    """The input of a model: tokens and positions `[B, S]`, and the mask `[B, S, S]`."""
    tokens: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor


def causal(rows: Rows) -> Inputs:
    """Returns rows as an autoregressive model reads them."""
    place = torch.arange(rows.tokens.shape[1], device=rows.tokens.device)
    return Inputs(rows.tokens, rows.position, rows.same_sample() & (place[:, None] >= place))


def next_tokens(rows: Rows, stride: int = 0, offset: int = 0) -> Targets:
    """Returns the targets of an autoregressive model. In a longer input of `stride` positions, the
    rows begin at `offset`."""
    width = rows.tokens.shape[1]
    source = rows.predicted().flatten().nonzero()[:, 0]
    row, column = torch.div(source, width, rounding_mode="floor"), source % width
    place = row * (stride or width) + offset + column - 1
    return Targets(place, rows.tokens.flatten()[source], torch.ones_like(source, dtype=torch.float),
                   source)


def complementary_views(rows: Rows, block: int, g: torch.Generator):
    """Returns a random mask of the tokens that count and its complement, both `[B, T]`, and the
    rates: the share of each block that is masked is random."""
    batch, width = rows.tokens.shape
    rate = uniform((batch, width // block, 1), g).expand(-1, -1, block).reshape(batch, width)
    first, second = complementary(rows.tokens.shape, rate, g)
    return [first & rows.counts, second & rows.counts], [rate, 1 - rate]


@dataclass
class Noisy:
    """Block diffusion: the input [noisy views | clean half], the targets of masked tokens, and those
    of the clean half."""
    inputs: Inputs
    masked: Targets
    clean: Targets


def visible(rows: Rows, block: int, views: int, clean_causal: bool) -> torch.Tensor:
    """Returns the mask `[B, (views + 1) · T, (views + 1) · T]`: a noisy row of block b sees its view
    of b and clean rows of blocks before b; a clean row sees clean rows up to itself or, if the clean
    half is not causal, up to the end of its block."""
    device, width = rows.tokens.device, rows.tokens.shape[1]
    view = torch.tensor([*range(views), CLEAN], device=device).repeat_interleave(width)
    position = rows.position.repeat(1, views + 1)
    number = torch.div(position, block, rounding_mode="floor")
    same_sample = rows.same_sample().repeat(1, views + 1, views + 1)
    clean_key, clean_query = (view == CLEAN)[None, None, :], (view == CLEAN)[None, :, None]
    before = number[:, None, :] < number[:, :, None]
    equal = number[:, None, :] == number[:, :, None]
    past = position[:, None, :] <= position[:, :, None]
    own = (view[:, None] == view[None, :]) & ~clean_query & equal
    clean = clean_key & (before | (clean_query & equal & (past if clean_causal else True)))
    return same_sample & (own | clean)


def noisy(rows: Rows, masks: list, rates: list, mask_id: int, block: int, clean_causal: bool,
          shift: int, inverse: bool = False) -> Noisy:
    """Returns the input of block diffusion for noisy views, true in `masks` where a token is masked.
    Row i − `shift` predicts token i. With `inverse`, a token weighs 1 / p of its `rates`,
    p = (1 − 10⁻³) · rate + 10⁻³, else 1. The halves of all views share one clean half: it sees no
    noise."""
    width, views = rows.tokens.shape[1], len(masks)
    stride = (views + 1) * width
    clean = rows.tokens
    tokens = torch.cat([torch.where(mask, mask_id, clean) for mask in masks] + [clean], 1)
    inputs = Inputs(tokens, rows.position.repeat(1, views + 1),
                    visible(rows, block, views, clean_causal))
    parts = []
    for view, (mask, rate) in enumerate(zip(masks, rates)):
        wanted = mask & rows.predicted() if shift else mask
        source = wanted.flatten().nonzero()[:, 0]
        row, column = torch.div(source, width, rounding_mode="floor"), source % width
        share = (1 - 1e-3) * rate.flatten()[source] + 1e-3
        weight = 1 / share if inverse else torch.ones_like(share)
        parts.append((row * stride + view * width + column - shift, clean.flatten()[source], weight,
                      source))
    masked = Targets(*(torch.cat(each) for each in zip(*parts)))
    return Noisy(inputs, masked, next_tokens(rows, stride, views * width))
