"""How `pip` builds the wheel: with one call of cargo, and the program that cargo names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import wrinklefree

PYTHON = Path(__file__).resolve().parents[1]
# A cargo that compiles nothing: it writes down its arguments, and names files that are there already.
CARGO = """#!{python}
import json, os, subprocess, sys
if sys.argv[1] not in ("build", "rustc"):
    sys.exit(subprocess.run([{cargo!r}, *sys.argv[1:]]).returncode)
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
for line in open({messages!r}):
    print(line, end="")
"""


def artifact(
    folder: Path, package: str, name: str, kind: str, file: Path, *, test: bool = False
) -> dict[str, object]:
    """A message of cargo on a file that it has made."""
    target = {
        "kind": [kind], "crate_types": [kind], "name": name, "src_path": str(folder / "lib.rs"),
        "edition": "2024", "doc": False, "doctest": False, "test": False,
    }  # fmt: skip
    profile = {
        "opt_level": "3", "debuginfo": 0, "debug_assertions": False, "overflow_checks": False,
        "test": test,
    }  # fmt: skip
    return {
        "reason": "compiler-artifact", "package_id": f"path+file://{folder}#{package}@{wrinklefree.__version__}",
        "manifest_path": str(folder / "Cargo.toml"), "target": target, "profile": profile, "features": [],
        "filenames": [str(file)], "executable": str(file) if kind == "bin" else None, "fresh": True,
    }  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for cargo is a script")
@pytest.mark.parametrize("target", ["default", "variable", "file"])
def test_one_call_of_cargo_compiles_program_and_module(tmp_path: Path, target: str) -> None:
    module = Path(wrinklefree._native.__file__)
    program = tmp_path / "a folder/wf-run"
    program.parent.mkdir()
    program.write_bytes(b"#!/bin/sh\necho built just now\n")
    elsewhere = str(tmp_path / "elsewhere")
    source = checkout(tmp_path / "checkout", elsewhere) if target == "file" else PYTHON
    variables = {"CARGO_TARGET_DIR": elsewhere} if target == "variable" else {}
    messages = [
        artifact(source.parent / "native", "wf-run", "wf-run", "bin", program),
        artifact(source, "wrinklefree-python", "_native", "cdylib", module),
        {"reason": "build-finished", "success": True},
    ]
    stand_in(tmp_path, messages)
    wheel, printed = pip_wheel(tmp_path, source, variables)
    calls = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [call[0] for call in calls] == ["build"], "one call compiles all"
    packages = [after for word, after in zip(calls[0], calls[0][1:]) if word == "--package"]
    assert packages == ["wf-run", "wrinklefree-python"]
    assert "--locked" in calls[0] and "release" in calls[0]
    assert "compiling wf-run and the module (profile release)" in printed
    with zipfile.ZipFile(wheel) as archive:
        script = next(name for name in archive.namelist() if name.endswith("scripts/wf-run"))
        assert archive.read(script) == program.read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for cargo is a script")
def test_the_tests_of_the_workspace_share_what_they_compile(tmp_path: Path) -> None:
    program = tmp_path / "wf-run"
    program.write_bytes(b"#!/bin/sh\n")
    messages = [
        artifact(PYTHON.parent / "native", "wf-run", "wf-run", "bin", program),
        artifact(PYTHON.parent / "native", "wf-run", "wf-run", "bin", tmp_path / "tests", test=True),
        artifact(PYTHON, "wrinklefree-python", "_native", "cdylib", Path(wrinklefree._native.__file__)),
        {"reason": "build-finished", "success": True},
    ]
    stand_in(tmp_path, messages)
    wheel, _ = pip_wheel(tmp_path, PYTHON, {"WHEEL_WORKSPACE": "1"})
    call = json.loads((tmp_path / "log").read_text())
    assert {"--workspace", "--lib", "--bins", "--tests"} < set(call) and "--package" not in call
    with zipfile.ZipFile(wheel) as archive:
        script = next(name for name in archive.namelist() if name.endswith("scripts/wf-run"))
        assert archive.read(script) == program.read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for cargo is a script")
def test_the_description_of_the_wheel_compiles_nothing(tmp_path: Path) -> None:
    stand_in(tmp_path, [])
    script = "import backend, sys; backend.prepare_metadata_for_build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", script, str(tmp_path / "metadata")]
    environment = {**with_stand_in(tmp_path), "PYTHONPATH": str(PYTHON / "build_backend")}
    subprocess.run(command, cwd=PYTHON, env=environment, check=True)
    assert list(tmp_path.glob("metadata/wrinklefree-*.dist-info/METADATA"))
    assert not (tmp_path / "log").exists()


def stand_in(folder: Path, messages: list[dict[str, object]]) -> None:
    """Writes the stand-in for cargo."""
    (folder / "messages").write_text("".join(json.dumps(message) + "\n" for message in messages))
    cargo = subprocess.run(["which", "cargo"], check=True, capture_output=True, text=True).stdout.strip()
    text = CARGO.format(
        python=sys.executable, cargo=cargo, log=str(folder / "log"), messages=str(folder / "messages")
    )
    file = folder / "bin/cargo"
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o755)


def with_stand_in(folder: Path) -> dict[str, str]:
    """The environment of a user who has the stand-in and maturin."""
    scripts = Path(sys.executable).parent
    mine = ("WHEEL_", "CARGO")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    return {**kept, "PATH": f"{folder / 'bin'}:{scripts}:{os.environ['PATH']}"}


def checkout(folder: Path, target: str) -> Path:
    """A copy of this folder among links to the others, where a file of cargo's sets its target folder."""
    folder.mkdir()
    for entry in PYTHON.parent.iterdir():
        if entry.name not in {"python", "target", ".cargo", ".git"}:
            (folder / entry.name).symlink_to(entry)
    (folder / ".cargo").mkdir()
    (folder / ".cargo/config.toml").write_text(f"[build]\ntarget-dir = {json.dumps(target)}\n")
    return Path(shutil.copytree(PYTHON, folder / "python"))


def pip_wheel(folder: Path, source: Path, variables: dict[str, str]) -> tuple[Path, str]:
    """Builds a wheel as `pip install ./python` does; returns it, and what pip prints."""
    environment = {**with_stand_in(folder), **variables}
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation"]
    command += ["--wheel-dir", str(folder), str(source)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return next(folder.glob("*.whl")), run.stdout + run.stderr
