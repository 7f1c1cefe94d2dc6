"""Trains the model: autoregressive and block-diffusion paths together, from a seed.

The learning rate warms up, stays, and falls to zero over the last part of the run (warm-up, stable,
decay), all counted in tokens. It falls as 1 - √t, quickly at first, which leaves lower losses than a
straight line (Hägele et al. 2024, arXiv:2405.18392). `constant.pt` and the small `master.safetensors` are from the end of
the stable phase: a later run with more tokens goes on from there (--resume), as if it had been one.
"""
import argparse
import csv
import os
import shutil
import signal
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch

import data
import losses
import tokens
from checkpoint import CONSTANT, FINAL, LAST, MASTER, State
from coherence import Vocabulary
from model import LM
from presets import PRESETS, STAGES, Preset, Stage
from spelling import Speller

from bitnet.muon import Muon

SAVE_EVERY = 300  # seconds
LOG_EVERY = 20  # steps
# PyTorch 1.13, with which CI runs the tests, has no compiler and no fused optimizer on CPUs.
COMPILES = hasattr(torch, "compile")


def optimisers(model: LM, preset: Preset):
    """Muon for the ternary matrices, AdamW for the embedding and the norms."""
    matrices = [p for layer in model.layers for p in layer.parameters() if p.dim() == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [
        Muon(matrices, preset.rate, preset.weight_decay),
        torch.optim.AdamW(others, lr=preset.other_rate, betas=(0.9, 0.95), weight_decay=0.0,
                          **({"fused": True} if COMPILES else {})),
    ]


def rate(preset: Preset, stage: Stage, seen: int, start: int) -> float:
    """The share of the full learning rate."""
    decayed = 1 - (stage.tokens - seen) / (stage.tokens * preset.decay)
    return min(1.0, (seen - start + 1) / preset.warmup, 1 - min(1.0, max(0.0, decayed)) ** 0.5)


def told_rows(preset: Preset, each: int, seed: int, tokenizer, told: Path, trained: int):
    """Stories that a model told, `each` rows for a batch, from where a run stands that has trained
    on so many tokens with them."""
    model = preset.model
    rows = data.told_rows(told, tokenizer, seed, model.context, model.block)
    rows = islice(rows, trained // (preset.batch * model.context) * each, None)
    while True:
        yield list(islice(rows, each))


def stream(preset: Preset, seed: int, folder: Path, tokenizer, seen: int, told: list):
    """Batches of rows from where a run stands, the last ones from each of `told` in turn."""
    model = preset.model
    position = seen // model.context
    while True:
        number, first = divmod(position, data.ROWS)
        rows = data.shard(number, folder, tokenizer, seed, model.context, model.block)
        order = np.random.default_rng(number).permutation(len(rows))
        for i in range(first, len(rows) - preset.batch + 1, preset.batch):
            chosen = rows[order[i:i + preset.batch]].astype(np.int64)
            last = [row for part in told for row in next(part)]
            if last:
                chosen[-len(last):] = last
            yield torch.from_numpy(chosen)
        position = (number + 1) * data.ROWS


class Log:
    """Mean losses, printed and appended to curve.csv."""

    def __init__(self, path: Path, kinds: list[str]):
        self.path, self.kinds = path, kinds
        if not path.exists():
            self.append(["tokens", *kinds, "rate", "tokens_per_second"])
        self.reset()

    def append(self, row: list):
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow(row)

    def reset(self):
        self.sum, self.count, self.tokens, self.since = 0.0, 0, 0, time.monotonic()

    def add(self, parts: torch.Tensor, count: int):
        self.sum, self.count, self.tokens = self.sum + parts, self.count + 1, self.tokens + count

    def write(self, seen: int, learning_rate: float):
        if not self.count:
            return
        speed = self.tokens / (time.monotonic() - self.since)
        mean = [f"{value:.4g}" if value < 0.01 else f"{value:.4f}" for value in (self.sum / self.count).tolist()]
        self.append([seen, *mean, f"{learning_rate:.2e}", f"{speed:.0f}"])
        named = " ".join(f"{kind} {value}" for kind, value in zip(self.kinds, mean))
        print(f"{seen / 1e6:.2f} M tokens: {named} rate {learning_rate:.1e} {speed:.0f} tok/s",
              flush=True)
        self.reset()


def is_stable(preset: Preset, stage: Stage, seen: int) -> bool:
    """True while the rate does not fall yet."""
    return seen < stage.tokens * (1 - preset.decay)


def step(state: State, compiled, rows, preset: Preset, stage: Stage, speller) -> torch.Tensor:
    """Learns from a batch; the mean loss of each kind."""
    share = rate(preset, stage, state.seen, state.start)
    stable = is_stable(preset, stage, state.seen)
    for optimiser, peak in zip(state.optimisers, (preset.rate, preset.other_rate)):
        for group in optimiser.param_groups:
            group["lr"] = peak * share
    # Weight decay ends with the stable phase, as in BitNet b1.58.
    for group in state.optimisers[0].param_groups:
        group["weight_decay"] = preset.weight_decay if stable else 0.0
    parts = compiled(state.model, *losses.batch(rows, preset, stage, state.noise, speller))
    (parts * parts.new_tensor(list(losses.shares(stage).values()))).sum().backward()
    torch.nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)
    for optimiser in state.optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    state.seen += rows.numel()
    return parts.detach()


def adopt(tokenizer: Path, work: Path):
    """Takes over the tokenizer next to a checkpoint: the text's generator may have changed since."""
    work.mkdir(parents=True, exist_ok=True)
    if tokenizer.exists() and not (work / tokenizer.name).exists():
        shutil.copy(tokenizer, work)


def train(preset: Preset, stage: Stage, seed: int, work: Path, resume: Path | None = None,
          steps: int = 0, told: tuple[Path, ...] = ()):
    """Runs to the stage's tokens, or `steps` more steps; the state then. `told` are the files of
    stories that the stage needs: those that a model drew, and its most likely."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    if resume:
        adopt(resume.with_name("tokenizer.json"), work)
    tokenizer = tokens.load(work / "tokenizer.json", preset.model.vocab, seed)
    speller = Speller(tokenizer, Vocabulary()) if stage.spelling else None
    model = LM(preset.model).to(device)
    state = State(model, optimisers(model, preset), torch.Generator(device).manual_seed(seed))
    if resume:
        state.restore(resume)
    compiled = torch.compile(losses.loss, dynamic=False) if COMPILES else losses.loss
    ahead = steps * preset.batch * preset.model.context if steps else np.inf
    end = min(stage.tokens, state.seen + ahead)
    stopped = []
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: stopped.append(True))
    log, saved, count = Log(work / "curve.csv", list(losses.shares(stage))), time.monotonic(), 0
    needed = [each for each in preset.rows(stage)[1:] if each]
    sources = [told_rows(preset, each, seed, tokenizer, path, state.seen - state.start)
               for each, path in zip(needed, told, strict=True)]
    for rows in stream(preset, seed, work, tokenizer, state.seen, sources):
        stable = is_stable(preset, stage, state.seen)
        parts = step(state, compiled, rows.to(device), preset, stage, speller)
        log.add(parts.cpu(), rows.numel())
        count += 1
        if count % LOG_EVERY == 0:
            log.write(state.seen, state.optimisers[0].param_groups[0]["lr"])
        if stable and not is_stable(preset, stage, state.seen):
            state.save(work / CONSTANT)
            state.save_master(work / MASTER)
        if state.seen >= end or stopped:
            break
        if time.monotonic() - saved > SAVE_EVERY:
            state.save(work / LAST)
            saved = time.monotonic()
    log.write(state.seen, state.optimisers[0].param_groups[0]["lr"])
    state.save(work / (FINAL if state.seen >= stage.tokens else LAST))
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="cpu")
    parser.add_argument("--stage", choices=STAGES, default=STAGES[0])
    parser.add_argument("--tokens", type=float, help="length of the whole run; the last part decays")
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--resume", type=Path, help="a checkpoint, or a master file")
    parser.add_argument("--sampled", type=Path, help="stories that a model drew, by distil.py")
    parser.add_argument("--own", type=Path, help="its most likely stories, by distil.py")
    args = parser.parse_args()
    preset = PRESETS[args.preset]
    stage = getattr(preset, args.stage)
    stage = replace(stage, tokens=args.tokens or stage.tokens)
    for option, each in zip(("sampled", "own"), preset.rows(stage)[1:]):
        if bool(getattr(args, option)) != bool(each):
            parser.error(f"stage {args.stage} {'needs' if each else 'takes no'} --{option}")
    told = tuple(path for path in (args.sampled, args.own) if path)
    torch.set_num_threads(os.cpu_count() or 1)
    train(preset, stage, args.seed, args.work, args.resume, args.steps, told)


if __name__ == "__main__":
    main()
