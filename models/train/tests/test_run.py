"""`run` goes through all stages in order, each from files that an earlier one left behind."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).parent

# Stands in for python: writes what a script would, and fails where a file that it needs is missing.
PYTHON = """#!/usr/bin/env bash
set -euo pipefail
script=$1; shift
case $script in
train.py)
    stage=first; work=
    while [ $# -gt 0 ]; do
        case $1 in
        --stage) stage=$2 ;;
        --work) work=$2 ;;
        --resume | --own | --sampled) [ -f "$2" ] || { echo "$stage has no $2"; exit 1; } ;;
        esac
        shift 2
    done
    echo "$stage"
    touch "$work/final.pt" "$work/master.safetensors" ;;
distil.py) echo "tell ${*:6}"; touch "$1" ;;
export.py) mkdir -p "$2" ;;
esac
"""
PROGRAM = """#!/usr/bin/env bash
case $1 in
serve) echo "listening on http://127.0.0.1:9"; exec sleep 60 ;;
convert) touch "${@: -1}" ;;
esac
"""


class Run(unittest.TestCase):
    def test_every_stage_finds_what_it_needs(self):
        with tempfile.TemporaryDirectory() as folder:
            train = Path(folder)
            shutil.copy(HERE.parent / "run", train)
            (train / ".venv/bin").mkdir(parents=True)
            for path, text in (
                (".venv/bin/python", PYTHON), (".venv/bin/pip", "#!/bin/sh\n"), ("wf-run", PROGRAM),
            ):
                (train / path).write_text(text)
                (train / path).chmod(0o755)
            env = os.environ | {"WF_RUN": str(train / "wf-run")}
            said = subprocess.run(
                [train / "run"], env=env, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
            drawn = "tell --temperature 0.7 --min-p 0.05 --attempts 3"
            self.assertEqual(
                [line.strip() for line in said.stdout.splitlines()],
                ["first", "tell", "longer", "tell", drawn, "polish", "tell", drawn, "repolish",
                 "spell"])


if __name__ == "__main__":
    unittest.main()
