"""Measures a checkpoint by decode mode: exact answers by category, tokens a pass, accepted drafts,
variety and coherence of stories, and perplexity. `wf-run eval` measures the same on the exported
model."""
import argparse
import json
from collections import defaultdict
from pathlib import Path

import torch
import torch.nn.functional as F

import decode
import tokens
from checkpoint import load
from coherence import Vocabulary, checks
from noise import answers

EVAL = Path(__file__).parent.parent / "eval"
MODES = {
    "ar": decode.ar, "verify": decode.verify, "iterative 0.9": decode.iterative,
    "greedy": lambda *args: decode.iterative(*args, threshold=0.0),
}
LIMIT = {"story": 320}
SHORT = 96  # tokens of other answers at most
TEMPERATURE = 0.8  # of the stories whose coherence is checked


def prompts(path: Path, tokenizer):
    """Each line's record, and its prompt's ids."""
    for line in path.read_text().splitlines():
        record = json.loads(line)
        said = [message["content"] for message in record["messages"]]
        ids = tokens.prompt(tokenizer, list(zip(said[:-1:2], said[1:-1:2])), said[-1])
        yield record, ids


def measure(model, mode, lines, tokenizer) -> dict:
    """Of each category: answers, right ones, tokens, passes, drafts and stories' texts."""
    found = defaultdict(lambda: {"count": 0, "right": 0, "tokens": 0, "passes": 0,
                                 "drafts": [], "texts": []})
    for record, ids in lines:
        category = record["category"]
        answer = mode(model, ids, LIMIT.get(category, SHORT))
        of = found[category]
        said = tokens.text(tokenizer, answer.ids)
        of["count"] += 1
        of["right"] += said == record.get("answer")
        of["tokens"] += len(answer.ids) + 1
        of["passes"] += answer.passes
        of["drafts"] += answer.accepted
        of["texts"].append(said.split())
    return found


def distinct(texts, n: int) -> float:
    """The share of different n-grams among all."""
    grams = [tuple(text[i:i + n]) for text in texts for i in range(len(text) - n + 1)]
    return len(set(grams)) / max(1, len(grams))


def report(name: str, found: dict):
    """Prints a mode's row of the table, and its weak categories."""
    tasks = {k: v for k, v in found.items() if k not in ("story", "question")}
    share = {k: v["right"] / v["count"] for k, v in found.items() if k != "story"}
    right, count = (sum(v[key] for v in tasks.values()) for key in ("right", "count"))
    line = [f"| {name} | {right}/{count} | {share.get('question', 0):.0%} |"]
    if story := found.get("story"):
        drafts = story["drafts"]
        accepted = f"{sum(drafts) / len(drafts):.2f}" if drafts else "–"
        variety = " / ".join(f"{distinct(story['texts'], n):.2f}" for n in (1, 2, 3))
        line.append(f" {story['tokens'] / max(1, story['passes']):.2f} | {accepted} | {variety} |")
    print("".join(line))
    low = sorted((v, k) for k, v in share.items() if v < 0.8)
    print("  below 80 %:", ", ".join(f"{k} {v:.0%}" for v, k in low) or "none", flush=True)


def coherence(model, lines, tokenizer, vocabulary: Vocabulary) -> dict:
    """The share of sampled stories that pass each check."""
    passed, wanted = defaultdict(int), [line for line in lines if line[0]["category"] == "story"]
    for number, (record, ids) in enumerate(wanted):
        answer = decode.ar(model, ids, LIMIT["story"], TEMPERATURE, seed=number)
        for name, ok in checks(tokens.text(tokenizer, answer.ids), record["story"],
                               vocabulary).items():
            passed[name] += ok
    return {name: count / len(wanted) for name, count in passed.items()}


@torch.no_grad()
def perplexity(model, path: Path, tokenizer) -> float:
    """Nats a token of the autoregressive path on the answers of documents in the training format."""
    total = count = 0
    for document in path.read_text().split("<|bos|>")[1:]:
        ids = tokenizer.encode("<|bos|>" + document).ids[:model.config.context]
        logits = decode.Cache(model).forward(ids, True, False)
        counts = answers(torch.tensor([ids])).weight[0, 1:] > 0
        each = F.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
        total += float(each[counts].sum())
        count += int(counts.sum())
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="default: next to the checkpoint")
    parser.add_argument("--held-out", type=Path, default=EVAL,
                        help="prompts.jsonl and text.txt")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--every", type=int, default=1, help="take every so manyth prompt")
    args = parser.parse_args()
    path = args.tokenizer or args.checkpoint.with_name("tokenizer.json")
    tokenizer = tokens.Tokenizer.from_file(str(path))
    model = decode.freeze(load(args.checkpoint))
    lines = list(prompts(args.held_out / "prompts.jsonl", tokenizer))[::args.every]
    print(f"autoregressive: {perplexity(model, args.held_out / 'text.txt', tokenizer):.4f} nats a token of answers")
    print("| mode | tasks | questions | tokens/pass, stories | accepted | distinct 1 / 2 / 3 |")
    for name in args.modes:
        report(name, measure(model, MODES[name], lines, tokenizer))
    vocabulary = Vocabulary()
    shares = coherence(model, lines, tokenizer, vocabulary)
    print("stories at temperature 0.8:", ", ".join(f"{k} {v:.0%}" for k, v in shares.items()))


if __name__ == "__main__":
    main()
