"""Fixtures of all tests: one engine, and the program of the wheel."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

import wrinklefree


# Biases that forbid the tokens which end a text of the embedded model.
ENDLESS = {token: float("-inf") for token in range(3)}


@pytest.fixture(scope="session")
def engine() -> wrinklefree.Engine:
    return wrinklefree.load(threads=2)


@pytest.fixture(scope="session")
def wf_run() -> Path:
    scripts = Path(sysconfig.get_path("scripts"))
    return next(scripts.glob("wf-run*"))
