"""From rows to the parts of a stage's loss."""
import torch

from . import layout, losses
from .layout import Rows
from .model import Decoder, States
from .recipe import Recipe, Stage


def tapped(model: Decoder, stage: Stage) -> int | None:
    """Returns the layer whose relations are compared, if any are."""
    if not stage.relation:
        return None
    layers = model.shape.layers
    layer = stage.layer if stage.layer >= 0 else min(layers - 1, round(layers * 0.8))
    if layer >= layers:
        raise SystemExit(f"stage {stage.name}: `layer` {layer}, but the model has {layers} layers")
    return layer


def ask(teacher: Decoder, rows: Rows, source: torch.Tensor, tap: int | None):
    """Returns what a causal teacher that reads clean text says: logits for the tokens at `source`,
    read at the position before each, and the states of a layer."""
    inputs = layout.causal(rows)
    with torch.no_grad():
        return teacher(inputs.tokens, inputs.positions, inputs.mask, (source - 1).clamp(min=0), tap)


def continued(student: Decoder, teacher: Decoder | None, rows: Rows, stage: Stage) -> dict:
    """The parts of `pretrain`, `ternarize` and `distill`."""
    inputs, targets, tap = layout.causal(rows), layout.next_tokens(rows), tapped(student, stage)
    logits, states = student(inputs.tokens, inputs.positions, inputs.mask, targets.rows, tap)
    parts = {"ce": losses.cross_entropy(logits, targets.tokens, targets.weight)}
    if stage.logits or stage.relation:
        said, known = ask(teacher, rows, targets.source, tap)
        if stage.logits:
            parts["logits"] = losses.divergence(logits, said, targets.weight, stage.tau)
        if stage.relation:
            together = rows.same_sample()
            parts["relation"] = losses.relation(states, known, together, stage.heads)
    return parts


def filled_in(student: Decoder, teacher: Decoder | None, rows: Rows, stage: Stage, recipe: Recipe,
              mask_id: int, g: torch.Generator) -> dict:
    """The parts of `diffuse` and `tcs`."""
    views, rates = layout.complementary_views(rows, recipe.block, g)
    batch = layout.noisy(rows, views, rates, mask_id, recipe.block,
                         recipe.clean_attention == "causal", recipe.shift, stage.inverse)
    masked, clean, tap = batch.masked, batch.clean, tapped(student, stage)
    wanted = [masked.rows] + ([clean.rows] if stage.clean else [])
    logits, states = student(batch.inputs.tokens, batch.inputs.positions, batch.inputs.mask,
                             torch.cat(wanted), tap)
    noisy_logits, clean_logits = logits.split([len(masked.rows), len(logits) - len(masked.rows)])
    parts = {"ce": losses.cross_entropy(noisy_logits, masked.tokens, masked.weight)}
    if stage.clean:
        parts["clean"] = losses.cross_entropy(clean_logits, clean.tokens, clean.weight)
    if stage.top or stage.relation:
        said, known = ask(teacher, rows, masked.source, tap)
        if stage.top:
            # A sample's first token has no position before it at which the teacher could say it.
            told = masked.weight * rows.predicted().flatten()[masked.source]
            parts["top"] = losses.top(noisy_logits, said, told, stage.tau, stage.top_k)
        if stage.relation:
            parts["relation"] = block_relation(states, known, rows, len(views), recipe.block,
                                               stage.heads)
    return parts


def block_relation(states: States, known: States, rows: Rows, views: int, block: int, heads: int):
    """The relation loss inside blocks, of each noisy view compared with the clean text; their mean."""
    width, number = rows.tokens.shape[1], torch.div(rows.position, block, rounding_mode="floor")
    together = rows.same_sample() & (number[:, :, None] == number[:, None, :])
    total = 0.0
    for view in range(views):
        own = States(*(x[:, view * width:(view + 1) * width] for x in vars(states).values()))
        total = total + losses.relation(own, known, together, heads)
    return total / views


def parts(student: Decoder, teacher: Decoder | None, rows: Rows, stage: Stage, recipe: Recipe,
          mask_id: int, g: torch.Generator) -> dict:
    """Returns the parts of the loss by name."""
    if stage.objective in ("diffuse", "tcs"):
        return filled_in(student, teacher, rows, stage, recipe, mask_id, g)
    return continued(student, teacher, rows, stage)


def total(found: dict, stage: Stage) -> torch.Tensor:
    """Returns the weighted sum of the parts."""
    return sum(getattr(stage, name) * value for name, value in found.items())
