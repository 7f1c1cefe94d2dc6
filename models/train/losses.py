"""The joint loss: the clean stream predicts its next token, noisy pieces their masked ones."""
import torch
import torch.nn.functional as F

from model import masks
from noise import answers, divided, noisy, uniform
from presets import Preset, Stage

# What each kind of loss counts: about as many tokens as it has.
SHARE = {"ar": 1.0, "block": 0.5, "draft": 0.25}
# The share of positions that may count; what is beyond is left out at random.
ROOM = {"ar": 0.72, "block": 0.7, "draft": 8 / 9}


def picked(weight: torch.Tensor, room: int, g: torch.Generator):
    """`room` indices of the flat weights, of all that count if they fit, and their weights."""
    weight = weight.flatten()
    index = (uniform(weight.shape, g) * (weight > 0)).topk(room).indices
    return index, weight[index]


def batch(rows: torch.Tensor, preset: Preset, stage: Stage, g: torch.Generator):
    """What `loss` needs for rows [B, T]: the streams, and for each kind where, what and how much
    counts. The place of a target is one before it."""
    continued, filled = divided(answers(rows), preset.rows(stage))
    groups = noisy(rows, filled, preset, g)
    widths = [rows.shape[1], *(group.tokens.flatten(1).shape[1] for group in groups)]
    total, offset, wanted = sum(widths), 0, []
    everything = [(rows, continued.weight)] + [
        (group.targets.flatten(1), group.weight.flatten(1)) for group in groups]
    for width, room, (targets, weight) in zip(widths, ROOM.values(), everything):
        weight = weight.clone()
        weight[:, 0] = 0
        index, weight = picked(weight, int(room * targets.numel()), g)
        row, column = index // width, index % width
        place = row * total + offset + (column - 1).clamp(min=0)
        wanted.append((place, targets.flatten()[index], weight))
        offset += width
    pieces = [(group.tokens, group.start) for group in groups]
    return (rows, pieces, masks(rows, pieces)), wanted


def loss(model, streams, wanted):
    """Mean loss of each kind."""
    states = model(*streams).flatten(0, 1)
    places, targets, weights = (torch.cat(parts) for parts in zip(*wanted))
    logits = model.head(states[places])
    each = F.cross_entropy(logits, targets, reduction="none") * weights
    parts = each.split([len(weight) for _, _, weight in wanted])
    return torch.stack([
        part.sum() / weight.sum().clamp(min=1) for part, (_, _, weight) in zip(parts, wanted)])
