"""A cargo for maturin that compiles the program `wf-run` in the same call as the module.

One call selects one set of features, so no dependency is compiled twice. The path of the program is
what cargo says, wherever its target folder is.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

CARGO = os.environ["WHEEL_CARGO"]
PACKAGES = ["--package", "wf-run", "--package", "wrinklefree-python"]
# What `cargo test --workspace` compiles: another selection would compile the libraries again, with other features.
WORKSPACE = ["--workspace", "--lib", "--bins", "--tests"]


def main(arguments):
    """Runs cargo, and returns its exit code."""
    if arguments[:1] != ["rustc"]:
        return subprocess.run([CARGO, *arguments]).returncode
    workspace = bool(os.environ.get("WHEEL_WORKSPACE"))
    command = [CARGO, "build", *(WORKSPACE if workspace else PACKAGES), *options(arguments[1:])]
    environment = without_interpreter(os.environ) if workspace else os.environ
    program = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            program = built_program(line) or program
    if process.returncode == 0:
        if program is None:
            sys.exit(f"{shlex.join(command)} named no program wf-run: report this with its output")
        shutil.copy2(program, Path(os.environ["WHEEL_SCRIPTS"]))
    return process.returncode


def options(arguments):
    """Returns the options of `cargo rustc` that `cargo build` of two packages takes too.

    Flags of the linker come after `--`; the module's build script has them.
    """
    if "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    return [argument for argument in arguments if argument != "--lib"]


def without_interpreter(environment):
    """Returns the variables without those that describe a Python, with which PyO3 would be compiled again.

    The module is for all of them.
    """
    return {name: value for name, value in environment.items() if not name.startswith("PYO3_")}


def built_program(line):
    """Returns the path of `wf-run` if the line of JSON names it."""
    if not line.startswith(b"{"):
        return None
    message = json.loads(line)
    artifact = message["reason"] == "compiler-artifact" and message["target"]["name"] == "wf-run"
    return message["executable"] if artifact and not message["profile"]["test"] else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
