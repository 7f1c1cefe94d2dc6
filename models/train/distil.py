"""Makes stories of a trained model, from which its diffusion path learns.

Many stories fit a request, so a token far after the last known one cannot be predicted. The model's
own most likely story is one text, whose tokens can be. A diffusion path that learns from such texts
commits to more tokens at once, and to those of the autoregressive path (sequence-level distillation:
Kim and Rush, 2016).

Sampled stories polish the autoregressive path: it learns only the good ones again, which makes faults
from unlikely tokens rarer (rejection sampling, as in section 3.2.2 of Touvron et al. 2023,
arXiv:2307.09288).

`wf-run serve` tells them. Stories are left out if they have a misspelled word, an unknown name, a name
of two heroes, or not the requested subject. Sampled ones are told again (--attempts), so that hard
requests do not become rare.
"""
import argparse
import json
import random
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tinyworld
from coherence import WORD, Vocabulary, checks

PROMPTS = 32  # in an HTTP request
LONGEST = 400  # tokens
TIMEOUT = 300  # seconds
# The server is on this machine: no proxy.
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def wait(url: str):
    """Waits until the server has its model, a minute at most."""
    for _ in range(600):
        try:
            return OPEN(f"{url}/health", timeout=TIMEOUT).close()
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{url} does not become ready: its log says why")


def requests(seed: int, count: int) -> dict[str, dict]:
    """Returns `count` different requests of the training split, with the subjects for `checks`."""
    rng, asked = random.Random(f"own {seed}"), {}
    while len(asked) < count:
        story = tinyworld.story(rng, tinyworld.TRAIN)
        asked[story.prompt] = {"asked": story.asked + story.topic, "thing": story.lost}
    return asked


def told(url: str, prompts: list[str], sampling: dict) -> list[str | None]:
    """Returns a story for each request; None where it does not end."""
    body = {
        "prompt": [f"<|bos|><|user|>{prompt}<|bot|>" for prompt in prompts],
        "max_tokens": LONGEST, **sampling,
    }
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    with OPEN(request, timeout=TIMEOUT) as answer:
        choices = json.load(answer)["choices"]
    return [c["text"] if c["finish_reason"] == "stop" else None for c in choices]


def answers(url: str, prompts: list[str], sampling: dict):
    """Yields each request and its story, in order."""
    parts = [prompts[i:i + PROMPTS] for i in range(0, len(prompts), PROMPTS)]
    with ThreadPoolExecutor(2) as pool:
        for part, texts in zip(parts, pool.map(lambda part: told(url, part, sampling), parts)):
            yield from zip(part, texts)


def shared(text: str, vocabulary: Vocabulary) -> bool:
    """Returns true if two heroes share a name: "Dodo the crab" and "a goat named Dodo"."""
    words, bearers = WORD.findall(text), {}
    for first, between, last in zip(words, words[1:], words[2:]):
        if between == "the" and first in vocabulary.names and last in vocabulary.species:
            bearers.setdefault(first, set()).add(last)
        if between in ("named", "called") and last in vocabulary.names and first in vocabulary.species:
            bearers.setdefault(last, set()).add(first)
    return any(len(species) > 1 for species in bearers.values())


def good(text: str, asked: dict, vocabulary: Vocabulary) -> bool:
    """Returns true if a story is good enough to learn from."""
    passed = checks(text, asked, vocabulary)
    return all(passed.values()) and not shared(text, vocabulary)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="lines of JSON: a request and its story")
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="of `wf-run serve`")
    parser.add_argument("--count", type=int, default=25_000, help="requests")
    parser.add_argument("--seed", type=int, default=1, help="of the requests")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 for the most likely stories")
    parser.add_argument("--min-p", type=float, default=0.0)
    parser.add_argument("--attempts", type=int, default=1, help="at a good story for each request")
    args = parser.parse_args()
    vocabulary = Vocabulary()
    asked = requests(args.seed, args.count)
    sampling = {"temperature": args.temperature, "min_p": args.min_p}
    wait(args.url)
    left, kept = list(asked), 0
    with args.output.open("w") as file:
        for _ in range(args.attempts):
            again = []
            for prompt, text in answers(args.url, left, sampling):
                if text and good(text, asked[prompt], vocabulary):
                    file.write(json.dumps({"prompt": prompt, "text": text}) + "\n")
                    kept += 1
                else:
                    again.append(prompt)
            left = again
    print(f"{kept} of {len(asked)} stories kept")


if __name__ == "__main__":
    main()
