"""The recipe on a model that trains in seconds."""
import contextlib
import random
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import torch

import decode
import losses
import tinyworld
import tokens
import train
from checkpoint import LAST, MASTER, State, load
from coherence import Vocabulary
from model import LM, masks
from noise import answers, divided
from presets import PRESETS
from spelling import Speller, misspelled
from tokens import BOS, BOT, EOS, MASK, USER

from bitnet.ternary import eight_bits

MICRO = PRESETS["micro"]


def row(*parts):
    """A row of the micro model's length, filled up with <|eos|>."""
    ids = [i for part in parts for i in (part if isinstance(part, list) else [part])]
    return torch.tensor([ids + [EOS] * (MICRO.model.context - len(ids))])


class Answers(unittest.TestCase):
    def test_only_answers_count_and_short_ones_twice(self):
        long = [7] * 60
        rows = row(BOS, USER, 9, BOT, 8, EOS, USER, 9, BOT, long, EOS, EOS)
        weight = answers(rows).weight[0].tolist()
        expected = [0] * 4 + [2, 2] + [0] * 3 + [1] * 61
        self.assertEqual(weight, expected + [0] * (len(weight) - len(expected)))


    def test_own_stories_are_filled_in_and_those_of_others_continued(self):
        story = row(BOS, USER, 9, BOT, [7] * 60, EOS, USER, 9, BOT, 8, EOS)
        found = answers(torch.cat([story, story]))
        continued, filled = (part.weight for part in divided(found, (1, 0, 1)))
        self.assertEqual(continued[0].tolist(), found.weight[0].tolist())
        self.assertEqual(continued[1].sum(), 0)
        self.assertEqual(filled[1].tolist(), found.weight[1].tolist())
        self.assertEqual(filled[0].nonzero().flatten().tolist(), [68, 69])

    def test_stories_that_the_model_drew_are_continued_instead_of_others(self):
        story = row(BOS, USER, 9, BOT, [7] * 60, EOS, USER, 9, BOT, 8, EOS)
        found = answers(torch.cat([story, story]))
        continued, filled = (part.weight for part in divided(found, (1, 1, 0)))
        self.assertEqual(continued[0].nonzero().flatten().tolist(), [68, 69])
        self.assertEqual(continued[1].tolist(), found.weight[1].tolist())
        self.assertEqual(filled[0].tolist(), found.weight[0].tolist())
        self.assertEqual(filled[1].sum(), 0)


class Noise(unittest.TestCase):
    def test_prompts_are_never_masked_and_ends_are(self):
        rows = row(BOS, USER, [9] * 20, BOT, [8] * 20, EOS).repeat(MICRO.batch, 1)
        g = torch.Generator().manual_seed(1)
        (_, pieces, _), wanted, _ = losses.batch(rows, MICRO, MICRO.first, g)
        for tokens, start in pieces:
            place = start[..., None] + torch.arange(tokens.shape[-1])
            self.assertTrue((tokens[place < 23] != MASK).all())
        for _, targets, weight in wanted:
            self.assertTrue(((targets == 8) | (targets == EOS))[weight > 0].all())

    def test_training_sees_what_decoding_sees(self):
        torch.manual_seed(0)
        model = decode.freeze(LM(MICRO.model))
        rows = torch.randint(5, 500, (1, MICRO.model.context))
        rows[0, 0] = BOS
        block = torch.cat([rows[:, 64:70], torch.full((1, 26), MASK)], 1)
        pieces = [(block[:, None], torch.tensor([[64]]))]
        with torch.no_grad():
            states = model(rows, pieces, masks(rows, pieces))
            cache = decode.Cache(model)
            clean = cache.forward(rows[0, :64].tolist(), True, True)
            noisy = cache.forward(block[0].tolist(), False, False)
            # An activation that is rounded the other way tips logits by a hundredth.
            for ours, theirs in ((states[0, :64], clean), (states[0, -32:], noisy)):
                torch.testing.assert_close(model.head(ours), theirs, atol=0.05, rtol=0)
            self.assertGreater(float(noisy.std()), 0.1)


