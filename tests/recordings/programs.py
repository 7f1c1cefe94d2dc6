"""Runs what is recorded: a server and its requests, and commands."""

import http.client
import json
import os
import re
import subprocess
import time
from pathlib import Path

from layout import line, lines, stream
from masks import Masks

ROOT = Path(__file__).resolve().parents[2]
# Name of the program in its own texts, whatever its file is called.
NAME = "wf-run"
# Longest request that a recording shows whole.
SHOWN = 200
# Settings of what computes. The number of threads changes no bit of an answer. The cost of a row decides
# how many drafts pay off, and is measured otherwise.
SETTINGS = {"threads": "1", "row-cost": "0.5"}
# Headers that matter to clients.
HEADERS = ["allow", "location", "retry-after", "www-authenticate", "x-ignored-fields", "x-should-retry"]


def target():
    """Returns the folder that cargo builds into."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()


def wf_run():
    """Returns the program that WF_RUN names, or builds it."""
    named = os.environ.get("WF_RUN")
    if not named:
        subprocess.run(["cargo", "build", "--quiet", "--locked", "-p", "wf-run"], cwd=ROOT, check=True)
    return Path(named).resolve() if named else target() / "debug/wf-run"


def environment(**more):
    """Returns variables of a child process: no settings of this shell, and kernels that all x86-64 CPUs of today have."""
    kept = {k: os.environ[k] for k in ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT") if k in os.environ}
    fixed = {
        "WF_ISA": os.environ.get("WF_ISA", "avx2"),
        # Colors, sizes of terminals and languages would differ.
        "NO_COLOR": "1",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    return {**kept, **fixed, **more}


def shortened(text):
    """Returns a request as far as a recording shows it."""
    return text if len(text) <= SHOWN else text[:SHOWN] + " …"


class Server:
    """`wf-run serve` on a free port, until the end of a `with` block."""

    def __init__(self, program, home, arguments):
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        command = [NAME, "serve", "--port", "0", *settings, *arguments]
        self.log = home / "server.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                executable=program,
                env=environment(HOME=str(home)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __enter__(self):
        first = self.process.stdout.readline()
        found = re.match(r"listening on http://([\d.]+):(\d+)", first)
        if not found:
            self.process.kill()
            raise SystemExit(f"the server does not listen: {first!r}\n{self.log.read_text()}")
        self.address = found[1], int(found[2])
        while self.ask("GET", "/health", None, {})[0] == 503:
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.process.stdout.close()

    def ask(self, method, path, body, headers):
        """Returns status, headers and body of an answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=120)
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        if isinstance(data, str):
            data = data.encode()
        kind = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, None if body is None else data, {**kind, **headers})
        reply = connection.getresponse()
        answer = reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read().decode()
        connection.close()
        return answer

    def recorded(self, requests, key):
        """Makes the requests of a case and returns their recording."""
        masks, blocks = Masks(), []
        for method, path, body, headers in requests:
            headers = {"Authorization": f"Bearer {key}", **headers}
            headers = {name: value for name, value in headers.items() if value is not None}
            shown = body if isinstance(body, str) else line(body) if body is not None else ""
            sent = masks.restored(shown) if shown else None
            status, found, text = self.ask(method, masks.restored(path), sent, headers)
            extra = "".join(f"; {name}: {masks.text(found[name])}" for name in HEADERS if name in found)
            kind = found.get("content-type", "no content")
            blocks.append(
                f"{method} {path}\n" + (shortened(shown) + "\n" if shown else "")
                + f"{status} {kind}{extra}\n{answer(kind, text, masks)}"
            )  # fmt: skip
        return "\n".join(blocks)


def answer(kind, text, masks):
    """Returns an answer's text as a recording shows it."""
    if kind.startswith("application/json"):
        return lines(masks.value(json.loads(text)))
    if kind.startswith("text/event-stream"):
        events = [part for part in text.split("\n\n") if part.strip()]
        return stream(event for part in events if (event := sse(part, masks)) is not None)
    if kind.startswith("application/x-ndjson"):
        parts = [json.loads(part) for part in text.split("\n") if part.strip()]
        return stream(masks.value(part) for part in parts if not sign_of_life(part))
    return masks.text(text).rstrip("\n")


def sign_of_life(part):
    """Returns true for a line of Ollama's streams without text: a busy server sends it as a sign of life."""
    said = part.get("message", part)
    keys = ("content", "response", "thinking", "tool_calls", "logprobs")
    return part.get("done") is False and not any(said.get(key) or part.get(key) for key in keys)


def sse(part, masks):
    """Returns the data of a server-sent event; a name that is not its `type` stands before it. None for a comment."""
    fields = [row.split(": ", 1) for row in part.split("\n") if not row.startswith(":")]
    data = "\n".join(value for name, value in fields if name == "data")
    name = next((value for name, value in fields if name == "event"), None)
    if not fields:
        return None
    if not data.startswith("{"):
        return masks.text(data)
    value = masks.value(json.loads(data))
    if name is not None and value.get("type") != name:
        value = {"event": name, **value}
    return value


class Recorder:
    """Runs commands in a folder and keeps their recordings by name."""

    def __init__(self, program, home, variables=None):
        self.program, self.home, self.variables = program, home, variables or {}
        self.found = {}

    def __call__(self, name, *arguments, stdin="", variables=None, files=None):
        """Records a command: arguments, standard input, own variables, files that it reads."""
        for file, text in (files or {}).items():
            (self.home / file).write_text(text)
        variables = variables or {}
        common = {"HOME": str(self.home), **self.variables}
        # Other commands warn of settings that change nothing there.
        if arguments[:1] in (("generate",), ("chat",)):
            common |= {f"WF_{name.replace('-', '_').upper()}": value for name, value in SETTINGS.items()}
        ran = subprocess.run(
            [NAME, *arguments],
            executable=self.program,
            cwd=self.home,
            env=environment(**common | variables),
            input=stdin.encode(),
            capture_output=True,
            timeout=120,
        )
        masks = Masks({str(self.home): "<home>"})
        before = "".join(f"{name}={value} " for name, value in variables.items())
        rows = [f"$ {before}wf-run {shortened(' '.join(map(quoted, arguments)))}"]
        rows += [f"< {row}" for row in stdin.rstrip("\n").split("\n") if stdin]
        rows += output(ran.stdout, "  ", masks) + output(ran.stderr, "! ", masks)
        self.found[name] = "\n".join([*rows, f"exit code {ran.returncode}"])


def quoted(argument):
    """Returns an argument as a shell reads it."""
    return argument if re.fullmatch(r"[\w./:=,@+-]+", argument) else f"'{argument}'"


def output(data, mark, masks):
    """Returns the lines of a command's output, each after a mark."""
    text = data.decode(errors="replace").replace("\r", "␍").rstrip("\n")
    if text.startswith(("{", "[")):
        try:
            text = lines(masks.value(json.loads(text)))
        except json.JSONDecodeError:
            pass  # A text that begins like JSON.
    return [(mark + masks.text(row)).rstrip() for row in text.split("\n") if text]
