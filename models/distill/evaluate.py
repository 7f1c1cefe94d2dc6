"""Measures of a run on held-out text: perplexity, accuracy of masked tokens, tokens a pass."""
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from bitnet.ternary import steps
from bitnet.witness import logits as exported_logits
from bitnet.witness import wf_run

from . import layout
from .layout import Rows
from .model import Decoder
from .recipe import Recipe

BATCH = 4  # rows at once
BOUND, COSINE = 1e-2, 0.999  # of an export's logits, compared with those of training
EDGE = 1e-4  # 8-bit steps from a rounding edge, within which programs may differ
PROMPTS = ("Tell me a story about a fox.", "What is the plural of dog?", "Why is the sky blue?",
           "Write a short poem about rain.")
MODES = ("ar", "verify", "iterative", "adaptive", "greedy")


def batches(rows: Rows, most: int):
    """Yields the first rows, a few at a time."""
    for start in range(0, min(most, len(rows.tokens)), BATCH):
        end = min(start + BATCH, most)
        yield Rows(*(x[start:end] for x in vars(rows).values()))


@torch.no_grad()
def perplexity(model: Decoder, rows: Rows, most: int, device: str = "cpu") -> float:
    """Returns exp of the mean nats of the tokens that count, of the autoregressive path."""
    total, count = 0.0, 0
    for part in batches(rows, most):
        part = part.to(device)
        inputs, targets = layout.causal(part), layout.next_tokens(part)
        said, _ = model(inputs.tokens, inputs.positions, inputs.mask, targets.rows)
        each = torch.nn.functional.cross_entropy(said, targets.tokens, reduction="sum")
        total, count = total + float(each), count + len(targets.tokens)
    return math.exp(min(700.0, total / max(1, count)))


@torch.no_grad()
def masked_accuracy(model: Decoder, rows: Rows, recipe: Recipe, mask_id: int,
                    device: str = "cpu") -> float:
    """Returns the share of masked tokens that are the most likely ones: each token is masked once, by
    complementary masks at random rates."""
    right, count, g = 0, 0, torch.Generator(device).manual_seed(recipe.seed)
    for part in batches(rows, recipe.evaluate_rows):
        part = part.to(device)
        views, rates = layout.complementary_views(part, recipe.block, g)
        batch = layout.noisy(part, views, rates, mask_id, recipe.block,
                             recipe.clean_attention == "causal", recipe.shift)
        said, _ = model(batch.inputs.tokens, batch.inputs.positions, batch.inputs.mask,
                        batch.masked.rows)
        said[:, mask_id] = -torch.inf
        right += int((said.argmax(-1) == batch.masked.tokens).sum())
        count += len(batch.masked.tokens)
    return right / max(1, count)


def decoded(program: str, model: Path, length: int = 48) -> dict:
    """Decodes a few prompts in every mode with `wf-run`; returns texts and tokens a pass by mode."""
    found = {}
    for mode in MODES:
        options = ("--row-cost", "0") if mode == "verify" else ()
        runs = [json.loads(wf_run(program, "generate", "--model", model, "--decode-mode", mode,
                                  "--temperature", "0", "--max-tokens", length, "-o", "json",
                                  *options, prompt)) for prompt in PROMPTS]
        passes = sum(run["timings"]["forward_passes"] - run["timings"]["prefill_passes"] for run in runs)
        tokens = [run["tokens"] for run in runs]
        found[mode] = {"texts": [run["text"] for run in runs], "tokens": tokens,
                       "tokens_per_pass": sum(map(len, tokens)) / max(1, passes)}
    return found


def questions(program: str, model: Path) -> str:
    """Returns the table of `wf-run eval quality` on the embedded model's held-out questions: right
    answers by mode."""
    modes = "ar,iterative" if (model / "dlm_config.json").exists() else "ar"
    return wf_run(program, "eval", "quality", "--model", model, "--modes", modes, "--samples", 1,
                  "--kv-dtype", "f32")


class Agreement(NamedTuple):
    """Distance of an export's logits from those of training: the largest difference of the rows before the
    first one with an activation on a rounding edge, their number, and the lowest cosine of all."""
    difference: float
    strict: int
    rows: int
    cosine: float

    def good(self) -> bool:
        return self.difference <= BOUND and self.cosine >= COSINE


def margins(model: Decoder, inputs: layout.Inputs) -> tuple[torch.Tensor, np.ndarray]:
    """Returns logits of one sequence `[T, vocabulary]`, and of each row the smallest distance of an
    activation from n + ½ 8-bit steps, where two programs may round differently."""
    found = []

    def note(module, x):
        scaled = x[0].float() / steps(x[0].float())
        found.append(((scaled - scaled.floor()) - 0.5).abs().amin(-1).flatten())

    hooks = [m.register_forward_pre_hook(note) for m in model.matrices().values()]
    with torch.no_grad():
        said = model(inputs.tokens, inputs.positions, inputs.mask)[0]
    for hook in hooks:
        hook.remove()
    return said, torch.stack(found).amin(0).numpy()


def agreement(program: str, directory: Path, model: Decoder, tokens: list) -> Agreement:
    """Compares an export as `wf-run logits` reads it with the model in f32. Products of other dtypes
    are those of training; here they are exact, because the export is."""
    how, ids = model.quantizer, torch.tensor([tokens])
    before, how.dtype, model.dtype = (how.dtype, model.dtype), torch.float32, torch.float32
    rows = Rows(ids, ids >= 0, torch.zeros_like(ids), torch.arange(len(tokens))[None])
    ours, margin = margins(model.eval(), layout.causal(rows))
    how.dtype, model.dtype = before
    theirs = exported_logits(program, directory, tokens)
    far = np.abs(ours.numpy() - theirs).max(-1)
    edges = (margin < EDGE).nonzero()[0]
    strict = int(edges[0]) if len(edges) and not how.haar else len(tokens)
    lengths = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
    cosine = (ours.numpy() * theirs).sum(-1) / lengths
    return Agreement(float(far[:strict].max(initial=0)), strict, len(tokens), float(cosine.min()))


def table(rows: list) -> str:
    """Returns a Markdown table of models, perplexities and accuracies."""
    lines = ["| model | perplexity, held out | masked tokens right |", "| --- | ---: | ---: |"]
    for name, measured, accuracy in rows:
        share = "–" if accuracy is None else f"{accuracy:.1%}"
        lines.append(f"| {name} | {measured:.4g} | {share} |")
    return "\n".join(lines)


def report(rows: list, found: dict, exported: Agreement) -> str:
    """Returns the report of a run: the table, and what `wf-run` decodes."""
    same = found["verify"]["tokens"] == found["ar"]["tokens"]
    lines = [table(rows), "", f"Logits of the export compared with training's: {exported.difference:.1e} apart at "
             f"most in {exported.strict} of {exported.rows} rows, before an activation is on a rounding "
             f"edge; lowest cosine {exported.cosine:.6f}. `verify` writes "
             f"{'the tokens of `ar`' if same else 'other tokens than `ar`'}.", "",
             "| mode | tokens a pass | text of the first prompt |", "| --- | ---: | --- |"]
    for mode, said in found.items():
        text = " ".join(said["texts"][0].split())[:160].replace("|", "\\|")
        lines.append(f"| {mode} | {said['tokens_per_pass']:.2f} | {text} |")
    return "\n".join(lines) + "\n"