class Spelling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        rng = random.Random(3)
        cls.documents = [tinyworld.document(rng, tinyworld.TRAIN) for _ in range(300)]
        cls.tokenizer = tokens.train((t for d in cls.documents for turn in d for t in turn), 512)
        cls.speller = Speller(cls.tokenizer, Vocabulary())

    def follows(self, ids):
        """True for each token that may stand where it does."""
        rows = torch.tensor([ids])
        allowed = self.speller.allowed(rows, torch.arange(len(ids)))
        return allowed[torch.arange(len(ids)), rows[0]].tolist()

    def test_all_that_the_generator_says_is_spelled(self):
        for document in self.documents:
            ids = tokens.conversation(self.tokenizer, document)
            self.assertTrue(all(self.follows(ids)), document)

    def test_a_word_that_is_none_is_found_where_it_becomes_one(self):
        def ids(*parts):
            return [i for part in parts for i in self.tokenizer.encode(part).ids]

        begun = ids("Once there was a fox named")
        self.assertTrue(all(self.follows([*begun, *ids(" Pip.")])))
        for wrong in ("What", "xq"):
            self.assertFalse(all(self.follows([*begun, *ids(wrong)])), wrong)
        half = ids(" wh")
        self.assertEqual(self.follows([*half, *half])[-len(half):][0], False, "a space in a word")

    def test_what_is_lost_is_the_probability_of_the_others(self):
        logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
        allowed = torch.tensor([[True, False, True]])
        torch.testing.assert_close(misspelled(logits, allowed), -torch.tensor([0.75]).log())


class Export(unittest.TestCase):
    def test_embeddings_are_eight_bits_that_bf16_holds(self):
        weight = torch.randn(50, 64, generator=torch.Generator().manual_seed(2))
        rounded = eight_bits(weight)
        self.assertTrue(torch.equal(rounded, rounded.bfloat16().float()))
        unit = rounded.abs().amax(-1, keepdim=True).div(127).log2().ceil().exp2()
        self.assertTrue(torch.equal((rounded / unit).round() * unit, rounded))
        self.assertLessEqual(float((rounded - weight).abs().max() / weight.abs().max()), 1 / 127)


class Training(unittest.TestCase):
    def test_twenty_steps_learn_and_go_on_from_where_they_were(self):
        eager = (torch._dynamo.config.patch(disable=True) if train.COMPILES
                 else contextlib.nullcontext())
        with tempfile.TemporaryDirectory() as folder, eager:
            work = Path(folder)
            train.train(MICRO, MICRO.first, 1, work, steps=12)
            state = train.train(MICRO, MICRO.first, 1, work, work / LAST, steps=8)
            self.assertEqual(state.seen, 20 * MICRO.batch * MICRO.model.context)
            rows = [line.split(",") for line in (work / "curve.csv").read_text().split()]
            self.assertEqual(rows[0][1:4], ["ar", "block", "draft"])
            self.assertLess(float(rows[-1][1]), 5.5)  # at first ln 512 = 6.2
            resumed = State(LM(MICRO.model), [], torch.Generator())
            resumed.restore(work / LAST)
            self.assertEqual(resumed.seen, state.seen)
            state.save_master(work / MASTER)
            self.assertEqual(load(work / MASTER).config, MICRO.model)

            own = work / "own.jsonl"
            own.write_text('{"prompt": "Tell me a story.", "text": "Once there was a fox."}\n')
            drawn = (MICRO.polish, MICRO.repolish)
            for stage, told in ((MICRO.longer, (own,)), *((stage, (own, own)) for stage in drawn)):
                state = train.train(MICRO, stage, 1, work, work / MASTER, steps=2, told=told)
                self.assertEqual(state.seen, resumed.seen + 2 * MICRO.batch * MICRO.model.context)
            own.write_text("")
            with self.assertRaisesRegex(SystemExit, "no story"):
                train.train(MICRO, MICRO.longer, 1, work, work / MASTER, steps=2, told=(own,))


if __name__ == "__main__":
    unittest.main()
