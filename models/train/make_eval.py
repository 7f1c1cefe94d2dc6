"""Writes the evaluation sets: held-out prompts with their answers, held-out text, and the words that
stories are made of."""
import argparse
import json
import random
import re
from collections import Counter
from pathlib import Path

import tinyworld
from tinyworld import HELDOUT, TRAIN, words

SEED = 777
TASKS, QUESTIONS, STORIES, LOST = 20, 100, 45, 15
DOCUMENTS = 60
SAMPLED = 60_000  # documents whose words make the word list


def message(role: str, content: str) -> dict:
    return {"role": role, "content": content}


def tasks():
    """Of every category the same number of different questions. Where so many are not held out, as
    of the few facts there are, others fill up the set."""
    for category in tinyworld.TASKS:
        rng, asked = random.Random(f"{SEED} {category}"), {}
        for split in (HELDOUT, TRAIN):
            for _ in range(20 * TASKS):
                question, answer = tinyworld.task(rng, category, split)
                if len(asked) < TASKS:
                    asked[question] = answer
        for question, answer in asked.items():
            yield {"category": category, "messages": [message("user", question)], "answer": answer}


def questions():
    """One question about each of some stories."""
    rng = random.Random(f"{SEED} questions")
    for _ in range(QUESTIONS):
        story = tinyworld.story(rng, HELDOUT)
        question, answer = rng.choice(story.questions)
        said = [("user", story.prompt), ("assistant", story.text), ("user", question)]
        yield {"category": "question", "messages": [message(*s) for s in said], "answer": answer}


def stories():
    """Requests, and what their stories must have."""
    rng = random.Random(f"{SEED} stories")
    wanted = {True: LOST, False: STORIES}
    while any(wanted.values()):
        story = tinyworld.story(rng, HELDOUT)
        lost = story.lost is not None
        if not wanted[lost] or not (story.asked or lost):
            continue
        wanted[lost] -= 1
        facts = {"asked": story.asked}
        if lost:
            facts["thing"] = story.lost
        yield {"category": "story", "messages": [message("user", story.prompt)], "story": facts}


def text() -> str:
    """Documents in the training format."""
    rng = random.Random(f"{SEED} text")
    documents = (tinyworld.document(rng, HELDOUT) for _ in range(DOCUMENTS))
    turn = "<|user|>{}<|bot|>{}<|eos|>".format
    return "".join("<|bos|>" + "".join(turn(*t) for t in turns) for turns in documents)


def vocabulary() -> dict:
    """All words that the generator says, as far as many documents show them, and those that checks
    look for."""
    rng, seen = random.Random(f"{SEED} words"), Counter()
    for i in range(SAMPLED):
        split = (TRAIN, HELDOUT)[i % 10 == 0]
        for turn in tinyworld.document(rng, split):
            seen.update(w for said in turn for w in re.findall("[A-Za-z]+", said))
    lower = {w for w in seen if w[0].islower()}
    said = lower | {w for w in seen if w[0].lower() + w[1:] not in lower} | set(words.NAMES)
    return {
        "names": sorted(words.NAMES),
        "species": sorted([*words.SPECIES, *words.JOBS, "girl", "boy"]),
        "colors": sorted(words.COLORS),
        # Every bed has a blanket.
        "things": sorted(set(words.TOYS) - {"blanket"}),
        "words": sorted(said),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "../eval")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    records = [*tasks(), *questions(), *stories()]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "prompts.jsonl").write_text(lines)
    (folder / "text.txt").write_text(text())
    compact = ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in vocabulary().items())
    (folder / "vocabulary.json").write_text("{\n" + compact + "\n}\n")


if __name__ == "__main__":
    main()
