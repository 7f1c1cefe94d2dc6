"""Comparison of an exported directory with `transformers` (PyTorch, f32) and with `wf-run logits`."""
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch

BOUND = 1e-3


def theirs(directory: Path):
    """Returns the model as `transformers` loads it, all but its ternary weights in f32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    model.model.embed_tokens.float()
    model.lm_head.float()
    return model


def wf_run(program: str, *args) -> str:
    """Runs `wf-run` and returns what it prints."""
    said = subprocess.run([program, *map(str, args)], text=True, capture_output=True)
    if said.returncode:
        raise SystemExit(f"{program} {args[0]} failed: {said.stderr.strip()}")
    return said.stdout


def logits(program: str, directory: Path, text: list, *options) -> np.ndarray:
    """Returns the logits of `wf-run logits`, `[tokens, vocabulary]`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logits.npy"
        wf_run(program, "logits", "--model", directory, "--tokens", ",".join(map(str, text)),
               "--output", file, *options)
        return np.load(file)


def agreement(ours, theirs, bound: float = BOUND) -> tuple[int, float]:
    """Returns how many positions agree within a bound before the first that does not, and the lowest
    cosine of a position. Activations are rounded to 8 bits, and programs sum them in another order:
    a last bit can tip one over, after which all that follows differs by more than the bound."""
    far = (np.abs(ours - theirs).max(-1) > bound).nonzero()[0]
    lengths = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
    cosine = (ours * theirs).sum(-1) / lengths
    return int(far[0]) if len(far) else len(ours), float(cosine.min())
