"""The loop of a stage. A step depends on the seed and its number alone, so a run that was interrupted
and resumed is the run that was not, bit for bit on a CPU with a fixed number of threads."""
import math
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from bitnet import checkpoint
from bitnet.muon import Muon

from . import data, objectives, schedule
from .model import Decoder, SubNorm
from .parallel import Processes
from .progress import Progress
from .recipe import LOSSES, Recipe, Stage

# The newest checkpoint of a stage, and its weights when it is done.
LAST, DONE, CURVE = "last.pt", "done.pt", "curve.csv"


@dataclass
class Run:
    """A stage of a recipe and what it works on."""
    recipe: Recipe
    number: int  # of the stage
    student: Decoder
    teacher: Decoder | None
    rows: data.Rows
    mask_id: int
    folder: Path
    processes: Processes

    @property
    def stage(self) -> Stage:
        return self.recipe.stages[self.number]


def optimizers(model: Decoder, stage: Stage, processes: Processes) -> list:
    """Muon for the matrices of layers if the stage has a rate for it, AdamW for all others."""
    matrices = [m.weight for m in model.matrices().values()] if stage.matrix_rate else []
    if matrices and processes.count > 1:
        raise SystemExit("Muon needs whole matrices: leave out `matrix_rate` with several processes")
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    found = [torch.optim.AdamW(others, lr=stage.rate, betas=(0.9, 0.95),
                               weight_decay=stage.weight_decay)]
    if matrices:
        found.append(Muon(matrices, stage.matrix_rate, stage.weight_decay))
    return found


def calibrate(model: Decoder, rows: data.Rows):
    """Sets the weights of sub-norms to the length that their inputs have in the dense model, so that
    they change little at first."""
    norms = [module for module in model.modules() if isinstance(module, SubNorm)]
    lengths, how = {}, model.quantizer
    hooks = [module.register_forward_pre_hook(
        lambda module, x: lengths.__setitem__(module, x[0].float().square().mean().sqrt()))
        for module in norms]
    before, how.strength = how.strength, 0.0
    inputs = objectives.layout.causal(rows)
    with torch.no_grad():
        model(inputs.tokens, inputs.positions, inputs.mask, torch.zeros(1, dtype=torch.long))
        for module, length in lengths.items():
            module.weight.fill_(float(length))
    how.strength = before
    for hook in hooks:
        hook.remove()


class Interrupts:
    """Notes SIGINT and SIGTERM, so that the step at work ends first."""

    def __enter__(self):
        self.seen = False
        self.old = {sign: signal.signal(sign, self.note) for sign in (signal.SIGINT, signal.SIGTERM)}
        return self

    def note(self, *_):
        self.seen = True

    def __exit__(self, *_):
        for sign, handler in self.old.items():
            signal.signal(sign, handler)


def noise(run: Run, step: int) -> torch.Generator:
    """Returns the generator of a step's masks."""
    device = run.processes.device
    number = ((run.recipe.seed * 1009 + run.number) * 1_000_003 + step) * 64 + run.processes.rank
    return torch.Generator(device).manual_seed(number % 2**63)


def step(run: Run, found: list, number: int) -> dict:
    """Learns from a step's rows, and returns the parts of the loss."""
    stage, student, processes = run.stage, run.student, run.processes
    share = schedule.rate(stage, number)
    for optimizer, peak in zip(found, (stage.rate, stage.matrix_rate)):
        for group in optimizer.param_groups:
            group["lr"] = peak * share
    if student.quantizer:
        student.quantizer.strength = schedule.strength(stage, number)
    rows = data.at_step(run.rows, number, stage.batch, run.recipe.seed + run.number)
    rows = data.share(rows, processes.rank, processes.count).to(processes.device)
    parts = objectives.parts(student, run.teacher, rows, stage, run.recipe, run.mask_id,
                             noise(run, number))
    loss = objectives.total(parts, stage)
    loss.backward()
    length = torch.nn.utils.clip_grad_norm_(student.parameters(), stage.clip)
    if processes.count > 1:
        length = length.full_tensor()
    if processes.any(not math.isfinite(float(loss)) or not math.isfinite(float(length))):
        last = run.folder / LAST
        kept = f"the last good checkpoint is {last}" if last.exists() else "there is no checkpoint yet"
        said = " ".join(f"{name} {float(value):.4g}" for name, value in parts.items())
        raise SystemExit(f"stage {stage.name}, step {number}: the loss ({said}) or its gradient is not "
                         f"finite; {kept}. Lower `rate`, or `clip`")
    for optimizer in found:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return {name: processes.mean(value.detach()) for name, value in parts.items()}


def save(run: Run, found: list, done: int, seen: int):
    """Writes the newest checkpoint."""
    weights, states = run.processes.gathered(run.student, found)
    if run.processes.first:
        checkpoint.write(run.folder / LAST, {
            "model": weights, "optimizers": states, "step": done, "seen": seen,
            "stage": run.stage.name})


def resume(run: Run, found: list) -> tuple[int, int]:
    """Returns the steps that are done and their tokens, after putting back what they left."""
    last = run.folder / LAST
    if not last.exists():
        return 0, 0
    saved = checkpoint.read(last)
    try:
        run.processes.restore(run.student, found, saved["model"], saved["optimizers"])
    except (RuntimeError, ValueError, KeyError) as error:
        raise SystemExit(f"{last} is of another recipe ({error}): remove it, or change `name`") from error
    return saved["step"], saved["seen"]


def train(run: Run, steps: int = 0) -> bool:
    """Runs a stage to its end, or for so many more steps. Returns false if it was interrupted."""
    stage, recipe, folder = run.stage, run.recipe, run.folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(recipe.threads or os.cpu_count() or 1)
    run.student.train()
    run.student.checkpointing = recipe.recompute
    found = optimizers(run.student, stage, run.processes)
    done, seen = resume(run, found)
    end = min(stage.steps, done + steps) if steps else stage.steps
    kinds = [loss for loss in LOSSES if getattr(stage, loss)]
    log = Progress(folder / CURVE, stage.name, stage.steps, done, kinds) if run.processes.first else None
    saved = time.monotonic()
    with Interrupts() as interrupts:
        while done < end and not run.processes.any(interrupts.seen):
            parts = step(run, found, done)
            tokens = stage.batch * run.rows.tokens.shape[1]
            done, seen = done + 1, seen + tokens
            if log:
                log.add(parts, tokens)
                if done % recipe.log_every == 0 or done == end:
                    log.write(seen, found[0].param_groups[0]["lr"], schedule.strength(stage, done - 1))
            late = time.monotonic() - saved > recipe.checkpoint_every
            if done < end and run.processes.any(late):
                save(run, found, done, seen)
                saved = time.monotonic()
        save(run, found, done, seen)
    if done < stage.steps:
        if run.processes.first and not steps:
            print(f"stage {stage.name} stopped after step {done}: the same command goes on from there")
        return False
    weights, _ = run.processes.gathered(run.student, found)
    if run.processes.first:
        checkpoint.write(folder / DONE, {"model": weights, "stage": stage.name})
    run.processes.wait()
    return True
