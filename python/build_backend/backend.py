"""maturin as a build backend whose wheel also has `wf-run`, which it installs as a command.

The program is a file of its own, not a function of the module: it starts without Python, and Ctrl-C
reaches it without Python's handlers. CARGO_BUILD_TARGET selects another target; WHEEL_PROFILE the
profile (default: release); WHEEL_PROGRAM names a program that is built already. With WHEEL_WORKSPACE=1
the whole workspace is compiled, so that the output of its tests is used again.
"""

import os
import shlex
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import maturin
from maturin import get_requires_for_build_wheel  # noqa: F401 - a hook of the interface

HERE = Path(__file__).resolve().parent
PROFILE = os.environ.get("WHEEL_PROFILE", "release")
# Where `data` of pyproject.toml points.
SCRIPTS = HERE.parents[1] / "target/wheel-data/scripts"


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    """Writes the description of the wheel; compiles nothing."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(directory, config_settings)


def build_wheel(directory, config_settings=None, metadata_directory=None):
    """Builds the wheel with the program in it."""
    shutil.rmtree(SCRIPTS, ignore_errors=True)
    SCRIPTS.mkdir(parents=True)
    os.environ["MATURIN_PEP517_ARGS"] = f"--profile {PROFILE}"
    program = os.environ.get("WHEEL_PROGRAM")
    if program:
        print(f"compiling the module (profile {PROFILE}); the program is {program}", flush=True)
        shutil.copy2(program, SCRIPTS)
        return maturin.build_wheel(directory, config_settings, metadata_directory)
    print(
        f"compiling wf-run and the module (profile {PROFILE}): the first time about 10 minutes of "
        "processor time, which the cores share",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WHEEL_CARGO"] = os.environ.get("CARGO", "cargo")
        os.environ["WHEEL_SCRIPTS"] = str(SCRIPTS)
        os.environ["CARGO"] = str(wrapper(Path(folder)))
        return maturin.build_wheel(directory, config_settings, metadata_directory)


def wrapper(folder):
    """Writes a program that runs `cargo_wrapper.py`, and returns its path."""
    command = [sys.executable, str(HERE / "cargo_wrapper.py")]
    if os.name == "nt":
        file, text = folder / "cargo.cmd", '@"{}" "{}" %*\n'.format(*command)
    else:
        file, text = folder / "cargo", f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file
