"""The line of a recipe: its models before and after each stage."""
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from bitnet import checkpoint
from bitnet.witness import wf_run

from . import data, evaluate, hf, prepare, trainer
from .model import Decoder, Quantizer
from .parallel import Processes
from .recipe import Data, Recipe, Source, Stage

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CALIBRATION_ROWS = 2
QUESTIONS_FROM = 8  # evaluated rows, below which a run is too small for questions


@dataclass
class Line:
    """A recipe at work in a folder."""
    recipe: Recipe
    work: Path
    program: str  # wf-run
    processes: Processes

    def prepare(self):
        """Makes teacher, tokenizer and samples; one process does, the others wait."""
        if self.processes.first:
            prepare.prepare(self.recipe, self.work, self.program)
        self.processes.wait()
        self.directory, self.facts = prepare.prepare(self.recipe, self.work, self.program)
        self.mask_id, self.vocab = self.facts["mask_id"], self.facts["vocab"]

    def done(self, stage: Stage) -> bool:
        return (self.work / stage.name / trainer.DONE).exists()

    def before(self, number: int | None, dense: bool) -> Stage | None:
        """Returns the last stage before one, of the dense teacher or of the student; with None, the
        last that is done."""
        stages = self.recipe.stages[:number]
        found = [s for s in stages if s.dense == dense and (number is not None or self.done(s))]
        return found[-1] if found else None

    def dense(self, number: int | None = None) -> Decoder:
        """Returns the dense model: the teacher, and where the student starts."""
        dtype = DTYPES[self.recipe.teacher_dtype]
        model = hf.load(self.directory, None, self.vocab, dtype)
        if stage := self.before(number, dense=True):
            self.read(model, stage)
        return model

    def read(self, model: Decoder, stage: Stage):
        """Reads what a stage left."""
        path = self.work / stage.name / trainer.DONE
        if not path.exists():
            raise SystemExit(f"stage {stage.name} is not done: run it first (`python -m distill "
                             f"{stage.objective} RECIPE`)")
        model.load_state_dict(checkpoint.read(path)["model"])

    def started(self, number: int | None = None) -> Decoder:
        """Returns the student before the first stage: the dense weights with sub-norms."""
        r = self.recipe
        how = Quantizer(1.0, DTYPES[r.dtype], r.q_sparse, r.q_sparse_block, r.haar, r.sub_norms)
        model = hf.load(self.directory, how, self.vocab, DTYPES[r.dtype])
        if stage := self.before(number, dense=True):
            path = self.work / stage.name / trainer.DONE
            model.load_state_dict(checkpoint.read(path)["model"], strict=False)
        if r.calibrate:
            rows = self.rows("train", r.context)
            trainer.calibrate(model, data.at_step(rows, 0, CALIBRATION_ROWS, r.seed))
        return model

    def student(self, number: int | None = None) -> Decoder:
        """Returns the student before a stage; with None, after the last that is done."""
        model = self.started(number)
        if stage := self.before(number, dense=False):
            self.read(model, stage)
        return model

    def rows(self, name: str, context: int) -> data.Rows:
        """Returns the packed rows of `train` or `held_out`."""
        samples = data.Samples.load(self.work / f"{name}.npz")
        return data.pack(samples, context, self.recipe.block, self.mask_id, self.recipe.seed)

    def train(self, number: int, steps: int = 0) -> bool:
        """Runs a stage, unless it is done; returns false if it was interrupted."""
        stage = self.recipe.stages[number]
        if self.done(stage):
            return True
        learner = self.dense(number) if stage.dense else self.student(number)
        teacher = None
        if stage.logits or stage.relation or stage.top:
            teacher = self.dense(number).eval().requires_grad_(False).to(self.processes.device)
        if stage.dense:
            learner.dtype = DTYPES[self.recipe.dtype]
        learner = self.processes.divide(learner)
        run = trainer.Run(self.recipe, number, learner, teacher,
                          self.rows("train", stage.context or self.recipe.context), self.mask_id,
                          self.work / stage.name, self.processes)
        return trainer.train(run, steps)

    def export(self) -> Path:
        """Writes the student as a directory and, packed by `wf-run`, as one file; the latter's path."""
        stages = [s.name for s in self.recipe.stages if not s.dense and self.done(s)]
        out, packed = self.work / "hf", self.work / "model.wf.safetensors"
        shutil.rmtree(out, ignore_errors=True)
        hf.save(self.student(), out, self.work / "text", self.recipe, self.facts, stages)
        if dense := self.before(None, dense=True):
            trained = self.work / "trained-teacher"
            hf.save(self.dense(), trained, self.work / "text", self.recipe, self.facts, [])
            print(f"{trained}: the dense teacher after {dense.name}")
        wf_run(self.program, "convert", "--force", "--head", "q8", out, packed)
        print(f"{out} and {packed}: the student after {', '.join(stages) or 'no stage'}")
        return packed

    def evaluate(self) -> str:
        """Writes and returns the report: all models on held-out text, and what `wf-run` decodes."""
        recipe, device = self.recipe, self.processes.device
        rows = self.rows("held_out", recipe.context)

        def measured(name: str, model: Decoder, masked: bool):
            model = model.to(device).eval()
            accuracy = masked_accuracy(model) if masked else None
            return name, evaluate.perplexity(model, rows, recipe.evaluate_rows, device), accuracy

        def masked_accuracy(model: Decoder) -> float:
            return evaluate.masked_accuracy(model, rows, recipe, self.mask_id, device)

        found = [measured("teacher", self.dense(), False),
                 measured("ternary, before training", self.started(), True)]
        for number, stage in enumerate(recipe.stages):
            if not stage.dense and self.done(stage):
                found.append(measured(f"ternary, after {stage.name}", self.student(number + 1), True))
        tokens = rows.tokens[0][rows.sample[0] == 0].tolist()
        exported = evaluate.agreement(self.program, self.work / "hf", self.student().cpu(), tokens)
        decoded = evaluate.decoded(self.program, self.work / "model.wf.safetensors")
        text = evaluate.report(found, decoded, exported)
        trained = self.work / "trained-teacher"
        if recipe.data.tinyworld and trained.exists() and recipe.evaluate_rows >= QUESTIONS_FROM:
            for name, model in (("Teacher", trained), ("Student", self.work / "hf")):
                text += f"\n{name}, the evaluation's questions:\n\n" + evaluate.questions(self.program, model)
        (self.work / "report.md").write_text(text)
        return text


def shrunken(recipe: Recipe) -> Recipe:
    """Returns a recipe of three steps a stage, on a model of two layers from random weights."""
    small = {"family": recipe.teacher.family, "hidden": 64, "ff": 128, "layers": 2, "heads": 2,
             "kv_heads": 1, "head_dim": 32}
    stages = tuple(replace(
        stage, steps=3, batch=2, context=0, quantize=min(stage.quantize, 2), layer=-1)
        for stage in recipe.stages)
    return replace(recipe, teacher=Source(shape=small), stages=stages, context=4 * recipe.block,
                   data=Data(tinyworld=20_000, vocab=512, held_out=0.2), evaluate_rows=4, log_every=1,
                   mask_token="<|mask|>", dtype="float32", teacher_dtype="float32")

