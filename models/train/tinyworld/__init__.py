"""TinyWorld: conversations of small stories, questions about them, and small tasks.

Everything is generated, from a seed, and every answer follows from facts that the generator knows.
"""

from .document import Turn, document
from .split import HELDOUT, TRAIN
from .story import PLOTS, Story, story
from .tasks import TASKS, task

__all__ = ["HELDOUT", "PLOTS", "TASKS", "TRAIN", "Story", "Turn", "document", "story", "task"]
