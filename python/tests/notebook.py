"""Prints what the executed notebook shows, and fails where a cell of code shows nothing."""

import json
import sys
from pathlib import Path

cells = json.loads(Path(sys.argv[1]).read_text())["cells"]
code = [cell for cell in cells if cell["cell_type"] == "code"]
shown = [cell["outputs"] for cell in code if cell["metadata"].get("tags") != ["silent"]]
assert shown and all(shown), "a cell shows nothing"
for output in (output for outputs in shown for output in outputs):
    assert output["output_type"] in ("stream", "execute_result"), output
    print("".join(output.get("text") or [*output["data"]["text/plain"], "\n"]), end="")
