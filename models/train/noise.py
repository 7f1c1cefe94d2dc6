"""Targets of a row: the tokens that count, and the noisy pieces that are made of it.

Only answers teach. A noisy piece is a short run of positions that see each other and, before them,
the clean tokens of their conversation. It belongs to one answer: what stands before that in the
piece is known, as a prompt is, and what follows it is `<|eos|>` to be predicted, as at the end of a
text. Two kinds are decoding's own: blocks in which one sub-block is being unmasked and the later
ones are masked still, and `verify`'s drafts, one known token and masked ones, which begin anywhere.
The third, pairs of complementary random masks, is the usual one.
"""
from dataclasses import dataclass

import torch

from presets import Preset
from tokens import BOS, BOT, EOS, MASK, USER

from bitnet.noise import complementary, uniform

SUB_BLOCK = 8  # decoding's default
DRAFT = 8  # tokens of a draft
SHORT = 48  # answers up to this length count twice: a task's few tokens against a story's many
BEGUN = 0.65  # share of the sub-blocks at work of which something may be known
LATER = 0.25  # weight of masked slots after the sub-block at work
BEYOND = 0.1  # weight of <|eos|> after the answer


@dataclass
class Answers:
    """Of each position of rows [B, T]: its weight as a target, and the number of its answer."""
    weight: torch.Tensor
    number: torch.Tensor


def answers(rows: torch.Tensor) -> Answers:
    """Finds the answers: the tokens after each <|bot|>, to <|eos|>."""
    place = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
    opens = (rows == BOT) | (rows == USER) | (rows == BOS)
    last = torch.where(opens, place, 0).cummax(1).values
    ends = (rows == EOS).long()
    before = ends.cumsum(1) - ends
    inside = (rows.gather(1, last) == BOT) & ~opens & (before == before.gather(1, last))
    number = (rows == BOT).cumsum(1)
    length = torch.zeros_like(rows).scatter_add_(1, number, inside.long()).gather(1, number)
    return Answers(inside * torch.where(length <= SHORT, 2.0, 1.0), number)


def divided(found: Answers, rows: tuple[int, int, int]) -> tuple[Answers, Answers]:
    """Divides answers into those to continue and those to fill in, of so many rows of the generator's, with
    stories that the model drew, and with its most likely ones. Where there are any of the model's,
    those it drew are only continued, its most likely only filled in, and of all other answers the
    short ones, of which each has but one right text."""
    generated, sampled, own = found.weight.split(rows)
    short = generated * (generated > 1)
    continued = [short if len(sampled) else generated, sampled, torch.zeros_like(own)]
    filled = [short if len(own) else generated, torch.zeros_like(sampled), own]
    return tuple(Answers(torch.cat(parts), found.number) for parts in (continued, filled))


@dataclass
class Pieces:
    """Noisy pieces of rows: tokens, targets and weights [B, K, W], and where each starts [B, K]."""
    tokens: torch.Tensor
    targets: torch.Tensor
    weight: torch.Tensor
    start: torch.Tensor

    @staticmethod
    def cat(*pieces: "Pieces") -> "Pieces":
        return Pieces(*(torch.cat(parts, 1) for parts in zip(*(vars(p).values() for p in pieces))))


def draw(weight: torch.Tensor, count: int, g: torch.Generator) -> torch.Tensor:
    """Indices of `count` different entries of the last axis, likelier where the weight is larger."""
    noise = -torch.log(-torch.log(uniform(weight.shape, g).clamp(1e-9, 1 - 1e-7)))
    return (weight.clamp(min=1e-9).log() + noise).topk(count, -1).indices


class Piece:
    """Pieces of a width before anything is masked: where they are, and the answer each belongs to."""

    def __init__(self, rows, found: Answers, start, chosen, width: int):
        """`chosen` [B, K] are positions in the answers that the pieces at `start` belong to."""
        slot = torch.arange(width, device=rows.device)
        place = start[..., None] + slot
        valid = place < rows.shape[1]
        place = place.clamp(max=rows.shape[1] - 1)

        def at(values):
            return values.gather(1, place.flatten(1)).view(place.shape)

        weight = at(found.weight) * valid * (slot > 0)
        inside = (weight > 0) & (at(found.number) == found.number.gather(1, chosen)[..., None])
        started = inside.cumsum(-1) > 0
        self.start, self.inside = start, inside
        self.open = started  # slots that may be masked: the answer and what is after it
        self.targets = torch.where(inside | ~started, at(rows), EOS)
        self.weight = torch.where(inside, weight, BEYOND * started)

    def masked(self, masked, weight=1.0) -> Pieces:
        """The pieces with these slots masked."""
        masked = masked & self.open
        tokens = torch.where(masked, MASK, self.targets)
        return Pieces(tokens, self.targets, self.weight * masked * weight, self.start)


def steps(piece: Piece, g: torch.Generator) -> Pieces:
    """Blocks in which a sub-block is half done, or not begun: what is before it is known, what is
    after it masked."""
    inside = piece.inside.float()
    slot = torch.arange(inside.shape[-1], device=inside.device)
    current = draw(inside, 1, g)
    sub, now = slot // SUB_BLOCK, current // SUB_BLOCK
    rate = torch.where(uniform(current.shape, g) < BEGUN, uniform(current.shape, g), 1.0)
    here = (sub == now) & ((uniform(inside.shape, g) < rate) | (slot == current))
    return piece.masked(here | (sub > now), torch.where(sub > now, LATER, 1.0))


def pairs(piece: Piece, g: torch.Generator) -> Pieces:
    """Each block twice, with a random mask and its complement."""
    rate = uniform((*piece.start.shape, 1), g)
    return Pieces.cat(*map(piece.masked, complementary(piece.inside.shape, rate, g)))


def noisy(rows: torch.Tensor, found: Answers, preset: Preset, g: torch.Generator) -> list[Pieces]:
    """The noisy pieces of rows: blocks, and drafts."""
    block = preset.model.block
    grid = found.weight.view(rows.shape[0], -1, block)[..., 1:]
    start = draw(grid.sum(-1), preset.steps + preset.pairs, g) * block
    inner = grid.gather(1, (start // block)[..., None].expand(-1, -1, block - 1))
    chosen = start + 1 + draw(inner, 1, g)[..., 0]
    made = []
    for part, mask in ((slice(preset.steps), steps), (slice(preset.steps, None), pairs)):
        made.append(mask(Piece(rows, found, start[:, part], chosen[:, part], block), g))
    chosen = draw(found.weight[:, 1:], preset.drafts, g) + 1
    draft = Piece(rows, found, chosen - 1, chosen, 1 + DRAFT)
    return [Pieces.cat(*made), draft.masked(torch.ones_like(draft.open))]
