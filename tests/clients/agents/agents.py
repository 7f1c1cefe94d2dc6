"""How each agent is started, pointed at a server, and asked a further question."""

import json
import os
from pathlib import Path

KEY = "the key"
# The model chooses one by its first letter.
FILES = [f"{word}.txt" for word in ("apple", "birch", "cedar", "daisy", "elder", "fern", "grape", "hazel")]
BIN = Path(os.environ["AGENTS"])


class Agent:
    """An agent: its program, the tool to force and the parameter with its values, a login, and whether it goes on
    with a conversation."""

    def __init__(self, start, tool=None, parameter=None, values=None, program=None, goes_on=True, login=None):
        self.start, self.tool, self.parameter, self.values = start, tool, parameter, values
        self.goes_on, self.login = goes_on, login
        self.program = program or BIN / start.__name__

    def arguments(self, home):
        """Returns what the tool may be called with."""
        return {self.parameter: self.values(home)} if self.tool else {}


def paths(home):
    return [str(home / name) for name in FILES]


def commands(_):
    return [f"cat {name}" for name in FILES]


def claude(url, _, later, text):
    command = ["-p", text, "--model", "claude-sonnet-4-5", "--allowedTools", "Read", *["--continue"] * later]
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    return command, {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, **quiet}


def codex(url, _, later, text):
    provider = {"name": "wf", "base_url": url + "/v1", "wire_api": "responses", "env_key": "WF_KEY"}
    settings = {"model_provider": "wf", **{f"model_providers.wf.{k}": v for k, v in provider.items()}}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={json.dumps(value)}")]
    # The sandbox needs rights that containers do not have.
    free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["exec", *["resume", "--last"] * later, *options, "-m", "gpt-5", *free, text], {"WF_KEY": KEY}


def qwen(url, _, later, text):
    command = ["--auth-type", "openai", "-y", *["--continue"] * later, "-p", text]
    return command, {"OPENAI_BASE_URL": url + "/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": "qwen3-coder"}


def opencode(url, home, later, text):
    options = {"baseURL": url + "/v1", "apiKey": KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"default": {}}}
    settings = {"provider": {"wf": provider}, "model": "wf/default", "share": "disabled"}
    (home / "opencode.json").write_text(json.dumps(settings))
    return ["run", "--model", "wf/default", *["-c"] * later, text], {}


def goose(url, _, later, text):
    command = ["run", "--name", "fox", *["--resume"] * later, "--with-builtin", "developer", "-t", text]
    settings = {"PROVIDER": "openai", "MODEL": "default", "MODE": "auto"}
    quiet = {"DISABLE_KEYRING": "1", "TELEMETRY_ENABLED": "false"}
    variables = {f"GOOSE_{name}": value for name, value in (settings | quiet).items()}
    return command, {**variables, "OPENAI_HOST": url, "OPENAI_API_KEY": KEY}


def aider(url, _, later, text):
    command = ["--model", "openai/default", "--message", text, FILES[0]]
    server = ["--openai-api-base", url + "/v1", "--openai-api-key", KEY]
    quiet = ["--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-pretty"]
    history = ["--restore-chat-history"] * later
    return [*command, *server, "--no-git", "--yes-always", *quiet, *history], {}


def cn(url, home, _, text):
    model = {"name": "default", "provider": "openai", "model": "default"}
    model |= {"apiBase": url + "/v1", "apiKey": KEY}
    settings = {"name": "wf", "version": "0.0.1", "schema": "v1", "models": [model]}
    (home / "config.yaml").write_text(json.dumps(settings))
    return ["-p", "--auto", "--config", "config.yaml", text], {}


CLINE = ["-P", "openai-compatible", "-m", "default", "--data-dir", "state"]


def cline_login(url):
    return ["auth", "-p", "openai-compatible", "-k", KEY, "-b", url + "/v1", "-m", "default", "--data-dir", "state"]


def cline(_, __, ___, text):
    return [*CLINE, text], {"CLINE_TELEMETRY_DISABLED": "1"}


AGENTS = {
    "Claude Code": Agent(claude, "Read", "file_path", paths),
    "Codex": Agent(codex, "exec_command", "cmd", commands),
    "qwen-code": Agent(qwen, "read_file", "file_path", paths),
    "opencode": Agent(opencode, "read", "filePath", paths),
    "goose": Agent(goose, "shell", "command", commands),
    # It calls no tools: it puts files into the conversation.
    "aider": Agent(aider, program=Path(os.environ["AIDER"])),
    "Cline": Agent(cline, "run_commands", "commands", commands, goes_on=False, login=cline_login),
    "Continue": Agent(cn, "Read", "filepath", paths, goes_on=False),
}
