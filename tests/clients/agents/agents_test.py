"""Agents, unmodified, ask questions in one conversation and call a tool many times after each."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import model
from agents import AGENTS, FILES, KEY
from proxy import Calls, Proxy

WF_RUN, HOME = Path(os.environ["WF_RUN"]).resolve(), Path(os.environ["AGENTS_HOME"]).resolve()
QUESTIONS, CALLS = int(os.environ.get("QUESTIONS", "3")), int(os.environ.get("CALLS", "18"))
CONTEXT = 262_144
# Seconds without a byte.
SILENCE = 5.5
# Percent of what an agent left unchanged.
CACHED = 98
# They write earlier messages anew when they go on.
REWRITES = {"aider", "qwen-code"}
MARK = "QUESTION"


class Server:
    """`wf-run serve` on a free port, until the end of a `with` block."""

    def __init__(self, folder, log):
        options = ["--context", str(CONTEXT), "--any-model", "--api-key", KEY, "--temperature", "0"]
        thinking = ["--preserve-thinking", "--thinking-budget", "40"]
        # Variables with settings of this shell would change the server.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WF_")}
        self.process = subprocess.Popen(
            [WF_RUN, "serve", "--port", "0", "--model", folder, *options, *thinking],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )

    def __enter__(self):
        return int(self.process.stdout.readline().rsplit(":", 1)[1])

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Conversations(unittest.TestCase):
    rows = {}

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.model = Path(folder.name) / "model"
        model.write(cls.model, CONTEXT)

    @classmethod
    def tearDownClass(cls):
        print("\n| agent | requests | calls | longest prompt | cached | longest silence |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for name, row in cls.rows.items():
            print(
                f"| {name} | {row['requests']} | {row['calls']} | {row['longest_prompt']:,} "
                f"| {row['cached_percent']} % | {row['longest_silence']} s |"
            )

    def talk(self, name):
        """Asks an agent the questions. Returns the counts."""
        agent = AGENTS[name]
        if not agent.program.exists():
            self.skipTest(f"{name} is not installed")
        with tempfile.TemporaryDirectory() as home, (HOME / f"{name}.log").open("w") as log:
            home = Path(home)
            for i, file in enumerate(FILES):
                (home / file).write_text(f"File {i}. " + "The fox is called Reinhard. " * (i + 4))
            calls = Calls(agent.tool, agent.arguments(home), CALLS)
            with Server(self.model, log) as port, Proxy(port, calls, MARK) as proxy:
                for question in range(QUESTIONS if agent.goes_on else 1):
                    self.ask(agent, proxy, home, question)
            (HOME / f"{name}.json").write_text("\n".join(map(json.dumps, proxy.rows)))
            return proxy.summary()

    def ask(self, agent, proxy, home, question):
        text = f"{MARK} {question}: what do the files say about the fox?"
        if agent.login and question == 0:
            self.run_program([agent.program, *agent.login(proxy.url)], home, {})
        arguments, variables = agent.start(proxy.url, home, question > 0, text)
        self.run_program([agent.program, *arguments], home, variables)

    def run_program(self, command, home, variables):
        ran = subprocess.run(
            command,
            cwd=home,
            env={"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1", "LANG": "C.UTF-8", **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=600,
        )
        self.assertEqual(ran.returncode, 0, (ran.stdout + ran.stderr)[-2000:])


def conversation(name):
    def test(self):
        row = self.rows[name] = self.talk(name)
        self.assertEqual(row["errors"], [])
        self.assertEqual(row["lost"], 0, "calls without a result")
        if AGENTS[name].tool:
            self.assertGreaterEqual(row["calls"], CALLS)
        self.assertLessEqual(row["longest_silence"], SILENCE)
        if name not in REWRITES:
            self.assertGreaterEqual(row["cached_percent"], CACHED)

    test.__doc__ = name
    return test


for agent in AGENTS:
    setattr(Conversations, f"test_{agent.lower().replace(' ', '_').replace('-', '_')}", conversation(agent))


if __name__ == "__main__":
    unittest.main()
