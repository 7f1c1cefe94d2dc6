"""Runs: resumed equals uninterrupted, whatever interrupts them; data, recipes and schedules."""
import contextlib
import csv
import errno
import io
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from small import BLOCK, CONTEXT, MASK, MODELS, dense, recipe, rows, student

from bitnet import checkpoint
from distill import data, recipe as recipes, schedule, trainer
from distill.parallel import Processes
from distill.recipe import Stage

STAGE = Stage("tcs", "tcs", 8, batch=2, rate=1e-3, matrix_rate=2e-3, quantize=4, clean=1.0, top=1.0,
              relation=0.1, heads=4, top_k=8, tau=2.0)


def made(folder: Path, stage=STAGE, **fields) -> trainer.Run:
    teacher = dense().eval()
    return trainer.Run(recipe(stage, log_every=2, **fields), 0, student(teacher), teacher, rows(6),
                       MASK, folder, Processes())


def quietly(run, steps=0):
    with contextlib.redirect_stdout(io.StringIO()):
        return trainer.train(run, steps)


class Folders(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)

    def weights(self, name):
        return checkpoint.read(self.folder / name / trainer.DONE)["model"]

    def assert_same(self, one, other):
        for name, tensor in self.weights(one).items():
            self.assertTrue(torch.equal(tensor, self.weights(other)[name]), name)


class Resuming(Folders):
    def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(self):
        self.assertTrue(quietly(made(self.folder / "whole")))
        for _ in range(2):
            self.assertFalse(quietly(made(self.folder / "parts"), steps=3))
        self.assertTrue(quietly(made(self.folder / "parts")))
        self.assert_same("whole", "parts")
        curves = []
        for name in ("whole", "parts"):
            with (self.folder / name / trainer.CURVE).open(newline="") as file:
                curves.append([row[0:2] for row in csv.reader(file)])
        self.assertEqual(curves[0][-1], curves[1][-1])
        steps = [int(row[0]) for row in curves[1][1:]]
        self.assertEqual(steps, sorted(set(steps)), "no step twice")

    def test_it_learns(self):
        run = made(self.folder, replace(STAGE, steps=60, quantize=10, relation=0.0))
        self.assertTrue(quietly(run))
        with (self.folder / trainer.CURVE).open(newline="") as file:
            lines = list(csv.DictReader(file))
        for loss in ("ce", "clean"):
            self.assertLess(float(lines[-1][loss]), float(lines[0][loss]) - 0.5, loss)

    def test_a_signal_ends_after_the_step_with_a_checkpoint(self):
        run, real, count = made(self.folder / "signal"), trainer.step, []

        def interrupted(*args):
            count.append(1)
            if len(count) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return real(*args)

        with mock.patch.object(trainer, "step", interrupted):
            self.assertFalse(quietly(run))
        self.assertEqual(checkpoint.read(self.folder / "signal" / trainer.LAST)["step"], 3)
        self.assertTrue(quietly(made(self.folder / "signal")))
        quietly(made(self.folder / "whole"))
        self.assert_same("whole", "signal")

    def test_a_kill_loses_the_steps_since_the_last_checkpoint_alone(self):
        script = (
            "import sys; sys.path[:0] = [%r, %r]; import test_runs, os; from pathlib import Path\n"
            "real, count = test_runs.trainer.step, []\n"
            "def step(*args):\n"
            "    count.append(1)\n"
            "    if len(count) == 6: os.kill(os.getpid(), 9)\n"
            "    return real(*args)\n"
            "test_runs.trainer.step = step\n"
            "test_runs.quietly(test_runs.made(Path(%r), checkpoint_every=0.0))\n"
        ) % (str(MODELS), str(Path(__file__).parent), str(self.folder / "killed"))
        ended = subprocess.run([sys.executable, "-c", script], check=False)
        self.assertEqual(ended.returncode, -signal.SIGKILL)
        self.assertEqual(checkpoint.read(self.folder / "killed" / trainer.LAST)["step"], 5)
        quietly(made(self.folder / "killed"))
        quietly(made(self.folder / "whole"))
        self.assert_same("whole", "killed")

    def test_a_loss_that_is_not_finite_ends_with_the_last_good_checkpoint(self):
        quietly(made(self.folder), steps=3)
        run, real = made(self.folder), trainer.objectives.total

        def broken(parts, stage):
            return real(parts, stage) * float("nan")

        with mock.patch.object(trainer.objectives, "total", broken):
            with self.assertRaisesRegex(SystemExit, "step 3: the loss .* not finite.*last.pt"):
                quietly(run)
        self.assertEqual(checkpoint.read(self.folder / trainer.LAST)["step"], 3)

    def test_a_full_disk_ends_with_the_last_good_checkpoint(self):
        quietly(made(self.folder), steps=3)
        full = OSError(errno.ENOSPC, "No space left on device")
        for error in (full, RuntimeError("PytorchStreamWriter failed writing file data/0")):
            with mock.patch.object(torch, "save", side_effect=error):
                with self.assertRaisesRegex(SystemExit, "disk full\\? .*last.pt still holds"):
                    quietly(made(self.folder), steps=1)
            self.assertEqual(checkpoint.read(self.folder / trainer.LAST)["step"], 3)
            self.assertEqual(list(self.folder.glob("*.part")), [])

    def test_a_checkpoint_of_another_recipe_is_refused(self):
        quietly(made(self.folder), steps=1)
        with self.assertRaisesRegex(SystemExit, "of another recipe"):
            quietly(made(self.folder, replace(STAGE, matrix_rate=0.0)))


