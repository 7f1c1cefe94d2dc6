"""The joint loss: the clean stream predicts its next token, noisy pieces their masked ones."""
import torch
import torch.nn.functional as F

from model import masks
from noise import answers, divided, noisy, uniform
from presets import Preset, Stage
from spelling import Speller, misspelled

# Weight of each kind of loss, in proportion to its tokens. A stage sets the weight of spelling.
SHARE = {"ar": 1.0, "block": 0.5, "draft": 0.25}
# The share of positions that may count; what is beyond is left out at random.
ROOM = {"ar": 0.72, "block": 0.7, "draft": 8 / 9}


def shares(stage: Stage) -> dict[str, float]:
    """The weight of each kind of loss in a stage."""
    return SHARE | ({"spelling": stage.spelling} if stage.spelling else {})


def picked(weight: torch.Tensor, room: int, g: torch.Generator):
    """`room` indices of the flat weights, of all that count if they fit."""
    weight = weight.flatten()
    return (uniform(weight.shape, g) * (weight > 0)).topk(room).indices


def batch(rows: torch.Tensor, preset: Preset, stage: Stage, g: torch.Generator,
          speller: Speller | None = None):
    """The input of `loss` for rows [B, T]: the streams; positions, targets and weights of each kind;
    and with a speller the tokens that each position of the clean stream allows. The position of a
    target is the one before it."""
    found = answers(rows)
    continued, filled = divided(found, preset.rows(stage))
    groups = noisy(rows, filled, preset, g)
    widths = [rows.shape[1], *(group.tokens.flatten(1).shape[1] for group in groups)]
    total, offset, wanted, spelled = sum(widths), 0, [], None
    # Spelling is learned from all answers, whether they are continued or not.
    clean = found.weight if speller else continued.weight
    everything = [(rows, continued.weight, clean)] + [
        (group.targets.flatten(1), group.weight.flatten(1), group.weight.flatten(1))
        for group in groups]
    for width, room, (targets, weight, counting) in zip(widths, ROOM.values(), everything):
        counting = counting.clone()
        counting[:, 0] = 0
        index = picked(counting, int(room * targets.numel()), g)
        row, column = index // width, index % width
        place = row * total + offset + (column - 1).clamp(min=0)
        wanted.append((place, targets.flatten()[index], weight.flatten()[index] * (column > 0)))
        if speller and offset == 0:  # the clean stream
            spelled = speller.allowed(rows, index), (counting.flatten()[index] > 0).float()
        offset += width
    pieces = [(group.tokens, group.start) for group in groups]
    return (rows, pieces, masks(rows, pieces)), wanted, spelled


def mean(each: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (each * weight).sum() / weight.sum().clamp(min=1)


def loss(model, streams, wanted, spelled):
    """Mean loss of each kind."""
    states = model(*streams).flatten(0, 1)
    sizes = [len(weight) for _, _, weight in wanted]
    places, targets, weights = (torch.cat(parts) for parts in zip(*wanted))
    logits = model.head(states[places])
    each = F.cross_entropy(logits, targets, reduction="none")
    parts = [mean(*part) for part in zip(each.split(sizes), weights.split(sizes))]
    if spelled:
        allowed, weight = spelled
        parts.append(mean(misspelled(logits[:sizes[0]], allowed), weight))
    return torch.stack(parts)
