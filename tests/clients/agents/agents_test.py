"""Agents answer `hello` and make one tool call."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from proxy import ANSWER, Proxy

URL, KEY = os.environ["WF_URL"], os.environ["WF_KEY"]
AGENTS = pathlib.Path(os.environ["AGENTS"])
SECRET = "the fox is called Reinhard"


class Agent(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        (self.home / "fox.txt").write_text(SECRET)

    def run_agent(self, command, proxy, **environment):
        usual = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        ran = subprocess.run(
            [AGENTS / command[0], *command[1:]],
            cwd=self.home,
            env={**usual, "HOME": str(self.home), "NO_COLOR": "1", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        bad = [reply for reply in proxy.replies if reply[2] >= 400 and reply[1].startswith("/v1/")]
        self.assertEqual(bad, [], ran.stdout + ran.stderr)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout

    def both(self, run, tool, arguments):
        """Runs an agent without and with a tool call; the call reads a file."""
        with Proxy(URL) as proxy:
            self.assertIn(ANSWER, run(proxy, "hello"))
        with Proxy(URL, tool, arguments) as proxy:
            self.assertIn(ANSWER, run(proxy, "What is the fox called?"))
        results = [request for request in proxy.requests if SECRET in json.dumps(request)]
        self.assertTrue(results, "the agent sends the result of the call")

    def test_claude_code(self):
        def run(proxy, text):
            command = ["claude", "-p", text, "--model", "claude-sonnet-4-5"]
            return self.run_agent(
                [*command, "--allowedTools", "Read"],
                proxy,
                ANTHROPIC_BASE_URL=proxy.url,
                ANTHROPIC_API_KEY=KEY,
                CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            )

        self.both(run, "Read", {"file_path": str(self.home / "fox.txt")})

    def test_codex(self):
        def run(proxy, text):
            settings = {
                "model_provider": "wf",
                "model_providers.wf.name": "wf",
                "model_providers.wf.base_url": proxy.url + "/v1",
                "model_providers.wf.wire_api": "responses",
                "model_providers.wf.env_key": "WF_KEY",
            }
            options = [
                part for key, value in settings.items() for part in ("-c", f"{key}={json.dumps(value)}")
            ]
            # The sandbox needs rights that containers do not have.
            free = "--dangerously-bypass-approvals-and-sandbox"
            return self.run_agent(
                ["codex", "exec", *options, "-m", "gpt-5", "--skip-git-repo-check", free, text],
                proxy,
                WF_KEY=KEY,
            )

        self.both(run, "exec_command", {"cmd": "cat fox.txt"})

    def test_qwen_code(self):
        def run(proxy, text):
            return self.run_agent(
                ["qwen", "--auth-type", "openai", "-y", "-p", text],
                proxy,
                OPENAI_BASE_URL=proxy.url + "/v1",
                OPENAI_API_KEY=KEY,
                OPENAI_MODEL="qwen3-coder",
            )

        self.both(run, "read_file", {"file_path": str(self.home / "fox.txt")})

    def test_opencode(self):
        def run(proxy, text):
            provider = {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": proxy.url + "/v1", "apiKey": KEY},
                "models": {"default": {}},
            }
            settings = {"provider": {"wf": provider}, "model": "wf/default", "share": "disabled"}
            (self.home / "opencode.json").write_text(json.dumps(settings))
            return self.run_agent(["opencode", "run", "--model", "wf/default", text], proxy)

        self.both(run, "read", {"filePath": str(self.home / "fox.txt")})


if __name__ == "__main__":
    unittest.main()
