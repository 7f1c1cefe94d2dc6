"""Rates and strengths as functions of the step alone, so that a resumed run is the same."""
import math

from .recipe import Stage


def rate(stage: Stage, step: int) -> float:
    """Returns the share of the full learning rate: warm-up, constant, and a fall as 1 − √t."""
    warm = max(1, round(stage.steps * stage.warmup))
    fallen = 1 - (stage.steps - step) / max(1, stage.steps * stage.decay)
    return min(1.0, (step + 1) / warm, 1 - min(1.0, max(0.0, fallen)) ** 0.5)


def strength(stage: Stage, step: int) -> float:
    """Returns how far weights and activations are on the way to ternary, λ."""
    if not stage.quantize:
        return 1.0
    way = min(1.0, step / stage.quantize)
    return way if stage.curve == "linear" else 0.5 - 0.5 * math.cos(math.pi * way)
