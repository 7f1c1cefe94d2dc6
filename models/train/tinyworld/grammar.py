"""The little language that plots are written in.

A plot file holds plots, and rules that all plots share:

    rule meet
    - Just then, {B} the {bsp} came by. | Along came {a_bsp} named {B}.

    plot lost-toy
    cast any any
    ...
    - {A} could not find the {toy} [anywhere|any more]. | "Where is my {toy}?" {he} cried. <sad>
    ? {A} looked {spot1}, but it was not there.
    Q What did {A} lose? = {A} lost {a_color} {toy}.

`-` is a beat of the story, `?` one that half of the stories have; ` | ` and `[x|y]` are choices,
`{x}` is looked up in the world, `<x>` is a rule.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

RULE = re.compile(r"<([a-z_]+)>")
CHOICE = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")


class Rule(str):
    """The name of a rule, where a beat refers to one."""


@dataclass
class Plot:
    name: str
    header: dict[str, str] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)  # names of the values in `rows`
    rows: list[list[str]] = field(default_factory=list)
    beats: list[tuple[bool, list]] = field(default_factory=list)  # (optional, alternatives)
    questions: list[tuple[str, str]] = field(default_factory=list)

    def get(self, key: str, default: str = "") -> str:
        return self.header.get(key, default)


def expand(text: str) -> list[str]:
    """All texts that `[x|y]` choices stand for."""
    match = CHOICE.search(text)
    if not match:
        return [re.sub(" +", " ", text).strip()]
    before, after = text[: match.start()], text[match.end() :]
    return [t for option in match[1].split("|") for t in expand(before + option + after)]


def compile_text(text: str):
    """A string to format, or a list of such strings and rules."""
    parts = RULE.split(text)
    if len(parts) == 1:
        return text
    return [Rule(p) if i % 2 else p for i, p in enumerate(parts) if p]


def alternatives(line: str) -> list[list]:
    return [[compile_text(t) for t in expand(a)] for a in re.split(r" \| (?![^\[]*\])", line)]


def pick(rng, options):
    return options[int(rng.random() * len(options))]


def render(options, rng, world, rules) -> str:
    """One of the alternatives, filled in."""
    text = pick(rng, pick(rng, options))
    if type(text) is str:
        return text.format_map(world)
    return "".join(
        render(rules[p], rng, world, rules) if type(p) is Rule else p.format_map(world)
        for p in text
    )


def parse(text: str, plots: list[Plot], rules: dict[str, list]) -> None:
    """Adds the plots and rules of a file."""
    plot = rule = None
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "#":
            continue
        if word == "rule":
            plot, rule = None, rules.setdefault(rest, [])
        elif word == "plot":
            plot, rule = Plot(rest), None
            plots.append(plot)
        elif rule is not None:
            rule += alternatives(rest)
        elif word in "-?":
            plot.beats.append((word == "?", alternatives(rest)))
        elif word == "Q":
            question, _, answer = rest.partition(" = ")
            plot.questions += [(q, answer) for q in expand(question)]
        elif word == "row":
            plot.columns = rest.split()
        elif word == ":":
            plot.rows.append([v.strip() for v in rest.split(" ; ")])
        else:
            plot.header[word] = rest


def load(folder: Path) -> tuple[list[Plot], dict[str, list]]:
    plots: list[Plot] = []
    rules: dict[str, list] = {}
    for file in sorted(folder.glob("*.txt")):
        parse(file.read_text("ascii"), plots, rules)
    return plots, rules
