"""All small tasks, by category."""

from . import facts, lists, numbers
from .split import TRAIN

MAKERS = numbers.TASKS | lists.TASKS | facts.TASKS
TASKS = list(MAKERS)
# What takes more practice is asked more often.
PRACTICE = {
    "add": 3, "subtract": 3, "double": 1, "sort numbers": 2, "sort words": 2, "letters": 2, "spell": 2,
    "initial": 1, "where": 3, "has": 3, "reverse": 1, "count kind": 2, "contains": 2, "word problem": 1,
    "count": 3, "missing": 3, "neighbor": 3,
}  # fmt: skip
DRAWN = TASKS + [name for name, more in PRACTICE.items() for _ in range(more)]


def task(rng, category: str, split: str = TRAIN) -> tuple[str, str]:
    """A question of the category and its only right answer."""
    return MAKERS[category](rng, split)
