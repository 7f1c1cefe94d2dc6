"""Checkpoints that survive a kill at any moment."""
import errno
import os
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file


def write(path: Path, content: dict):
    """Writes a checkpoint. A run that dies meanwhile leaves the old one, and so does a full disk,
    which ends the program with a message."""
    part = path.with_suffix(".part")
    try:
        with part.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:
        # PyTorch reports a failed write as a RuntimeError, without the reason.
        part.unlink(missing_ok=True)
        full = getattr(error, "errno", None) == errno.ENOSPC or "writ" in str(error)
        if not full:
            raise
        kept = f"{path} still holds the checkpoint before it" if path.exists() else "there is none yet"
        raise SystemExit(f"{part} could not be written ({error}): is the disk full? {kept}") from error
    part.replace(path)


def read(path: Path) -> dict:
    """Returns the contents of a checkpoint, or the weights and metadata of a safetensors file."""
    if path.suffix != ".safetensors":
        return torch.load(path, map_location="cpu")
    with safe_open(path, "pt") as file:
        meta = file.metadata() or {}
    return {"model": load_file(path), "meta": meta}
