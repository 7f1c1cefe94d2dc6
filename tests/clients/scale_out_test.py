"""Two workers behind the router `smg`: one is killed while both answer, and is started again."""

import asyncio
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import unittest
from collections import Counter

import httpx2 as httpx

SMG = pathlib.Path(sys.executable).parent / "smg"
# For health and metrics.
CLIENT = httpx.Client()
LOGS = pathlib.Path("target/clients")
# They begin differently, because the policy `cache_aware` sends equal beginnings to one worker.
PROMPTS = [
    "Tell me a story.",
    "Once upon a time there was a fox.",
    "Mia lost her hat. Where is it?",
    "What is 3 plus 4?",
    "A boat came down the river.",
    "How was your day?",
    "Winter is long in the mountains.",
    "Pip wants to bake a cake.",
]
# Enough that an answer takes a while.
TOKENS = 300
CLIENTS = 6


class Worker:
    """`wf-run serve` with the model inside it."""

    def __init__(self, port=0):
        args = [os.environ["WF_RUN"], "serve", "--port", str(port), "--threads", "1"]
        environment = {**os.environ, "WF_LOG": "warn"}
        self.process = subprocess.Popen(
            args, env=environment, stdout=subprocess.PIPE, text=True
        )
        self.url = self.process.stdout.readline().split()[-1]
        self.port = int(self.url.rsplit(":", 1)[1])
        until("the model is loaded", lambda: CLIENT.get(f"{self.url}/health").is_success)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def taken(self):
        """Returns the number of requests since its start."""
        metrics = CLIENT.get(f"{self.url}/metrics").text
        return int(re.search(r"^wf_requests_total (\d+)", metrics, re.MULTILINE)[1])

    def running(self):
        """Returns the number of requests that it is answering."""
        return CLIENT.get(f"{self.url}/v1/loads").json()["num_running_reqs"]


class Gateway:
    """`smg` in front of workers, started as in native/deploy/scale-out/README.md."""

    def __init__(self, workers, policy):
        port, metrics = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        args = [SMG, "launch", "--host", "127.0.0.1", "--port", port, "--policy", policy]
        args += ["--worker-urls", *(worker.url for worker in workers)]
        args += ["--health-check-interval-secs", 1, "--health-check-timeout-secs", 2]
        args += ["--health-failure-threshold", 2, "--health-success-threshold", 1]
        args += ["--cb-timeout-duration-secs", 2]
        args += ["--prometheus-host", "127.0.0.1", "--prometheus-port", metrics]
        args += ["--shutdown-grace-period-secs", 0]
        with open(LOGS / f"smg-{policy}.log", "w") as log:
            self.process = subprocess.Popen(list(map(str, args)), stdout=log, stderr=log)
        self.metrics = f"http://127.0.0.1:{metrics}/metrics"

    def healthy(self):
        """Returns the number of workers that get requests."""
        try:
            workers = CLIENT.get(f"{self.url}/workers").json()["workers"]
            return sum(worker["is_healthy"] for worker in workers)
        except httpx.TransportError:
            return 0

    def end(self):
        self.process.terminate()
        self.process.wait()


def free_port():
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


def until(what, holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not in {seconds} s")
        time.sleep(0.05)


async def ask(client, url, prompt, stream):
    """Returns how a request ends, and the text of its answer."""
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream": stream,
        "decode_mode": "ar",
    }
    response = await client.post(f"{url}/v1/chat/completions", json=body)
    if response.status_code != 200:
        assert response.status_code in {429, 500, 502, 503, 504}, response.text
        assert response.json()["error"]["message"]
        return "refused", None
    if not stream:
        choice = response.json()["choices"][0]
        assert choice["finish_reason"] == "length"
        return "answered", choice["message"]["content"]
    events = [line[6:] for line in response.text.split("\n") if line.startswith("data: ")]
    assert events.pop() == "[DONE]", "the stream has an end"
    chunks = [json.loads(event) for event in events]
    if "error" in chunks[-1]:
        # Text that was sent cannot be taken back: the client gets an error and may send the request again.
        assert chunks[-1]["error"]["message"]
        return "cut", None
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[-1]["finish_reason"] == "length", "an answer that only looks complete"
    return "answered", "".join(choice["delta"].get("content") or "" for choice in choices)