class Rows(Folders):
    def test_samples_are_packed_whole_padded_and_cut_where_too_long(self):
        lengths = (5, 40, 9, 17, 2)
        ids = [list(range(1, n + 1)) for n in lengths]
        samples = data.Samples.of((i, [True] * len(i)) for i in ids)
        samples.save(self.folder / "some.npz")
        packed = data.pack(data.Samples.load(self.folder / "some.npz"), CONTEXT, BLOCK, MASK, 1)
        self.assertEqual(int(packed.counts.sum()), sum(lengths))
        self.assertTrue(((packed.tokens == MASK) | packed.counts).all())
        starts = packed.position == 0
        self.assertTrue((starts.nonzero()[:, 1] % BLOCK == 0).all(), "each begins at a block")
        known = packed.counts & (packed.sample >= 0)
        want = (packed.position + 1) % 100
        cut = packed.tokens != want  # the second half of the sample of 40
        self.assertEqual(int((cut & known).sum()), 8)

    def test_an_epoch_has_every_row_once_and_steps_are_their_own(self):
        which = rows(6)
        seen = [data.at_step(which, step, 2, 1).tokens for step in range(3)]
        self.assertEqual(sorted(torch.cat(seen)[:, 0].tolist()), sorted(which.tokens[:, 0].tolist()))
        again = data.at_step(which, 1, 2, 1).tokens
        self.assertTrue(torch.equal(seen[1], again))
        halves = [data.share(data.at_step(which, 0, 2, 1), rank, 2).tokens for rank in (0, 1)]
        self.assertTrue(torch.equal(torch.cat(halves), seen[0]))

    def test_the_schedule(self):
        stage = replace(STAGE, steps=100, warmup=0.1, decay=0.5, quantize=40)
        found = [schedule.rate(stage, step) for step in range(100)]
        self.assertAlmostEqual(found[0], 0.1)
        self.assertEqual(found[10:50], [1.0] * 40)
        self.assertTrue(all(a > b > 0 for a, b in zip(found[50:], found[51:])))
        for curve in ("linear", "cosine"):
            found = [schedule.strength(replace(stage, curve=curve), step) for step in (0, 20, 40, 90)]
            np.testing.assert_allclose(found, [0, 0.5, 1, 1])


class Recipes(Folders):
    def load(self, text):
        path = self.folder / "r.yaml"
        path.write_text(text)
        return recipes.load(path)

    def test_all_recipes_are_well_formed(self):
        found = {path.stem: recipes.load(path) for path in (MODELS / "distill/recipes").glob("*.yaml")}
        self.assertEqual(set(found), {"smollm2-135m", "smollm2-135m-gpu", "tinyworld", "qwen3-1.7b"})
        for name, each in found.items():
            self.assertEqual(each.name, name)
            self.assertLessEqual({"tcs"}, {stage.objective for stage in each.stages})

    def test_what_is_wrong_is_named(self):
        good = ("name: a\nteacher: {directory: t}\ndata: {}\nstages:\n"
                "- {name: s, objective: distill, steps: 4, logits: 1, rate: 1e-4}\n")
        self.assertEqual(self.load(good).stages[0].rate, 1e-4)
        for old, new, message in (
            ("rate: 1e-4", "raet: 1", "stage 1: no field `raet`"),
            ("rate: 1e-4", "rate: much", "`?rate`? should be a number"),
            ("steps: 4", "steps: four", "`steps` should be int"),
            ("logits: 1", "top: 1", "distill has no loss `top`"),
            ("objective: distill", "objective: melt", "`melt` of stage s is none of"),
            ("teacher: {directory: t}", "teacher: {}", "needs one of package, directory and shape"),
            ("name: a", "name: a\nhaar: true\nq_sparse: 0.5", "excludes it"),
            ("name: a", "name: a\nblock: 48", "not a multiple of the block"),
            ("stages:", "shift: 2\nstages:", "`shift` 0 or 1"),
        ):
            self.assertIn(old, good)
            with self.assertRaisesRegex(SystemExit, message):
                self.load(good.replace(old, new))


if __name__ == "__main__":
    unittest.main()
