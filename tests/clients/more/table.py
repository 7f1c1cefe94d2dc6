"""Writes the table of clients: `table.py PAGE RESULT.json…`. Fails if a feature of a client does not
work, after the page is written."""

import json
import sys
from pathlib import Path

FEATURES = ["answer", "stream", "tool call", "schema", "embeddings"]
HEAD = """# Clients

`tests/clients/more/run` made this table: unmodified clients of these versions against `wf-run serve` with the model inside the program. `yes` is a feature that was tested and works; an empty cell was not tested. Tool calls are forced (`tool_choice`), because that model only knows stories. CI tests the `openai`, `anthropic`, `ollama` and `litellm` packages and lm-eval with `tests/clients/run`.

The peers' own tests of their servers run unmodified, too (2026-11-28): of llama.cpp's portable ones 100 of 107 pass (`tests/clients/peers/run`, llama-cpp-python 0.3.36), of vLLM's 62 of 81 (`tests/clients/peers/vllm/run`, vLLM 0.33.0, SmolLM2-135M-Instruct). `not_portable.txt` beside each script names the others with their reasons, such as LoRA, multimodal models, or answers that only a large model gives.

"""


def main(page, *files):
    rows = [row for file in sorted(files) for row in json.loads(Path(file).read_text())]
    lines = ["| client | version | API | " + " | ".join(FEATURES) + " |"]
    lines.append("| --- " * (3 + len(FEATURES)) + "|")
    for row in sorted(rows, key=lambda row: row["client"].lower()):
        word = {True: "yes", False: "no", None: ""}
        cells = [word[row["features"].get(feature)] for feature in FEATURES]
        lines.append(f"| {row['client']} | {row['package']} | {row['api']} | {' | '.join(cells)} |")
    Path(page).parent.mkdir(exist_ok=True)
    Path(page).write_text(HEAD + "\n".join(lines) + "\n")
    failed = [row["client"] for row in rows if not all(row["features"].values())]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


main(*sys.argv[1:])
