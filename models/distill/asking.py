"""Requests that a teacher answers, so that it makes the text from which its student learns."""
import itertools
import json
import random
import subprocess
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

ASKED = (
    "Explain {} in simple words.", "Write a short story about {}.", "Give me three facts about {}.",
    "Why is {} important?", "Write a short poem about {}.", "What should a beginner know about {}?",
    "Describe {} in one paragraph.", "How would you explain {} to a child?",
    "List five words that come to mind when you think of {}, and say why.",
    "Compare {} with something similar.", "What is a common mistake about {}?",
    "Tell me something surprising about {}.", "Write a letter to a friend about {}.",
    "What questions would you ask an expert on {}?", "Summarize the history of {} briefly.",
)
TOPICS = (
    "rain", "bread", "the moon", "a lighthouse", "bees", "rivers", "sleep", "the color blue", "maps",
    "a lost dog", "winter", "music", "chess", "volcanoes", "gardening", "a train journey", "honesty",
    "the ocean", "bicycles", "libraries", "a kind neighbor", "clouds", "cooking rice", "friendship",
    "the alphabet", "a broken clock", "trees", "mountains", "learning a language", "painting",
    "birds", "a market in the morning", "the sun", "bridges", "an old castle", "patience", "water",
    "glass", "numbers", "a rainy day", "horses", "tea", "dreams", "an apple tree", "the stars",
    "walking", "coins", "paper", "an island", "soup", "letters", "the desert", "fire", "a robot",
    "silence", "growing up", "cats", "football", "a piano", "courage", "computers", "salt", "snow",
    "a good book", "the wind", "time", "farming", "wool", "whales", "kindness", "a small village",
)
TIMEOUT = 600  # seconds
# The server is on this machine: no proxy.
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def requests(count: int, seed: int) -> list[str]:
    """Returns `count` different requests, in random order."""
    made = [form.format(topic) for form, topic in itertools.product(ASKED, TOPICS)]
    if count > len(made):
        raise SystemExit(f"`answers` is {count}, but there are {len(made)} requests")
    return random.Random(f"requests {seed}").sample(made, count)


@contextmanager
def served(program: str, model, log):
    """Serves a model while the context lasts, on a port that the system chooses; its URL."""
    with open(log, "w") as file:
        server = subprocess.Popen([program, "serve", "--port", "0", "--model", str(model)],
                                  stdout=subprocess.PIPE, stderr=file, text=True)
        try:
            line = server.stdout.readline()
            if "http" not in line:
                raise SystemExit(f"{program} serve did not start: {log} says why")
            # What is left of its output must not fill the pipe.
            threading.Thread(target=server.stdout.read, daemon=True).start()
            yield line.split()[-1]
        finally:
            server.terminate()
            server.wait()


def post(url: str, body: dict) -> dict:
    """Posts JSON and returns the JSON answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with OPEN(request, timeout=TIMEOUT) as answer:
        return json.load(answer)


def answers(url: str, asked: list[str], most: int, temperature: float, seed: int):
    """Yields each request with its answer, and whether the answer ended by itself."""
    def one(numbered):
        number, text = numbered
        said = post(f"{url}/v1/chat/completions", {
            "messages": [{"role": "user", "content": text}], "max_tokens": most,
            "temperature": temperature, "seed": seed + number})["choices"][0]
        return text, said["message"]["content"], said["finish_reason"] == "stop"

    with ThreadPoolExecutor(16) as pool:
        yield from pool.map(one, enumerate(asked))
