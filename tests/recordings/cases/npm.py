"""The npm package in Node, as `web/build` makes it."""

import json
import shutil
import subprocess

from cases import libraries
from layout import lines
from masks import Masks
from programs import ROOT, environment


def record(_, home):
    """Records the part."""
    package, client = ROOT / "web/dist/index.node.js", ROOT / "tests/recordings/clients/npm_client.mjs"
    if not package.exists():
        raise SystemExit(f"{package} is missing: run web/build first")
    table = libraries.requests(forms=False)
    models = {name: str(path) for name, path in libraries.models(home).items()}
    asked = json.dumps({"package": str(package), "models": models, "requests": table})
    ran = subprocess.run([shutil.which("node"), client], input=asked, capture_output=True, text=True, env=environment())
    if ran.returncode:
        raise SystemExit(ran.stderr)
    answers = json.loads(ran.stdout)
    for name, (_, way, *_) in table.items():
        answer = answers[name]
        if name.startswith("conversation, ") and "error" not in answer:
            said = [part[0]["delta"] for part in answer if part] if way == "stream" else [answer["choices"][0]["message"]]
            libraries.check(name, *libraries.pieces(said))
    found = {name: libraries.recording(*table[name][1:], answers.pop(name)) for name in table}
    return found | {name: lines(Masks().value(answer)) for name, answer in answers.items()}
