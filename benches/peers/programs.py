"""The programs that are compared: how each is asked for a test, and how its answer is read."""

import json
import os
import subprocess
from dataclasses import dataclass, field

GGUF, IQ2_BN, ARRAYS, PACKED = ".gguf", ".iq2_bn.gguf", ".npz", ".wf.safetensors"
Q2_0, ROTATED = ".q2_0.gguf", ".rotated.gguf"


class Failure(Exception):
    """Something that the reader can do something about."""


@dataclass(frozen=True)
class Test:
    """`pp32`: a prompt of 32 tokens; `tg16`: 16 tokens one by one, from an empty context;
    `tg16@2048`: the same after 2,048 tokens."""

    kind: str
    tokens: int
    depth: int = 0

    def __str__(self):
        after = f"@{self.depth}" if self.depth else ""
        return f"{self.kind}{self.tokens}{after}"

    @classmethod
    def parse(cls, text):
        word, at, depth = text.partition("@")
        kind, tokens = word[:2], word[2:]
        numbers = [tokens, depth] if at else [tokens]
        whole = all(number.isdigit() and int(number) > 0 for number in numbers)
        if kind not in ("pp", "tg") or not whole:
            raise ValueError(f"ppN, tgN, ppN@DEPTH or tgN@DEPTH, not {text}")
        return cls(kind, int(tokens), int(depth or 0))


@dataclass(frozen=True)
class Case:
    """The measurement of one round, the same with every program."""

    model: str
    path: str
    """Of the model's files, but for their endings."""
    hybrid: bool
    threads: int
    test: Test
    repetitions: int


@dataclass(frozen=True)
class Sample:
    tokens_per_second: float
    backend: str


@dataclass(frozen=True)
class Program:
    name: str
    command: list
    """With the case's options after it."""
    read: object
    """Sample from what it printed."""
    kinds: tuple = ("pp", "tg")
    """Of tests that it is asked for."""
    ending: str = GGUF
    """Of its file of the model."""
    environment: dict = field(default_factory=dict)
    hybrid: bool = False
    """True if it is measured on hybrid models, false if on the others."""
    depth: tuple = ()
    """Options of a test after other tokens, the last of which takes their number; empty if it has
    no such tests."""

    def fits(self, case):
        has_depth = not case.test.depth or bool(self.depth)
        return case.test.kind in self.kinds and case.hybrid == self.hybrid and has_depth

    def options(self, case):
        prompt, generate = (case.test.tokens if case.test.kind == k else 0 for k in ("pp", "tg"))
        pairs = {"-m": case.path + self.ending, "-p": prompt, "-n": generate}
        pairs |= {"-t": case.threads, "-r": case.repetitions, "-o": "json"}
        depths = [*self.depth, case.test.depth] if case.test.depth else []
        return [str(word) for word in [*(word for pair in pairs.items() for word in pair), *depths]]

    def run(self, case):
        """One sample; the program has ended when this returns."""
        # The shell may set variables for one of the programs; they must not decide.
        outside = {k: v for k, v in os.environ.items() if k not in ("WF_ISA", "GLIBC_TUNABLES")}
        words = [*self.command, *self.options(case)]
        ran = subprocess.run(words, env=outside | self.environment, capture_output=True, text=True)
        if ran.returncode != 0:
            lines = ran.stderr.strip().splitlines() or ["it said nothing"]
            raise Failure(f"{self.name} ended with {ran.returncode} at {case.test}: {lines[-1]}")
        try:
            return self.read(ran.stdout)
        except (ValueError, KeyError) as error:
            raise Failure(f"{self.name} answered {case.test} with nonsense: {error!r}") from error


def read_wf_run(text):
    """And our driver of litespark-inference, which answers alike."""
    (result,) = json.loads(text)
    return Sample(result["tokens_per_second"], result["backend"])


def read_llama_bench(text):
    (result,) = json.loads(text)
    return Sample(result["avg_ts"], "CPU")


OURS, LLAMA, IK, LITESPARK = "wrinklefree", "llama.cpp", "ik_llama.cpp", "litespark"
# Its prompts and contexts are faster with flash attention, which is not its default everywhere.
LLAMA_DEPTH = ("-fa", "on", "-d")
# Read, not mapped, into memory for which glibc asks the kernel for huge pages.
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def wf_run(path, isa=None):
    """On the best instructions that it knows, or on `isa` in prompts, which they are for."""
    command = [path, "bench"]
    if isa is None:
        return Program(OURS, command, read_wf_run, depth=("--depth",))
    return Program(f"{OURS}, {isa}", command, read_wf_run, ("pp",), environment={"WF_ISA": isa})


def wf_run_f32(path):
    """With exact keys and values, where its own default and llama.cpp's have 16 bits."""
    command = [path, "bench", "--kv-dtype", "f32"]
    return Program(f"{OURS}, f32 cache", command, read_wf_run, ("pp",))


def wf_run_packed(path):
    """On the file as `wf-run convert --head q8` packs it, with a screened head: its fastest decoding.
    Not the same bits in the head, which has 8 of them and a scale a row where the others' has 6.6."""
    command = [path, "bench", "--logits", "screened"]
    return Program(f"{OURS}, packed, screened", command, read_wf_run, ("tg",), PACKED)


def wf_run_hybrid(path):
    """On rotated weights, as published; with 8-bit activations too, as llama.cpp has them; and on the same
    weights without a rotation."""
    exact, int8 = ([path, "bench", "--activations", bits] for bits in ("exact", "int8"))
    return [
        Program(OURS, exact, read_wf_run, ending=ROTATED, hybrid=True),
        Program(f"{OURS}, int8", int8, read_wf_run, ending=ROTATED, hybrid=True),
        Program(f"{OURS}, int8, not rotated", int8, read_wf_run, ending=Q2_0, hybrid=True),
    ]


def llama_bench_hybrid(path):
    """On both of its types. Q2_0 has no vector kernels on x86, so its prompts are not measured. b11739 and later
    read `prism.hadamard`; an older one leaves the rotation out, which only makes it faster."""

    def program(name, ending, kinds):
        name = f"{LLAMA}, {name}"
        return Program(name, [path], read_llama_bench, kinds, ending, hybrid=True)

    return [
        program("TQ2_0", GGUF, ("pp", "tg")),
        program("Q2_0", Q2_0, ("tg",)),
        program("Q2_0 rotated", ROTATED, ("tg",)),
    ]


def llama_bench(path):
    """As it is by default, on a mapped file; and with its weights in huge pages."""
    huge = [path, "-lm", "none"]
    return [
        Program(LLAMA, [path], read_llama_bench, depth=LLAMA_DEPTH),
        Program(
            f"{LLAMA}, huge pages", huge, read_llama_bench, environment=HUGE, depth=LLAMA_DEPTH
        ),
    ]


def ik_llama_bench(path):
    """As it is fastest: on its own ternary type, in huge pages, and prompts with interleaved rows,
    which would slow decoding down."""

    def program(name, words, kind):
        return Program(name, [path, *words], read_llama_bench, (kind,), IQ2_BN, HUGE)

    return [program(f"{IK}, repacked", ["-rtr", "1"], "pp"), program(IK, ["-mmp", "0"], "tg")]


def litespark(*command):
    return [Program(LITESPARK, command, read_wf_run, ending=ARRAYS)]
