"""Writes models that say a given text and call tools: `puppets.py FOLDER`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tests/recordings"))
sys.dont_write_bytecode = True

import formats  # noqa: E402
import puppets  # noqa: E402

SAID = {
    "calls": ("hermes", "I look.\n"),
    "thinks": ("qwen-xml", "Hm.\n</think>\n\n"),
}

for name, (form, begin) in SAID.items():
    two = formats.calls(form, ("write", {"path": "a"}), ("sun", {"city": "Oslo"}))
    puppets.write(Path(sys.argv[1]) / name, begin + two, formats.template(form))