class ScaleOut(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(CLIENT.close)

    def start(self, policy):
        self.workers = []
        self.addCleanup(lambda: [worker.kill() for worker in self.workers])
        for _ in range(2):
            self.workers.append(Worker())
        self.gateway = Gateway(self.workers, policy)
        self.addCleanup(self.gateway.end)
        until("two workers", lambda: self.gateway.healthy() == 2)

    async def load(self, meanwhile):
        """Sends requests from several clients while `meanwhile` runs; returns their times and ends."""
        ends, done = [], asyncio.Event()

        async def one(client, number):
            while not done.is_set():
                prompt = PROMPTS[len(ends) % len(PROMPTS)]
                begin = time.monotonic()
                end, text = await ask(client, self.gateway.url, prompt, number % 2 == 0)
                ends.append((begin, time.monotonic(), end, prompt, text))
                if end != "answered":
                    await asyncio.sleep(0.2)

        async with httpx.AsyncClient(timeout=120) as client:
            clients = [asyncio.create_task(one(client, number)) for number in range(CLIENTS)]
            try:
                await asyncio.to_thread(meanwhile)
            finally:
                done.set()
            await asyncio.gather(*clients)
        return ends

    def kill_and_return(self):
        until("both work", lambda: all(worker.taken() for worker in self.workers))
        until("one is busy", lambda: any(worker.running() > 1 for worker in self.workers))
        victim, other = sorted(self.workers, key=Worker.running, reverse=True)
        self.killed = time.monotonic()
        victim.kill()
        until("it is left out", lambda: self.gateway.healthy() == 1)
        self.left_out, taken = time.monotonic(), other.taken()
        until("the other goes on", lambda: other.taken() >= taken + CLIENTS)
        returned = Worker(victim.port)
        self.workers = [returned, other]
        self.returned = time.monotonic()
        until("it is readmitted", lambda: returned.taken() > 0)
        self.readmitted = time.monotonic()

    def outlive(self, policy):
        self.start(policy)
        ends = asyncio.run(self.load(self.kill_and_return))
        print(f"\n{policy}: {dict(Counter(end for _, _, end, _, _ in ends))}", end="; ")
        print(f"left out after {self.left_out - self.killed:.1f} s", end=", ")
        print(f"readmitted after {self.readmitted - self.returned:.1f} s", end=" ")

        # Requests may fail only if they ran on the worker, or reached it before the router left it out.
        for begin, end, how, _, _ in ends:
            if end < self.killed or begin > self.left_out:
                self.assertEqual(how, "answered", (begin - self.killed, end - self.killed))
        cut = [begin for begin, _, how, _, _ in ends if how == "cut"]
        self.assertLessEqual(len(cut), CLIENTS, "one for each client")
        self.assertTrue(all(begin <= self.killed for begin in cut), "it ran when it was killed")

        # Answers equal those of a single worker.
        for prompt in PROMPTS:
            texts = {text for _, _, how, of, text in ends if how == "answered" and of == prompt}
            if texts:
                _, alone = asyncio.run(self.alone(prompt))
                self.assertEqual(texts, {alone})
        metrics = CLIENT.get(self.gateway.metrics).text
        self.assertIn("smg_http_requests_total", metrics)

    async def alone(self, prompt):
        async with httpx.AsyncClient(timeout=120) as client:
            return await ask(client, self.workers[1].url, prompt, False)

    def test_cache_aware(self):
        self.outlive("cache_aware")

    def test_power_of_two(self):
        self.outlive("power_of_two")


if __name__ == "__main__":
    unittest.main()
