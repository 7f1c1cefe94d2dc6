"""maturin as a build backend that first builds `wf-run`, which the wheel installs as a command.

The program is a file of its own, not a function of the module: it starts without Python, and Ctrl-C
reaches it without Python's handlers. CARGO_BUILD_TARGET selects another target; WHEEL_PROFILE the
profile (default: release); WHEEL_PROGRAM names a program that is built already.
"""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import get_requires_for_build_wheel  # noqa: F401 - a hook of the interface

ROOT = Path(__file__).resolve().parents[2]
PROFILE = os.environ.get("WHEEL_PROFILE", "release")


def build_wheel(directory, config_settings=None, metadata_directory=None):
    """Builds the wheel with the program in it."""
    build_program()
    os.environ["MATURIN_PEP517_ARGS"] = f"--profile {PROFILE}"
    return maturin.build_wheel(directory, config_settings, metadata_directory)


def build_program():
    """Builds `wf-run` and lays it where `data` of pyproject.toml points."""
    target = os.environ.get("CARGO_BUILD_TARGET", "")
    windows = "windows" in target or (not target and os.name == "nt")
    program = "wf-run.exe" if windows else "wf-run"
    folder = "debug" if PROFILE == "dev" else PROFILE
    built = os.environ.get("WHEEL_PROGRAM")
    if not built:
        command = ["cargo", "build", "--locked", "--profile", PROFILE, "--package", "wf-run"]
        subprocess.run(command, cwd=ROOT, check=True)
        built = ROOT / "target" / target / folder / program
    scripts = ROOT / "target/wheel-data/scripts"
    shutil.rmtree(scripts, ignore_errors=True)
    scripts.mkdir(parents=True)
    shutil.copy2(built, scripts / program)
