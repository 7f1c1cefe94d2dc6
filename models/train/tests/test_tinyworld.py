"""TinyWorld: the same from the same seed, held-out worlds stay out, and answers are right."""
import io
import json
import random
import re
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent))

import coherence  # noqa: E402
import distil  # noqa: E402
import tinyworld  # noqa: E402
from tinyworld import HELDOUT, TRAIN, facts, split, words  # noqa: E402

EVAL = Path(__file__).parent.parent.parent / "eval"


def stories(which, count=1500):
    rng = random.Random(1)
    return [tinyworld.story(rng, which) for _ in range(count)]


def answers(category, which=TRAIN, count=300):
    rng = random.Random(2)
    return [tinyworld.task(rng, category, which) for _ in range(count)]


def numbers(text):
    return [int(n) for n in re.findall(r"\d+", text)]


def listed(question):
    return question.split(": ")[1].rstrip(".?").split(", ")


class Documents(unittest.TestCase):
    def test_a_seed_gives_the_same_documents(self):
        def some():
            rng = random.Random(3)
            return [tinyworld.document(rng, TRAIN) for _ in range(200)]

        self.assertEqual(some(), some())

    def test_documents_fit_the_context(self):
        rng = random.Random(4)
        for _ in range(3000):
            said = " ".join(t for turn in tinyworld.document(rng, TRAIN) for t in turn)
            self.assertLess(len(re.findall(r"[A-Za-z]+|\d|[^\w\s]", said)), 420)
            self.assertTrue(said.isascii())
            self.assertNotRegex(said, r"[{}\[\]<>|]|  ")

    def test_every_word_is_in_the_list(self):
        vocabulary = coherence.Vocabulary(EVAL / "vocabulary.json")
        rng = random.Random(5)
        for i in range(2000):
            for turn in tinyworld.document(rng, (TRAIN, HELDOUT)[i % 10 == 0]):
                for said in turn:
                    self.assertTrue(coherence.spelled(said, vocabulary), said)

    def test_names_are_no_words(self):
        known = coherence.Vocabulary(EVAL / "vocabulary.json").words
        self.assertEqual([n for n in words.NAMES if n.lower() in known], [])
        self.assertEqual(len(set(words.NAMES)), len(words.NAMES))


class HeldOut(unittest.TestCase):
    def test_no_held_out_world_is_in_training(self):
        for which in (TRAIN, HELDOUT):
            for story in stories(which, 600):
                hero, kind = story.names[0], story.species[0]
                self.assertTrue(split.fits(which, "plot", story.plot, hero))
                if kind not in ("girl", "boy"):
                    self.assertTrue(split.fits(which, "species", kind, hero))
                for i in range(1, len(story.names)):
                    self.assertTrue(split.fits(which, "meet", *story.names[: i + 1]))

    def test_held_out_names_and_things_are_in_no_training_story(self):
        held = words.HELD_NAMES | words.HELD_THINGS
        for story in stories(TRAIN):
            self.assertFalse(held & (set(story.names) | set(story.things)), story.text)
        self.assertTrue(any(words.HELD_NAMES & set(s.names) for s in stories(HELDOUT, 300)))

    def test_no_held_out_sum_is_in_training(self):
        taught = {tuple(numbers(q)) for q, _ in answers("add", TRAIN, 3000)}
        held = {tuple(numbers(q)) for q, _ in answers("add", HELDOUT)}
        self.assertEqual(taught & held, set())


class Distillation(unittest.TestCase):
    def test_what_is_not_good_is_told_again(self):
        stories = {"a": ["xq.", "A fox."], "b": ["A fox."], "c": [None, "xq."]}
        asked = dict.fromkeys(stories, {"asked": ["fox"], "thing": None})
        told = {prompt: iter(texts) for prompt, texts in stories.items()}

        def tell(url, prompts, sampling):
            return [next(told[prompt]) for prompt in prompts]

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "own.jsonl"
            argv = ["distil.py", str(file), "--count", "3", "--attempts", "2"]
            with (
                mock.patch.multiple(distil, wait=mock.DEFAULT, told=tell, requests=lambda *_: asked),
                mock.patch.object(sys, "argv", argv), redirect_stdout(io.StringIO()) as out,
            ):
                distil.main()
            kept = [json.loads(line)["prompt"] for line in file.read_text().splitlines()]
        self.assertEqual(kept, ["b", "a"])
        self.assertEqual(out.getvalue(), "2 of 3 stories kept\n")


class Stories(unittest.TestCase):
    def test_a_question_has_one_answer(self):
        for story in stories(TRAIN):
            known = {}
            for question, answer in story.questions:
                self.assertEqual(known.setdefault(question, answer), answer, story.text)

    def test_stories_hold_together(self):
        vocabulary = coherence.Vocabulary(EVAL / "vocabulary.json")
        for story in stories(TRAIN) + stories(HELDOUT, 300):
            facts = {"asked": story.asked + story.topic, "thing": story.lost}
            self.assertTrue(all(word in story.prompt for word in story.topic), story.prompt)
            checks = coherence.checks(story.text, facts, vocabulary)
            self.assertTrue(all(checks.values()), f"{checks} {story.prompt} {story.text}")

    def test_every_plot_is_told_in_many_ways(self):
        rng = random.Random(6)
        for plot in tinyworld.PLOTS:
            told = {tinyworld.story(rng, TRAIN, plot).text for _ in range(50)}
            self.assertEqual(len(told), 50)
        self.assertGreaterEqual(len(tinyworld.PLOTS), 60)


