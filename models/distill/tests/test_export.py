"""Exports, read by `wf-run` (WF_RUN, else target/debug/wf-run)."""
import contextlib
import io
import json
import os
import tempfile
import unittest
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from small import MASK, MODELS, SHAPES, dense, logits, recipe, student

from bitnet import witness
from bitnet.export import pack
from bitnet.ternary import ternary
from bitnet.witness import wf_run
from distill import evaluate, hf, layout, line, recipe as recipes
from distill.parallel import Processes
from distill.recipe import Stage

# The program reads variables that begin so.
PROGRAM = os.environ.pop("WF_RUN", None) or str(MODELS.parent / "target/debug/wf-run")
DIFFUSE = Stage("diffuse", "diffuse", 4, clean=1.0)
TOKENIZER = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
FACTS = {"mask_id": MASK, "bos_token_id": 1, "eos_token_id": 2}


def causal(tokens):
    """One sequence `[1, T]` as an autoregressive model reads it."""
    places = torch.arange(tokens.shape[1])[None]
    return layout.causal(layout.Rows(tokens, tokens >= 0, torch.zeros_like(tokens), places))


class Export(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)
        (self.folder / "text").mkdir()
        (self.folder / "text/tokenizer.json").write_text(json.dumps(TOKENIZER))

    def saved(self, model, name, **fields):
        out = self.folder / name
        hf.save(model, out, self.folder / "text", recipe(DIFFUSE, **fields), FACTS, ["diffuse"])
        return out

    def test_four_rows_share_a_byte(self):
        values, _ = ternary(torch.randn(8, 16, generator=torch.Generator().manual_seed(1)))
        packed = pack(values)
        again = torch.cat([(packed >> 2 * i & 3).float() - 1 for i in range(4)])
        self.assertTrue(torch.equal(again, values))
        with self.assertRaisesRegex(ValueError, "multiple of four"):
            pack(values[:6])

    def test_a_dense_export_is_what_was_read(self):
        for family in SHAPES:
            model = dense(family)
            out = self.folder / family
            hf.save(model, out, self.folder / "text", recipe(DIFFUSE), FACTS, [])
            again = hf.load(out)
            self.assertEqual(again.shape, model.shape)
            for name, tensor in model.state_dict().items():
                self.assertTrue(torch.equal(tensor, again.state_dict()[name]), name)

    def test_dense_models_have_the_logits_of_transformers(self):
        """Those that `tests/golden` has of Qwen2 and Qwen3, and of a Llama those of `wf-run`."""
        for family in ("qwen2", "qwen3"):
            golden = MODELS.parent / "tests/golden/models" / family
            tokens = torch.from_numpy(np.load(golden / "tokens.npy"))[None]
            want = torch.from_numpy(np.load(golden / "causal.npy"))
            found = logits(hf.load(golden), causal(tokens))[0]
            torch.testing.assert_close(found, want, atol=1e-3, rtol=1e-3)
        hf.save(dense(), self.folder / "llama", self.folder / "text", recipe(DIFFUSE), FACTS, [])
        tokens = list(range(20))
        want = torch.from_numpy(witness.logits(PROGRAM, self.folder / "llama", tokens))
        found = logits(dense(), causal(torch.tensor([tokens])))[0]
        torch.testing.assert_close(found, want, atol=1e-3, rtol=1e-3)

    @unittest.skipUnless(find_spec("transformers"), "`check` runs this, with the lock's transformers")
    def test_a_ternary_llama_has_the_logits_of_transformers(self):
        model = student(dense(), strength=1.0)
        out, tokens = self.saved(model, "bitnet"), torch.arange(20)[None]
        with torch.no_grad():
            want = witness.theirs(out)(tokens).logits[0].numpy()
        _, cosine = witness.agreement(logits(model, causal(tokens))[0].numpy(), want)
        self.assertGreater(cosine, evaluate.COSINE)

    def test_new_tokens_are_means_of_the_others(self):
        hf.save(dense(), self.folder / "d", self.folder / "text", recipe(DIFFUSE), FACTS, [])
        model = hf.load(self.folder / "d", vocab=50)
        table = model.model.embed_tokens.weight
        self.assertEqual((model.shape.vocab, len(table)), (50, 50))
        torch.testing.assert_close(table[49], table[:48].mean(0))

    def test_an_export_has_the_logits_of_training_in_wf_run(self):
        tokens = torch.randint(0, MASK, (24,), generator=torch.Generator().manual_seed(4)).tolist()
        for family in SHAPES:
            for how in ({}, {"haar": True}):
                model = student(dense(family), strength=1.0, **how)
                for name, parameter in model.named_parameters():
                    if "sub_norm" in name:
                        torch.nn.init.uniform_(parameter, 0.2, 0.6)
                out = self.saved(model, f"{family}{len(how)}", haar=bool(how))
                found = evaluate.agreement(PROGRAM, out, model, tokens)
                self.assertTrue(found.good(), f"{family} {how} {found}")
                self.assertGreater(found.strict, 0)
                # Something else than what was trained is found.
                model.quantizer.strength = 0.5
                self.assertFalse(evaluate.agreement(PROGRAM, out, model, tokens).good())

    def test_what_was_trained_is_stated(self):
        sparse = self.saved(student(dense(), strength=1.0, keep=0.7), "sparse", q_sparse=0.7)
        said = wf_run(PROGRAM, "inspect", sparse)
        self.assertIn("autoregressive and block diffusion, stages diffuse", said)
        self.assertIn("--activation-sparsity topk:0.7", said)
        self.assertIn("blocks of 8, causal attention", said)
        haar = self.saved(student(dense(), strength=1.0, haar=True), "haar", haar=True)
        self.assertIn("ternary in the Haar basis, stored as dense", wf_run(PROGRAM, "inspect", haar))
        blocks = student(dense(), strength=1.0, keep=0.5, block=4)
        with self.assertRaisesRegex(SystemExit, "cannot be exported"):
            self.saved(blocks, "blocks")


class WholeLine(unittest.TestCase):
    """Every recipe, three steps a stage on a small model, to texts that `wf-run` decodes."""

    def test_recipes_run_from_start_to_served_model(self):
        for path in sorted((MODELS / "distill/recipes").glob("*.yaml")):
            with self.subTest(path.stem), tempfile.TemporaryDirectory() as folder:
                small = replace(line.shrunken(recipes.load(path)), threads=1)
                made = line.Line(small, Path(folder), PROGRAM, Processes())
                with contextlib.redirect_stdout(io.StringIO()):
                    made.prepare()
                    self.assertTrue(all(made.train(i) for i in range(len(small.stages))))
                    made.export()
                    said = made.evaluate()
                self.assertIn("`verify` writes the tokens of `ar`", said)
                for mode in evaluate.MODES:
                    self.assertIn(f"| {mode} |", said)
                for stage in small.stages:
                    self.assertTrue(stage.dense or f"| ternary, after {stage.name} |" in said)


if __name__ == "__main__":
    unittest.main()
