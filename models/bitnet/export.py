"""Parts of a Hugging Face directory with packed ternary weights, W = t * scale, as `transformers` and
`wf-run` read them."""
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from .ternary import ternary

QUANTIZATION = {"quant_method": "bitnet", "linear_class": "autobitlinear",
                "quantization_mode": "offline"}


def pack(values: torch.Tensor) -> torch.Tensor:
    """Packs four rows in a byte: bits 2i of packed row r hold row i * rows / 4 + r, as t + 1."""
    if values.shape[0] % 4:
        raise ValueError(f"{values.shape[0]} rows are not a multiple of four")
    a, b, c, d = (values + 1).to(torch.uint8).chunk(4)
    return a | b << 2 | c << 4 | d << 6


def packed(names: list[str], weight: torch.Tensor) -> dict:
    """Returns the tensors of a matrix that holds several of equal size, with one scale."""
    out, (values, scale) = {}, ternary(weight)
    for name, part in zip(names, values.chunk(len(names))):
        out[f"{name}.weight"] = pack(part)
        out[f"{name}.weight_scale"] = scale.reshape(1)
    return out


def diffusion(block: int, mask: str, mask_id: int, causal: bool = True, shift: int = 1,
              autoregressive: bool = True) -> dict:
    """Returns `dlm_config.json`."""
    return {"bd_size": block, "mask_token": mask, "mask_token_id": mask_id,
            "ar_path": autoregressive, "clean_attention": "causal" if causal else "block",
            "logit_shift": shift}


def write(out: Path, tensors: dict, tokenizer: Path, configs: dict):
    """Writes the directory: weights, tokenizer and JSON files."""
    out.mkdir(parents=True, exist_ok=True)
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(own, out / "model.safetensors", {"format": "pt"})
    shutil.copy(tokenizer, out / "tokenizer.json")
    for name, content in configs.items():
        (out / name).write_text(json.dumps(content, indent=1) + "\n")
