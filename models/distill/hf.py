"""Hugging Face directories: a dense model in, a ternary or dense one out."""
import json
from pathlib import Path

import torch
from bitnet import export
from safetensors.torch import load_file

from . import shape
from .haar import haar_ternary
from .model import Decoder, Linear, Quantizer
from .recipe import Recipe


def weights(directory: Path) -> dict:
    """Returns all tensors of a directory in f32."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise SystemExit(f"{directory} has no *.safetensors")
    return {name: tensor.float() for file in files for name, tensor in load_file(file).items()
            if not name.endswith("rotary_emb.inv_freq")}


def load(directory: Path, quantizer: Quantizer | None = None, vocab: int = 0,
         dtype: torch.dtype = torch.float32) -> Decoder:
    """Returns the model of a directory; with a quantizer, on the way to ternary. A larger `vocab`
    adds rows to embedding and head: means of the others, as nothing is known of new tokens."""
    file = directory / "config.json"
    found, tensors = shape.read(json.loads(file.read_text()), str(file)), weights(directory)
    names = ["model.embed_tokens.weight"] + ([] if found.tied else ["lm_head.weight"])
    for name in names:
        table = tensors[name]
        if vocab > len(table):
            more = table.mean(0, keepdim=True).expand(vocab - len(table), -1)
            tensors[name] = torch.cat([table, more])
    if found.tied:
        tensors.pop("lm_head.weight", None)
    found = shape.Shape(**{**vars(found), "vocab": len(tensors[names[0]])})
    model = Decoder(found, quantizer, dtype)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    missing = [name for name in missing if not name.endswith("sub_norm.weight")]
    if missing or unexpected:
        raise SystemExit(f"{directory}: missing tensors {missing[:3]}, unknown tensors {unexpected[:3]}")
    return model


def tensors(model: Decoder, dtype: torch.dtype) -> dict:
    """Returns the tensors of an export: packed ternary matrices, unless the model is dense or its
    weights are ternary in the Haar basis."""
    matrices = {f"{name}.weight": name for name, module in model.named_modules()
                if isinstance(module, Linear)}
    out, how = {}, model.quantizer
    for name, tensor in model.state_dict().items():
        if how and name in matrices and how.haar:
            out[name] = haar_ternary(tensor)
        elif how and name in matrices:
            out |= export.packed([matrices[name]], tensor)
        else:
            out[name] = tensor if tensor.dim() == 1 else tensor.to(dtype)
    return out


def stated(recipe: Recipe, stages: list[str]) -> dict:
    """Returns what an export says about its training; `wf-run inspect` shows it."""
    said = {"stages": stages}
    if recipe.q_sparse < 1:
        said["activation_sparsity"] = f"topk:{recipe.q_sparse:g}"
    if recipe.haar:
        said["haar"] = True
    return said


def save(model: Decoder, out: Path, text: Path, recipe: Recipe, facts: dict, stages: list[str],
         dtype: torch.dtype = torch.float32):
    """Writes a directory that `wf-run` loads. `text` has the tokenizer's files, `facts` the ids."""
    how = model.quantizer
    if how and how.keep < 1 and how.block:
        raise SystemExit("Q-Sparse in blocks cannot be exported: `wf-run` keeps a share of whole rows")
    packed = how is not None and not how.haar
    config = shape.write(model.shape, packed)
    if packed:
        config["quantization_config"] = export.QUANTIZATION
    config["torch_dtype"] = str(dtype).removeprefix("torch.")
    config |= {key: facts[key] for key in ("bos_token_id", "eos_token_id") if facts.get(key) is not None}
    configs = {"config.json": config}
    objectives = {stage.objective for stage in recipe.stages if stage.name in stages}
    if how:
        config["wrinklefree_training"] = stated(recipe, stages)
    if objectives & {"diffuse", "tcs"}:
        causal = recipe.clean_attention == "causal"
        trained = causal and any(s.clean for s in recipe.stages if s.name in stages)
        configs["dlm_config.json"] = export.diffusion(
            recipe.block, recipe.mask_token, facts["mask_id"], causal, recipe.shift, trained)
    for name in ("tokenizer_config.json", "generation_config.json"):
        if (text / name).exists():
            configs[name] = json.loads((text / name).read_text())
    export.write(out, tensors(model, dtype), text / "tokenizer.json", configs)
    template = text / "chat_template.jinja"
    if template.exists():
        (out / template.name).write_text(template.read_text())
