"""All small tasks, by category."""

from . import facts, lists, numbers
from .split import TRAIN

MAKERS = numbers.TASKS | lists.TASKS | facts.TASKS
TASKS = list(MAKERS)
# Tasks that take more practice are asked more often.
PRACTICE = {
    "add": 3, "subtract": 4, "double": 1, "sort numbers": 2, "sort words": 3, "letters": 1, "spell": 1,
    "where": 4, "has": 8, "count kind": 8, "contains": 8, "word problem": 3, "count": 4,
    "missing": 4, "neighbor": 2, "calendar": 6, "opposite": 3,
}  # fmt: skip
DRAWN = TASKS + [name for name, more in PRACTICE.items() for _ in range(more)]


def task(rng, category: str, split: str = TRAIN) -> tuple[str, str]:
    """A question of the category and its only right answer."""
    return MAKERS[category](rng, split)


def task_turns(rng, category: str, split: str = TRAIN) -> list[tuple[str, str]]:
    """A task, and where it tells of a small world, perhaps more questions about that."""
    if category in lists.TURNS:
        return lists.TURNS[category](rng, split, rng.randint(1, 5))
    return [task(rng, category, split)]