class Coherence(unittest.TestCase):
    vocabulary = coherence.Vocabulary(EVAL / "vocabulary.json")

    def failed(self, text, **story):
        checks = coherence.checks(text, story, self.vocabulary)
        return [name for name, good in checks.items() if not good]

    def test_broken_words_strange_names_and_other_things_are_seen(self):
        good = "Mia was a small fox. Mia lost a red kite. Then Pip the bear found the red kite."
        story = {"asked": ["Mia", "fox"], "thing": "kite"}
        self.assertEqual(self.failed(good, **story), [])
        self.assertEqual(self.failed(good.replace("small", "smalle"), **story), ["spelled"])
        self.assertEqual(self.failed(good.replace("fox", "hen"), **story), ["asked"])
        self.assertEqual(self.failed(good.replace("Mia lost", "Maya lost"), **story), ["named"])
        for wrong in ("the red ball", "the blue kite"):
            text = good.replace("the red kite", wrong)
            self.assertEqual(self.failed(text, **story), ["found"])


class Tasks(unittest.TestCase):
    def test_sums_and_differences(self):
        for question, answer in answers("add") + answers("double"):
            a, b = (numbers(question) * 2)[:2]
            self.assertEqual(numbers(answer)[-1], a + b)
        for question, answer in answers("subtract"):
            a, b = sorted(numbers(question), reverse=True)
            self.assertEqual(numbers(answer)[-1], a - b)

    def test_steps_are_true(self):
        for category in ("add", "subtract", "double", "word problem"):
            for _, answer in answers(category):
                steps = re.findall(r"([\d +-]+) = (\d+)\.", answer)
                self.assertTrue(steps, answer)
                for left, right in steps:
                    self.assertEqual(eval(left), int(right), answer)

    def test_word_problems(self):
        for question, answer in answers("word problem"):
            a, b = numbers(question)
            more = " more." in question
            self.assertEqual(numbers(answer)[-1], a + b if more else a - b)

    def test_rows_of_numbers(self):
        for question, answer in answers("count"):
            a, b = numbers(question)
            step = 1 if b > a else -1
            self.assertEqual(numbers(answer), list(range(a, b + step, step)))
        for question, answer in answers("sort numbers"):
            down = "big to small" in question
            self.assertEqual(numbers(answer), sorted(numbers(question), reverse=down))
        for question, answer in answers("missing"):
            *row, missing = numbers(answer)
            self.assertIn(missing, row)
            self.assertEqual(len({b - a for a, b in pairwise(row)}), 1)
            self.assertEqual(sorted(numbers(question) + [missing]), row)

    def test_compared_and_next_numbers(self):
        for question, answer in answers("compare"):
            want = max if "bigger" in question else min
            self.assertEqual(numbers(answer), [want(numbers(question))])
        for question, answer in answers("neighbor"):
            n, m = numbers(answer)[::-1]
            self.assertEqual(numbers(question), [n])
            self.assertEqual(m - n, 1 if "after" in question else -1)

    def test_lists(self):
        for question, answer in answers("repeat"):
            self.assertEqual(answer, ", ".join(listed(question)) + ".")
        for question, answer in answers("reverse"):
            self.assertEqual(answer, ", ".join(reversed(listed(question))) + ".")
        for question, answer in answers("contains"):
            word, words = question.split()[1], listed(question)
            read, verdict = answer.split(". ")
            until = words.index(word) + 1 if word in words else len(words)
            self.assertEqual(read.split(", "), words[:until])
            self.assertEqual(verdict.startswith("Yes"), word in words)
        for question, answer in answers("has"):
            facts = re.findall(r"(\w+) has an? (\w+) (\w+)\.", question)
            *read, verdict = answer[:-1].split(". ")
            person, color, thing = next(f for f in facts if f[2] in question.split()[-1] or f[0] == question.split()[-2])
            if question.endswith("have?"):
                self.assertEqual(verdict, f"{person} has {'an' if color[0] in 'aeiou' else 'a'} {color} {thing}")
                continue
            at = 0 if "Who" in question else 1
            until = facts.index((person, color, thing)) + 1
            self.assertEqual(read, [", ".join(f"{f[at]} {f[2]}" for f in facts[:until])])
            self.assertEqual(verdict, f"{person} has the {thing}" if at == 0 else f"The {thing} is {color}")
        for question, answer in answers("count words"):
            self.assertEqual(numbers(answer)[-1], len(listed(question)))
        for question, answer in answers("count kind"):
            word = question.split(" see ")[1].split(":")[0]
            self.assertEqual(numbers(answer)[-1], listed(question).count(word))
            read = answer.split(". ")[0].split(", ")
            self.assertEqual([x.split()[0] for x in read], listed(question))
        for question, answer in answers("which"):
            at = {"first": 0, "second": 1, "last": -1}
            place = next(at[w] for w in question.split() if w in at)
            self.assertEqual(answer.split()[-1], listed(question)[place] + ".")

    def test_letters(self):
        for question, answer in answers("spell") + answers("letters"):
            word = next(w for w in re.findall("[a-z]+", question)[::-1] if w != "have")
            self.assertEqual("".join(re.findall(r"\b[a-z]\b", answer)), word)
        for question, answer in answers("letters"):
            word = re.search(r"word ([a-z]+)", answer)[1]
            self.assertEqual(numbers(answer)[-1], len(word))
        for question, answer in answers("sort words"):
            want = sorted(listed(question))
            self.assertEqual(answer, ", ".join(f"{w[0]} {w}" for w in want) + ".")

    def test_facts_are_pairs(self):
        for table in (facts.PLURAL, facts.SOUND, facts.RHYME, facts.COLOR):
            self.assertTrue(all(table.values()))
        for x, y in facts.OPPOSITE.items():
            self.assertEqual(facts.OPPOSITE[y], x)


if __name__ == "__main__":
    unittest.main()
