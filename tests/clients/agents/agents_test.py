"""Agents answer `hello` and make one tool call."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from proxy import ANSWER, Proxy

URL, KEY = os.environ["WF_URL"], os.environ["WF_KEY"]
BIN = pathlib.Path(os.environ["AGENTS"])
# Programs that npm did not install.
AGENTS = {"aider": os.environ["AIDER"]}
SECRET = "the fox is called Reinhard"


class Agent(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        (self.home / "fox.txt").write_text(SECRET)

    def run_agent(self, command, proxy, **environment):
        usual = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        program = pathlib.Path(AGENTS.get(command[0], BIN / command[0]))
        if not program.exists():
            self.skipTest(f"{command[0]} is not installed")
        ran = subprocess.run(
            [program, *command[1:]],
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

    def test_continue(self):
        def run(proxy, text):
            model = {
                "name": "default",
                "provider": "openai",
                "model": "default",
                "apiBase": proxy.url + "/v1",
                "apiKey": KEY,
            }
            settings = {"name": "wf", "version": "0.0.1", "schema": "v1", "models": [model]}
            (self.home / "config.yaml").write_text(json.dumps(settings))
            return self.run_agent(["cn", "-p", "--auto", "--config", "config.yaml", text], proxy)

        self.both(run, "Read", {"filepath": str(self.home / "fox.txt")})

    def test_goose(self):
        def run(proxy, text):
            command = ["goose", "run", "--no-session", "--with-builtin", "developer", "-t", text]
            return self.run_agent(
                command,
                proxy,
                GOOSE_PROVIDER="openai",
                GOOSE_MODEL="default",
                GOOSE_MODE="auto",
                GOOSE_DISABLE_KEYRING="1",
                GOOSE_TELEMETRY_ENABLED="false",
                OPENAI_HOST=proxy.url,
                OPENAI_API_KEY=KEY,
            )

        self.both(run, "shell", {"command": "cat fox.txt"})

    def test_cline(self):
        def run(proxy, text):
            provider, state = "openai-compatible", ["--data-dir", str(self.home / "state")]
            quiet = {"CLINE_TELEMETRY_DISABLED": "1"}
            login = ["cline", "auth", "-p", provider, "-k", KEY, "-b", proxy.url + "/v1", "-m", "default"]
            self.run_agent([*login, *state], proxy, **quiet)
            # One word is taken for a command.
            command = ["cline", "-P", provider, "-m", "default", *state, text + " "]
            return self.run_agent(command, proxy, **quiet)

        self.both(run, "run_commands", {"commands": ["cat fox.txt"]})

    def test_aider(self):
        """aider calls no tools: it puts files into the conversation."""
        with Proxy(URL) as proxy:
            said = self.run_agent(
                [
                    *["aider", "--model", "openai/default", "--message", "hello", "fox.txt"],
                    *["--openai-api-base", proxy.url + "/v1", "--openai-api-key", KEY],
                    *["--no-git", "--yes-always", "--no-check-update", "--analytics-disable"],
                    *["--no-show-model-warnings", "--no-pretty"],
                ],
                proxy,
            )
        self.assertIn(ANSWER, said)
        self.assertIn(SECRET, json.dumps(proxy.requests[0]))


if __name__ == "__main__":
    unittest.main()
