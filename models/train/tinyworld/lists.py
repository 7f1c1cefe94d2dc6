"""Tasks with words and lists: what a reader does by looking closely."""

from . import words as w
from .grammar import pick
from .split import fits

LISTED = [x for x in w.COLORS + w.FOODS + w.TOYS + w.SPECIES + w.FLOWERS if x.isalpha() and len(x) < 9]
SPELLED = [x for x in LISTED if len(x) < 7]
PLACES = "kitchen garden bedroom park school barn hall attic market library".split()


def sample(rng, split, *key, low=2, high=5):
    """A list of different words; which two meet at its beginning decides the split."""
    while True:
        xs = rng.sample(LISTED, rng.randint(low, high))
        if fits(split, *key, xs[0], xs[1]):
            return xs


def comma(xs) -> str:
    return ", ".join(xs)


def repeat(rng, split):
    xs = sample(rng, split, "repeat")
    return pick(rng, ("Repeat these words: {}.", "Say these words: {}.")).format(comma(xs)), comma(xs) + "."


def reverse(rng, split):
    xs = sample(rng, split, "reverse", high=4)
    return f"Say these words backwards: {comma(xs)}.", comma(xs[::-1]) + "."


def which(rng, split):
    xs = sample(rng, split, "which", low=3)
    word, i = pick(rng, (("first", 0), ("second", 1), ("last", -1)))
    question = pick(rng, ("What is the {} word: {}?", "Which word is {} in this list: {}?"))
    return question.format(word, comma(xs)), f"The {word} word is {xs[i]}."


def contains_turns(rng, split, count=1):
    """Asks if a list has a word, then others; each answer reads the list up to there."""
    xs, turns = sample(rng, split, "contains", low=3), []
    while len(turns) < count:
        if rng.random() < 0.5:
            word = pick(rng, xs)
            answer = f"{comma(xs[: xs.index(word) + 1])}. Yes, {word} is in the list."
        else:
            word = pick(rng, [x for x in LISTED if x not in xs])
            answer = f"{comma(xs)}. No, {word} is not in the list."
        question = f"And {word}?" if turns else f"Is {word} in this list: {comma(xs)}?"
        turns.append((question, answer))
    return turns


def count_words(rng, split):
    xs = sample(rng, split, "count words", high=7)
    listed = comma(f"{x} {i}" for i, x in enumerate(xs, 1))
    return f"How many words are here: {comma(xs)}?", f"{listed}. There are {len(xs)} words."


def count_kind_turns(rng, split, count=1):
    """Asks for the count of a word in a list, then of others; each answer reads the list and counts."""
    while True:
        word, *others = rng.sample(LISTED, 3)
        xs = [word] * rng.randint(1, 4) + [pick(rng, others) for _ in range(rng.randint(1, 3))]
        if fits(split, "count kind", word, xs[-1]):
            break
    rng.shuffle(xs)
    turns = [(f"How many times do you see {word}: {comma(xs)}?", counted(word, xs))]
    while len(turns) < count:
        word = pick(rng, xs)
        turns.append((f"And {word}?", counted(word, xs)))
    return turns


def counted(word, xs) -> str:
    """A list in which a word is counted."""
    n = xs.count(word)
    numbers = iter(range(1, n + 1))
    listed = comma(f"{x} {next(numbers)}" if x == word else x for x in xs)
    return f"{listed}. I see {word} {n} {'time' if n == 1 else 'times'}."


def spell(rng, split):
    question, word = pick_pair(rng, split, ("Spell the word {}.", "How do you spell {}?", "Spell {}.", "Can you spell {}?"), SPELLED)
    return question.format(word), comma(word) + "."


def pick_pair(rng, split, questions, words):
    """A word, and a way to ask for it: held-out pairs of them are asked nowhere in training."""
    while True:
        question, word = pick(rng, questions), pick(rng, words)
        if fits(split, question, word):
            return question, word


