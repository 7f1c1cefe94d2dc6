"""Conversations: what a training document is made of."""

from . import tasks
from .chat import chat, farewell, greeting
from .grammar import pick
from .split import TRAIN
from .story import story

Turn = tuple[str, str]
MOST_TASKS = 14  # turns of a conversation of tasks
LONGEST = 1300  # characters of stories and questions, so that they fit the context of 512 tokens


def story_turns(rng, split: str) -> list[Turn]:
    """A story, perhaps only its end, and questions about it."""
    told = story(rng, split)
    if rng.random() < 0.1:
        turns = [continuation(rng, told.text)]
    else:
        turns = [(told.prompt, told.text)]
    asked = pick(rng, (0, 1, 2, 2, 3, 3, 4))
    # The first questions of the list are about this story alone; they are asked more often.
    special = len(told.questions) // 2
    for question in rng.sample(told.questions, min(len(told.questions), asked)):
        if rng.random() < 0.3 and special:
            question = told.questions[rng.randrange(special)]
        if question not in turns and sum(map(len, sum(turns, ()))) < LONGEST:
            turns.append(question)
    return turns


def continuation(rng, text: str) -> Turn:
    """The request to go on from the first sentences, and the rest of the story."""
    ends = [i + 2 for i in range(40, len(text) - 200) if text[i : i + 2] == ". "]
    cut = pick(rng, ends[:4]) if ends else text.index(" ") + 1
    return "Continue: " + text[: cut - 1], text[cut:]


def task_turns(rng, split: str) -> list[Turn]:
    drawn = (pick(rng, tasks.DRAWN) for _ in range(rng.randint(2, 7)))
    return [turn for category in drawn for turn in tasks.task_turns(rng, category, split)][:MOST_TASKS]


def chat_turns(rng, split: str) -> list[Turn]:
    return [turn for _ in range(rng.randint(1, 3)) for turn in chat(rng, split)]


def document(rng, split: str = TRAIN) -> list[Turn]:
    """One conversation."""
    kind = rng.random()
    turns = greeting(rng, split) if rng.random() < 0.12 else []
    if kind < 0.42:
        turns += story_turns(rng, split)
    elif kind < 0.80:
        turns += task_turns(rng, split)
    elif kind < 0.88:
        turns += chat_turns(rng, split)
    else:
        turns += chat_turns(rng, split)[:2] + story_turns(rng, split)[:2] + task_turns(rng, split)[:2]
    if rng.random() < 0.12:
        turns += farewell(rng, split)
    return turns
