"""Files of a run: whole checkpoints to resume from, and small master files."""
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from model import LM
from presets import Model

from bitnet import checkpoint

# The newest checkpoint; the one at the end of the stable phase, and its weights alone; the last.
LAST, CONSTANT, MASTER, FINAL = "last.pt", "constant.pt", "master.safetensors", "final.pt"


@dataclass
class State:
    """All that a run is at some moment."""
    model: LM
    optimisers: list
    noise: torch.Generator
    seen: int = 0  # tokens of the clean stream
    start: int = 0  # where the optimisers began anew, and the rate warms up from

    def save(self, path: Path):
        """Writes a checkpoint; a run that dies meanwhile leaves the old one."""
        checkpoint.write(path, {
            "model": self.model.state_dict(), "seen": self.seen, "start": self.start,
            "optimisers": [o.state_dict() for o in self.optimisers],
            "noise": self.noise.get_state(), "config": asdict(self.model.config),
        })

    def save_master(self, path: Path):
        """The weights in bf16, to go on from later; the optimisers begin anew."""
        weights = {k: v.bfloat16().contiguous() for k, v in self.model.state_dict().items()}
        save_file(weights, path, {"seen": str(self.seen),
                                  "config": json.dumps(asdict(self.model.config))})

    def restore(self, path: Path):
        """Reads a checkpoint, or the weights alone from a master file."""
        saved = read(path)
        if saved["config"] != asdict(self.model.config):
            raise SystemExit(f"{path} holds a model of another shape: {saved['config']}")
        self.model.load_state_dict(saved["model"])
        self.seen = saved["seen"]
        self.start = saved.get("start", self.seen)
        for optimiser, state in zip(self.optimisers, saved.get("optimisers", [])):
            optimiser.load_state_dict(state)
        if "noise" in saved:
            self.noise.set_state(saved["noise"])


def read(path: Path) -> dict:
    """The contents of a checkpoint or of a master file."""
    saved = checkpoint.read(path)
    if (meta := saved.get("meta")) is None:
        return saved
    return {"model": saved["model"], "seen": int(meta["seen"]),
            "config": json.loads(meta["config"])}


def load(path: Path) -> LM:
    """The model of a checkpoint or of a master file."""
    saved = read(path)
    model = LM(Model(**saved["config"]))
    model.load_state_dict(saved["model"])
    return model.eval()
