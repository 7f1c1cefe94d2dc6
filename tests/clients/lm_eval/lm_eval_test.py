"""EleutherAI's `lm-eval` against `wf-run serve`: likelihoods of choices, and generated answers."""

import json
import os
import tempfile
import unittest
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["OPENAI_API_KEY"] = os.environ["WF_KEY"]

import lm_eval  # noqa: E402  (it reads the environment)

URL, KEY = os.environ["WF_URL"], os.environ["WF_KEY"]
# Sums, each with the right answer and wrong ones. The model knows some.
SUMS = [(a, b, [a + b, a + b + 1, a + b - 1, a + b + 10]) for a, b in [(3, 4), (2, 2), (5, 9), (20, 7)]]


def task(name, folder, **more):
    """Returns a task made of the lines above."""
    lines = [{"question": f"What is {a} + {b}?", "choices": [f" {c}" for c in choices], "answer": 0} for a, b, choices in SUMS]
    file = Path(folder, "sums.jsonl")
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}, "cache_dir": folder}}
    return {"task": name, "test_split": "test", "doc_to_text": "{{question}}", "num_fewshot": 0, **data, **more}


def evaluate(model, endpoint, task, **more):
    args = {"model": "default", "base_url": f"{URL}/{endpoint}", "auth_token": KEY, "max_length": 512, **more}
    return lm_eval.simple_evaluate(
        model=model, model_args=args, tasks=[task], log_samples=True, bootstrap_iters=0, cache_requests=False,
        apply_chat_template=model == "local-chat-completions",
    )


class Harness(unittest.TestCase):
    def test_likelihoods_of_choices(self):
        with tempfile.TemporaryDirectory() as folder:
            sums = task(
                "sums", folder, output_type="multiple_choice", doc_to_choice="choices", doc_to_target="answer",
                metric_list=[{"metric": "acc"}],
            )
            results = evaluate("local-completions", "completions", sums)
        samples = results["samples"]["sums"]
        self.assertEqual(len(samples), len(SUMS))
        for sample in samples:
            for (likelihood, greedy), in sample["resps"]:
                self.assertLess(float(likelihood), 0)
            best = max(range(4), key=lambda i: float(sample["resps"][i][0][0]))
            self.assertEqual(sample["acc"], float(best == 0))

    def test_generated_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            sums = task(
                "sums", folder, output_type="generate_until", doc_to_target="{{choices[answer]}}",
                generation_kwargs={"until": ["."], "max_gen_toks": 12, "temperature": 0},
                metric_list=[{"metric": "exact_match"}],
            )
            results = evaluate("local-chat-completions", "chat/completions", sums)
        texts = [sample["resps"][0][0] for sample in results["samples"]["sums"]]
        self.assertEqual(len(texts), len(SUMS))
        self.assertTrue(all(text and "." not in text for text in texts), texts)


if __name__ == "__main__":
    unittest.main()
