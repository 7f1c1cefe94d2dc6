"""Stories: a request, the text, and what is true in it."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter

from . import words as w
from .grammar import load, pick, render
from .split import TRAIN
from .world import World

PLOTS, RULES = load(Path(__file__).parent / "plots")

# Lessons of stories, as a character learns them.
LESSONS = {
    "share": "to share", "help": "to help others", "brave": "to be brave",
    "truth": "to tell the truth", "try": "to never give up", "kind": "to be kind",
    "care": "to be careful", "listen": "to listen", "patient": "to be patient",
    "self": "to be happy as one is", "team": "to work together", "sorry": "to say sorry",
}  # fmt: skip
OPENINGS = (
    "Tell me a story", "Tell me a short story", "Write a story", "Please tell me a story",
    "Can you tell me a story", "I want to hear a story", "Make up a story",
)  # fmt: skip
MOODS = {"funny": "funny ", "sad": "sad ", "calm": "quiet ", "magic": "magic ", "happy": "happy "}
LOST = ("lost-found-by-friend", "lost-wind", "lost-thief")  # plots of one thing
WORD = re.compile("[A-Za-z]+")
ARTICLES = {"a", "an", "the"}
SPEECH = re.compile(r'"([A-Z][^"]{5,60}[.,!?])" (?:said|asked|cried|called) ([A-Z][a-z]+)\b')


@dataclass
class Story:
    prompt: str
    text: str
    plot: str
    names: list[str]
    species: list[str]
    asked: list[str]  # whom and where the request names: words that the story must have
    topic: list[str]  # what else it says that plots say in many ways, and the story says too
    things: list[str]  # coloured things; the colour of each never changes
    questions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def lost(self) -> str | None:
        """The thing that is lost and found and nothing else replaces, where the request names it."""
        named = self.plot in LOST and self.things[0] in self.prompt
        return self.things[0] if named else None


def story(rng, split: str = TRAIN, plot=None) -> Story:
    """A story of the split; its request says as much of it as the asker likes to."""
    plot = plot or pick(rng, PLOTS)
    world = World(rng, split, plot)
    bedtime = plot.get("mood") in ("calm", "happy") and rng.random() < 0.15
    beats = [] if plot.get("intro") == "own" else [render(RULES["intro"], rng, world, RULES)]
    beats += [
        render(options, rng, world, RULES)
        for optional, options in plot.beats
        if not optional or rng.random() < 0.5
    ]
    ending = "end_sleepy" if bedtime else "end_" + plot.get("end", "happy")
    beats.append(render(RULES[ending], rng, world, RULES))
    moral = None
    if rng.random() < 0.4:
        moral = render(RULES["moral_" + plot.get("lesson")], rng, world, RULES)
        beats.append(moral)
    text = " ".join(beats)
    prompt, asked, topic = request(rng, world, bedtime)
    topic = [word for word in topic if word in set(WORD.findall(text)) - ARTICLES]
    things = [world[k] for k in ("toy", "toy1", "toy2") if k in world and world[k] in text]
    found = Story(prompt, text, plot.name, world.names, species(world), asked, topic, things)
    found.questions = questions(world, plot, text, moral, ending)
    return found


def species(world) -> list[str]:
    return [world[k] for k in ("sp", "bsp", "csp") if k in world]


def who(rng, world, prefix: str, letter: str) -> tuple[str, list[str]]:
    """A request's words for a character, and the words that the story must have then."""
    name, kind = world[letter], world[prefix + "sp"]
    k = rng.random()
    if k < 0.45:
        return w.a(kind), [kind]
    if k < 0.7:
        return name, [name]
    if kind in ("girl", "boy") or k < 0.85:
        return f"{w.a(kind)} named {name}", [kind, name]
    return f"{name} the {kind}", [kind, name]


def request(rng, world, bedtime: bool) -> tuple[str, list[str], list[str]]:
    """A request that the story of this world fulfils, whom and where it names, and its topic."""
    opening = pick(rng, OPENINGS)
    if bedtime:
        opening = opening.replace("a short story", "a story").replace("a story", "a bedtime story")
    elif rng.random() < 0.15:
        mood = MOODS[world.plot.get("mood", "happy")]
        opening = opening.replace("a short story", "a story").replace("a story", f"a {mood}story")
    subject, asked, topic = about(rng, world)
    end = "?" if opening.startswith("Can") else "."
    return opening + subject + end, asked, topic


def about(rng, world) -> tuple[str, list[str], list[str]]:
    """The part of a request after "a story", whom and where it names, and its topic."""
    hero, asked = who(rng, world, "", "A")
    k = rng.random()
    if k < 0.06:
        return "", [], []
    if k < 0.3:
        return f" about {hero}", asked, []
    if k < 0.5 and "B" in world:
        other, more = who(rng, world, "b", "B")
        return f" about {hero} and {other}", asked + more, []
    if k < 0.62:
        return f" where someone learns {LESSONS[world.plot.get('lesson')]}", [], []
    template = pick(rng, world.plot.get("about").split("; "))
    about = template.format_map(world)
    topic = [
        word for _, key, _, _ in Formatter().parse(template) if key for word in WORD.findall(world[key])
    ]
    if k < 0.82:
        return f" about {about}", [], topic
    if k < 0.9 and "place" in world:
        return f" about {hero} {world['at_place']}", [*asked, world["place"]], []
    if about.startswith(("a ", "an ", "the ")):
        return f" about {hero} and {about}", asked, topic
    return f" about {hero}", asked, []


def questions(world, plot, text: str, moral: str | None, ending: str) -> list[tuple[str, str]]:
    """Questions that the story answers: the plot's own, and those that fit every story."""
    found = [(q.format_map(world), a.format_map(world)) for q, a in plot.questions]
    name, kind = world["A"], world["sp"]
    found.append(("Who is the story about?", f"The story is about {name}."))
    found.append((f"Who is {name}?", f"{name} is {w.a(kind)}."))
    other = pick(world.rng, [x for x in ("fox", "bear", "girl", "boy", "mouse", "baker") if x != kind])
    found.append((f"Is {name} {w.a(kind)}?", f"Yes, {name} is {w.a(kind)}."))
    found.append((f"Is {name} {w.a(other)}?", f"No, {name} is {w.a(kind)}."))
    for letter, prefix in (("B", "b"), ("C", "c")):
        if letter in world:
            second, its = world[letter], world[prefix + "sp"]
            if its in text:
                found.append((f"Who is {second}?", f"{second} is {w.a(its)}."))
            found.append((f"What is the name of the {its}?", f"The name of the {its} is {second}."))
    found.append((f"What is the name of the {kind}?", f"The name of the {kind} is {name}."))
    if "toy" in world and "toy2" not in world and "color2" not in world and world["color"] in text:
        found += color_questions(world)
    if moral:
        found.append(("What can we learn from the story?", moral))
    found += speech_questions(text)
    return found


def color_questions(world) -> list[tuple[str, str]]:
    toy, color = world["toy"], world["color"]
    other = pick(world.rng, [c for c in w.COLORS if c != color])
    return [
        (f"Was the {toy} {color}?", f"Yes, the {toy} was {color}."),
        (f"Was the {toy} {other}?", f"No, the {toy} was {color}."),
    ]


def speech_questions(text: str) -> list[tuple[str, str]]:
    """Asks for the speaker of a sentence that only one character said."""
    said = SPEECH.findall(text)
    found = []
    for words, speaker in said:
        if text.count(words) == 1:
            found.append((f'Who said, "{words.rstrip(",")}"?', f"{speaker} said it."))
    return found
