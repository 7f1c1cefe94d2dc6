"""Tasks with numbers; answers show the steps, digit by digit, as one learns it at school."""

from . import words as w
from .grammar import pick
from .split import fits


def pair(rng, split, *key, low=0, high=99):
    """Two numbers, often small; held-out pairs are for the held-out split alone."""
    while True:
        top = pick(rng, (10, 20, high))
        a, b = rng.randint(low, min(top, high)), rng.randint(low, min(pick(rng, (10, top)), high))
        if fits(split, *key, a, b):
            return a, b


def add_steps(a: int, b: int) -> str:
    """Ones, then tens with what is carried."""
    if a < 10 and b < 10:
        return f"{a} + {b} = {a + b}."
    ones = a % 10 + b % 10
    steps = f"{a % 10} + {b % 10} = {ones}. "
    tens = [n for n in (a // 10, b // 10, ones // 10) if n]
    if len(tens) > 1:
        steps += f"{' + '.join(map(str, tens))} = {sum(tens)}. "
    return steps + f"{a} + {b} = {a + b}."


def subtract_steps(a: int, b: int) -> str:
    """Ones, borrowing ten where they must, then tens."""
    if a < 20 and b < 10:
        return f"{a} - {b} = {a - b}."
    borrow = 10 if a % 10 < b % 10 else 0
    steps = f"{a % 10 + borrow} - {b % 10} = {a % 10 + borrow - b % 10}. "
    tens = a // 10 - borrow // 10
    steps += f"{tens} - {b // 10} = {tens - b // 10}. "
    return steps + f"{a} - {b} = {a - b}."


def add(rng, split):
    while True:
        a, b = pair(rng, split, "add")
        if a + b < 100:
            break
    question = pick(rng, ("What is {} + {}?", "Add {} and {}.", "{} + {} = ?", "How much is {} + {}?"))
    return question.format(a, b), add_steps(a, b)


def subtract(rng, split):
    while True:
        a, b = pair(rng, split, "subtract")
        if a >= b:
            break
    if rng.random() < 0.25:
        return f"Take {b} from {a}.", subtract_steps(a, b)
    question = pick(rng, ("What is {} - {}?", "{} - {} = ?", "How much is {} - {}?"))
    return question.format(a, b), subtract_steps(a, b)


def word_problem(rng, split):
    """Two people and how many of something they have; sums up to twenty."""
    female = rng.random() < 0.5
    name, other = rng.sample(w.GIRLS if female else w.BOYS, 2)
    him, he = ("her", "She") if female else ("him", "He")
    thing = pick(rng, COUNTED)
    while True:
        a, b = rng.randint(1, 12), rng.randint(1, 9)
        more = rng.random() < 0.5
        if fits(split, "story sum", a, b) and (more or a > b):
            break
    if more:
        c, step = a + b, f"{a} + {b} = {a + b}."
        tale = pick(rng, (
            f"{name} has {a} {thing}. {other} gives {him} {b} more.",
            f"{name} has {a} {thing}. {he} finds {b} more.",
        ))  # fmt: skip
    else:
        c, step = a - b, f"{a} - {b} = {a - b}."
        tale = pick(rng, (
            f"{name} has {a} {thing}. {he} gives {b} to {other}.",
            f"{name} has {a} {thing}. {he} loses {b} of them.",
        ))  # fmt: skip
    return f"{tale} How many {thing} does {name} have now?", f"{step} {name} has {c} {thing}."


COUNTED = "apples coins shells books eggs stars cookies stones cards bells".split()


def count(rng, split):
    while True:
        a, n = rng.randint(0, 60), rng.randint(2, 10)
        if fits(split, "count", a, n):
            break
    if rng.random() < 0.25:
        return f"Count down from {a + n} to {a}.", ", ".join(map(str, range(a + n, a - 1, -1))) + "."
    return f"Count from {a} to {a + n}.", ", ".join(map(str, range(a, a + n + 1))) + "."


def sort_numbers(rng, split):
    while True:
        xs = rng.sample(range(1, pick(rng, (10, 21))), pick(rng, (3, 3, 4)))
        if fits(split, "sort", *sorted(xs)[:3]):
            break
    listed = ", ".join(map(str, xs))
    up = rng.random() < 0.7
    answer = ", ".join(map(str, sorted(xs, reverse=not up))) + "."
    if up:
        return pick(rng, ("Sort these numbers: {}.", "Put these numbers in order: {}.")).format(listed), answer
    return f"Sort these numbers from big to small: {listed}.", answer


def compare(rng, split):
    while True:
        a, b = pair(rng, split, "compare")
        if a != b:
            break
    word = pick(rng, ("bigger", "smaller"))
    answer = max(a, b) if word == "bigger" else min(a, b)
    return f"Which number is {word}, {a} or {b}?", f"{answer} is {word}."


def neighbor(rng, split):
    """The number after or before another."""
    while True:
        n, after = rng.randint(1, 99), rng.random() < 0.5
        if fits(split, "neighbor", n, after):
            break
    word, m = ("after", n + 1) if after else ("before", n - 1)
    return f"What number comes {word} {n}?", f"{m} comes {word} {n}."


def missing(rng, split):
    """The number that a row leaves out."""
    while True:
        start, step = rng.randint(0, 30), pick(rng, (1, 1, 2, 10))
        k = rng.randint(1, 2)
        if fits(split, "missing", start, step, k):
            break
    row = [start + step * i for i in range(4)]
    shown = ", ".join("?" if i == k else str(x) for i, x in enumerate(row))
    return f"What number is missing: {shown}?", ", ".join(map(str, row)) + f". The missing number is {row[k]}."


def double(rng, split):
    while True:
        n = rng.randint(1, 40)
        if fits(split, "double", n):
            break
    return f"What is double {n}?", f"{add_steps(n, n)} Double {n} is {2 * n}."


TASKS = {
    "add": add, "subtract": subtract, "word problem": word_problem, "count": count,
    "sort numbers": sort_numbers, "compare": compare, "neighbor": neighbor, "missing": missing,
    "double": double,
}  # fmt: skip