def letters(rng, split):
    question, word = pick_pair(rng, split, ("How many letters are in the word {}?", "How many letters does {} have?", "Count the letters in {}."), SPELLED)
    listed = comma(f"{x} {i}" for i, x in enumerate(word, 1))
    return question.format(word), f"{listed}. The word {word} has {len(word)} letters."


def initial(rng, split):
    question, word = pick_pair(rng, split, ("What letter does {} start with?", "What is the first letter of {}?", "What is the last letter of {}?"), SPELLED)
    if "last" in question:
        return question.format(word), f"{comma(word)}. The last letter is {word[-1]}."
    return question.format(word), f"The word {word} starts with {word[0]}."


def sort_words(rng, split):
    """By the alphabet; first letters differ and are shown as the step."""
    while True:
        xs = rng.sample(SPELLED, pick(rng, (2, 3, 3)))
        if len({x[0] for x in xs}) == len(xs) and fits(split, "sort words", xs[0], xs[1]):
            break
    answer = comma(f"{x[0]} {x}" for x in sorted(xs))
    return f"Sort these words by their first letter: {comma(xs)}.", answer + "."


def where_turns(rng, split, count=1):
    """Asks `count` times for a place or a person; before each question some people move."""
    while True:
        people = rng.sample(w.NAMES, rng.randint(2, 3))
        rooms = rng.sample(PLACES, len(people) + 1)
        lines = [f"{p} is in the {r}." for p, r in zip(people, rooms)]
        free = rooms.pop()
        i = rng.randrange(len(people))
        if rng.random() < 0.5:
            lines.append(f"{people[i]} goes to the {free}.")
            rooms[i], free = free, rooms[i]
            i = pick(rng, (i, rng.randrange(len(people))))
        if fits(split, "where", people[0], people[1]):
            break
    turns = [(" ".join(lines) + f" Where is {people[i]}?", f"{people[i]} is in the {rooms[i]}.")]
    while len(turns) < count:
        moved, i = rng.randrange(len(people)), rng.randrange(len(people))
        said = ""
        if rng.random() < 0.5:
            said = f"{people[moved]} goes to the {free}. "
            rooms[moved], free = free, rooms[moved]
        turns.append((f"{said}Where is {people[i]}?", f"{people[i]} is in the {rooms[i]}."))
    return turns


def has_turns(rng, split, count=1):
    """Asks `count` times for an owner, a thing or its color. The words before a thing are found by
    reading the list up to there."""
    while True:
        people = rng.sample(w.NAMES, rng.randint(2, 3))
        if fits(split, "has", people[0], people[1]):
            break
    colors = rng.sample(w.COLORS, len(people))
    things = rng.sample(w.TOYS + w.FOODS, len(people))
    facts = " ".join(f"{p} has {w.a(c)} {t}." for p, c, t in zip(people, colors, things))
    turns = []
    while len(turns) < count:
        i = rng.randrange(len(people))
        p, c, t = people[i], colors[i], things[i]
        owned, colored = (
            comma(f"{x} {y}" for x, y in zip(before[: i + 1], things)) for before in (people, colors)
        )
        turns.append(pick(rng, (
            (f"Who has the {t}?", f"{owned}. {p} has the {t}."),
            (f"What does {p} have?", f"{p} has {w.a(c)} {t}."),
            (f"What color is the {t}?", f"{colored}. The {t} is {c}."),
        )))  # fmt: skip
    turns[0] = (f"{facts} {turns[0][0]}", turns[0][1])
    return turns


# Tasks about a small world or a list, of which more can be asked.
TURNS = {
    "where": where_turns, "has": has_turns, "contains": contains_turns, "count kind": count_kind_turns,
}  # fmt: skip


def first(turns):
    """The first question alone."""
    return lambda rng, split: turns(rng, split)[0]


TASKS = {
    "repeat": repeat, "reverse": reverse, "which": which, "contains": first(contains_turns),
    "count words": count_words, "count kind": first(count_kind_turns), "spell": spell,
    "letters": letters, "initial": initial, "sort words": sort_words, "where": first(where_turns),
    "has": first(has_turns),
}  # fmt: skip
