"""Checks that a story is coherent. They need no reader, and are those of `wf-run eval quality`.

`vocabulary.json` has what they look up: `words` (all that the generator can say), `names` and
`species` of characters, and the `colors` and `things` that stories lose and find. A record of the
evaluation set may say under `story` what a request asks for.
"""
import json
import re
from collections import defaultdict
from pathlib import Path

VOCABULARY = Path(__file__).parent / "../eval/vocabulary.json"
WORD = re.compile(r"[A-Za-z]+")
NEAR, NEXT = 5, 2  # how many words away a species may be from its name


class Vocabulary:
    def __init__(self, path: Path = VOCABULARY):
        sets = {key: set(words) for key, words in json.loads(path.read_text()).items()}
        self.words, self.names, self.species = sets["words"], sets["names"], sets["species"]
        self.colors, self.things = sets["colors"], sets["things"]


def spelled(text: str, vocabulary: Vocabulary) -> bool:
    """Every word is one that the generator knows, but for a capital at its beginning."""
    known = vocabulary.words
    return all(w in known or w[0].lower() + w[1:] in known for w in WORD.findall(text))


def asked(text: str, story: dict) -> bool:
    """All that the request names is in the story."""
    return set(story.get("asked", ())) <= set(WORD.findall(text))


def named(text: str, story: dict, vocabulary: Vocabulary) -> bool:
    """Every name has its bearer: a species stands near one of its places, and next to a name that is
    said only once. A name that the request has said already need only be said again, twice."""
    words = WORD.findall(text)
    places = defaultdict(list)
    for i, word in enumerate(words):
        if word in vocabulary.names:
            places[word].append(i)

    def borne(name: str) -> bool:
        again = len(places[name]) > 1
        near = NEAR if again else NEXT
        return (again and name in story.get("asked", ())) or any(
            not vocabulary.species.isdisjoint(words[max(0, i - near):i + near + 1])
            for i in places[name]
        )

    return all(map(borne, list(places)))


def found(text: str, story: dict, vocabulary: Vocabulary) -> bool:
    """The thing that the story is about stays itself: it is spoken of twice at least, always in the
    same color, and nothing else is lost or found in its place."""
    thing = story.get("thing")
    if thing is None:
        return True
    words = WORD.findall(text)
    colors = {a for a, b in zip(words, words[1:]) if b == thing and a in vocabulary.colors}
    others = vocabulary.things.intersection(words) - {thing}
    return words.count(thing) >= 2 and len(colors) <= 1 and not others


def checks(text: str, story: dict, vocabulary: Vocabulary) -> dict[str, bool]:
    """Each check by name."""
    return {
        "spelled": spelled(text, vocabulary),
        "asked": asked(text, story),
        "named": named(text, story, vocabulary),
        "found": found(text, story, vocabulary),
    }
