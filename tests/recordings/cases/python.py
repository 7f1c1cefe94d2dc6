"""The Python module, in the environment that `python/test` makes."""

import json
import os
import subprocess

from cases import libraries
from layout import lines
from masks import Masks
from programs import ROOT, environment


def record(_, home):
    """Records the part."""
    python = os.environ.get("WF_PYTHON") or ROOT / "target/python/venv/bin/python"
    if not os.access(python, os.X_OK):
        raise SystemExit(f"{python} is missing: run python/test first, or name a Python with the module in WF_PYTHON")
    table = libraries.requests()
    asked = {"models": {name: str(path) for name, path in libraries.models(home).items()}, "requests": table}
    client = ROOT / "tests/recordings/clients/python_client.py"
    ran = subprocess.run([python, client], input=json.dumps(asked), capture_output=True, text=True, env=environment())
    if ran.returncode:
        raise SystemExit(ran.stderr)
    answers = json.loads(ran.stdout)
    for name in table:
        answer = answers[name]
        answer |= {"calls": libraries.joined(answer["calls"])} if "calls" in answer else {}
        if "error" not in answer:
            libraries.check(name, answer.get("reasoning", ""), answer.get("calls", []), answer.get("text", ""))
    found = {name: libraries.recording(*table[name][1:], answers.pop(name)) for name in table}
    return found | {name: lines(Masks().value(answer)) for name, answer in answers.items()}
