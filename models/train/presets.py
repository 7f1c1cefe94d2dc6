"""Sizes of models and runs."""
import sys
from dataclasses import dataclass, field
from pathlib import Path

# The folder of the package `bitnet`, which this training shares with `models/distill`.
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))


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
class Stage:
    """One of the runs that follow each other."""
    tokens: float  # of the clean stream, from the very first on, so that a run that was slowed down
    # or moved learns the same
    own: float = 0.0  # share of a batch's rows whose stories are the model's most likely: to fill in
    sampled: float = 0.0  # share of those whose stories it drew: to continue, instead of others
    spelling: float = 0.0  # what it counts that words which are none become unlikely: `spelling.py`


@dataclass(frozen=True)
class Preset:
    """A model and how it is trained."""
    model: Model = field(default_factory=Model)
    first: Stage = Stage(26e6)
    longer: Stage = Stage(58.4e6, own=0.25)  # from the end of the first one's stable phase on
    polish: Stage = Stage(70.5e6, own=0.25, sampled=0.25)  # from the end of the longer one on
    repolish: Stage = Stage(80e6, own=0.25, sampled=0.25, spelling=30.0)  # the same, from its end on
    spell: Stage = Stage(83e6, own=0.25, sampled=0.25, spelling=300.0)  # with the same stories
    batch: int = 4  # rows of `context` tokens
    rate: float = 1e-2  # of Muon
    other_rate: float = 5e-3  # of AdamW
    warmup: float = 0.2e6
    decay: float = 0.36  # share of the run in which the rate falls to zero
    weight_decay: float = 0.05
    steps: int = 4  # noisy blocks a row as decoding meets them: one sub-block at work
    pairs: int = 1  # noisy blocks a row, twice each, with complementary random masks
    drafts: int = 8  # drafts a row, as `verify` asks for them

    def rows(self, stage: Stage) -> tuple[int, int, int]:
        """Numbers of rows of a batch: the generator's, those with stories that the model sampled, and
        those with its most likely ones."""
        sampled, own = int(self.batch * stage.sampled), int(self.batch * stage.own)
        return self.batch - sampled - own, sampled, own


PRESETS = {
    "cpu": Preset(),
    "gpu": Preset(Model(hidden=384, ff=1024, heads=6),
                  Stage(1e9), Stage(1.6e9, own=0.25), Stage(1.8e9, own=0.25, sampled=0.25),
                  Stage(2e9, own=0.25, sampled=0.25, spelling=30.0),
                  Stage(2.05e9, own=0.25, sampled=0.25, spelling=300.0), batch=64, warmup=4e6),
    "micro": Preset(Model(vocab=512, hidden=64, layers=2, heads=1, ff=128, context=256),
                    Stage(40_960), Stage(81_920, own=0.25),
                    Stage(102_400, own=0.25, sampled=0.25),
                    Stage(122_880, own=0.25, sampled=0.25, spelling=30.0),
                    Stage(143_360, own=0.25, sampled=0.25, spelling=300.0),
                    warmup=5_000, steps=2, drafts=2),
}
STAGES = ("first", "longer", "polish", "repolish", "spell")  # fields of a preset
