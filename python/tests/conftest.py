"""Fixtures of all tests: one engine, and the program of the wheel."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

import wrinklefree

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/recordings"))
import puppets  # type: ignore[import-not-found]  # noqa: E402


# Biases that forbid the tokens which end a text of the embedded model.
ENDLESS = {token: float("-inf") for token in range(3)}


@pytest.fixture(scope="session")
def engine() -> wrinklefree.Engine:
    return wrinklefree.load(threads=2)


@pytest.fixture(scope="session")
def wf_run() -> Path:
    scripts = Path(sysconfig.get_path("scripts"))
    return next(scripts.glob("wf-run*"))


@pytest.fixture
def thinker(tmp_path: Path) -> wrinklefree.Engine:
    """A model that thinks and answers; the prompt begins the thinking, as Qwen3.5's does."""
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.reasoning_content or '' }}{{ m.content }}"
        "<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n{# </think> #}"
    )
    puppets.write(tmp_path / "thinker", "Hm, is it?\n</think>\n\nYes, it is.", template)
    return wrinklefree.load(tmp_path / "thinker", threads=1, context=256)
