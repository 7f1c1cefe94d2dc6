"""Sizes of models and runs."""
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Model:
    """The shape of a BitNet b1.58 model."""
    vocab: int = 3072
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    ff: int = 768
    context: int = 512
    block: int = 32
    theta: float = 10_000.0


@dataclass(frozen=True)
class Preset:
    """A model and how it is trained. Lengths are in tokens of the clean stream, so that a run that
    was slowed down or moved learns the same."""
    model: Model = field(default_factory=Model)
    tokens: float = 26e6
    longer: float = 58.4e6  # with the model's own stories, from the end of the stable phase on
    batch: int = 4  # rows of `context` tokens
    rate: float = 1e-2  # of Muon
    other_rate: float = 5e-3  # of AdamW
    warmup: float = 0.2e6
    decay: float = 0.36  # share of the run in which the rate falls to zero
    weight_decay: float = 0.05
    steps: int = 4  # noisy blocks a row as decoding meets them: one sub-block at work
    pairs: int = 1  # noisy blocks a row, twice each, with complementary random masks
    drafts: int = 8  # drafts a row, as `verify` asks for them


PRESETS = {
    "cpu": Preset(),
    "gpu": Preset(Model(hidden=384, ff=1024, heads=6), tokens=1e9, longer=1.6e9, batch=64, warmup=4e6),
    "micro": Preset(Model(vocab=512, hidden=64, layers=2, heads=1, ff=128, context=256),
                    tokens=40_960, longer=81_920, batch=4, warmup=5_000, steps=2, drafts=2),
}
