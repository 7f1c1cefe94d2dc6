"""The module in a process: threads, signals, forks, the time of an import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import wrinklefree
from conftest import ENDLESS
from wrinklefree import Engine

posix = pytest.mark.skipif(os.name != "posix", reason="signals and forks are POSIX's")


def test_two_threads_generate_at_once(engine: Engine) -> None:
    """Both run in one batch while a third thread executes Python, so the GIL is released."""
    prompts = ["Once upon a time", "Tell me a story"]

    def write(prompt: str) -> str:
        return engine.generate(
            prompt, temperature=0, max_tokens=6000, context_shift=4, logit_bias=ENDLESS
        ).text

    with ThreadPoolExecutor(2) as pool:
        texts = [pool.submit(write, prompt) for prompt in prompts]
        most = 0
        while not all(text.done() for text in texts):
            most = max(most, engine.stats()["running"])
            time.sleep(0.001)
    assert most == 2
    assert [text.result() for text in texts] == [write(prompt) for prompt in prompts]


def test_one_stream_serves_several_threads(engine: Engine) -> None:
    stream = engine.stream("Once upon a time", temperature=0, max_tokens=64)
    parts: list[list[int]] = [[], []]

    def take(part: list[int]) -> None:
        part.extend(chunk.token for chunk in stream if chunk.token is not None)

    threads = [threading.Thread(target=take, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    whole = engine.generate("Once upon a time", temperature=0, max_tokens=64)
    assert sorted(parts[0] + parts[1]) == sorted(whole.tokens)


SCRIPT = """
import wrinklefree
engine = wrinklefree.load(threads=1)
endless = dict(max_tokens=10**9, context_shift=4, logit_bias={t: float("-inf") for t in range(3)})
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted, and", engine.generate("Once", max_tokens=2).finish_reason, flush=True)
"""


def hears_ctrl_c() -> None:
    """A shell starts its background jobs, and so these tests perhaps, deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@posix
@pytest.mark.parametrize(
    "call",
    [
        'engine.generate("Once", **endless)',
        'engine.chat([{"role": "user", "content": "Hi"}], **endless)',
        'for chunk in engine.stream("Once", **endless): pass',
    ],
)
def test_ctrl_c_ends_a_request(call: str) -> None:
    script = SCRIPT.replace("{call}", call)
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hears_ctrl_c) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert "interrupted, and" in output


@posix
def test_ctrl_c_ends_the_program(wf_run: Path) -> None:
    biases = [f"--logit-bias={token}=-inf" for token in ENDLESS]
    options = ["--max-tokens=1000000000", "--context-shift=4", *biases]
    command = [str(wf_run), "generate", *options, "Once"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, preexec_fn=hears_ctrl_c) as process:
        assert process.stdout is not None and process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130


@posix
def test_a_forked_process_is_told(engine: Engine) -> None:
    child = os.fork()
    if child == 0:
        try:
            engine.generate("Once", max_tokens=1)
        except wrinklefree.Error as error:
            os._exit(7 if "load it after the fork" in str(error) else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


@posix
def test_a_forked_process_ends_without_the_engines_thread() -> None:
    script = """
import os, sys
import wrinklefree
engine = wrinklefree.load(threads=1)
stream = engine.stream("Once", max_tokens=4)
child = os.fork()
del engine, stream
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def test_the_import_is_quick() -> None:
    script = "import time; t = time.perf_counter(); import wrinklefree; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", script]
    times = [float(subprocess.check_output(command)) for _ in range(5)]
    assert min(times) < 0.1, times
    loaded = "import wrinklefree, sys; print('numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True) == "False\n"
