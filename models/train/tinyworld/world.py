"""A world: the cast and the things of one story, drawn when the story first speaks of them."""

from . import words as w
from .grammar import pick
from .split import HELDOUT, TRAIN, fits

SLOTS = {
    "food": w.FOODS, "flower": w.FLOWERS, "treasure": w.TREASURES, "instrument": w.INSTRUMENTS,
    "pet": w.PETS, "family": w.FAMILY, "n": w.NUMBERS, "weather": w.WEATHER, "season": w.SEASONS,
    "place": list(w.PLACES), "spot": w.SPOTS, "room": w.ROOMS, "part": w.INGREDIENTS,
    "animal": w.SPECIES, "hue": w.COLORS, "near": w.NEAR, "like": w.HOBBIES,
    "pname": w.PET_NAMES,
}  # fmt: skip
KINDS = {
    "any": ("animal", "animal", "animal", "child", "child", "job"),
    "person": ("child", "child", "job"),
    "friend": ("animal", "animal", "child"),
}
PRONOUNS = {True: ("she", "her", "her"), False: ("he", "him", "his")}


def usable(split: str, words: list[str], held: set[str]) -> list[str]:
    """Words of a list that stories of the split may use."""
    return words if split == HELDOUT else [x for x in words if x not in held]


NAMES = {
    (split, animal, female): usable(split, words, w.HELD_NAMES)
    for split in (TRAIN, HELDOUT)
    for animal, female, words in (
        (False, True, w.GIRLS),
        (False, False, w.BOYS),
        (True, True, w.SHE_ANIMALS),
        (True, False, w.HE_ANIMALS),
    )
}
THINGS = {split: usable(split, w.TOYS, w.HELD_THINGS) for split in (TRAIN, HELDOUT)}


class World(dict):
    """Values of the names `{x}` in a plot."""

    def __init__(self, rng, split, plot):
        super().__init__()
        self.rng, self.split, self.plot = rng, split, plot
        self.names: list[str] = []
        for prefix, kind in zip(("", "b", "c"), plot.get("cast", "any").split()):
            self.add_character(prefix, KINDS.get(kind, (kind,)))
        if plot.rows:
            for key, value in zip(plot.columns, pick(rng, plot.rows), strict=True):
                self[key] = value.format_map(self)

    def add_character(self, prefix: str, kinds: tuple[str, ...]) -> None:
        rng = self.rng
        while True:
            kind = pick(rng, kinds)
            species, female = self.draw_species(kind)
            name = pick(rng, NAMES[self.split, kind == "animal", female])
            if self.fits_cast(prefix, kind, species, name):
                break
        he, him, his = PRONOUNS[female]
        self.names.append(name)
        self["ABC"[len(self.names) - 1]] = name
        traits = {"sp": species, "trait": pick(rng, w.TRAITS), "he": he, "him": him, "his": his}
        self.update((prefix + key, value) for key, value in traits.items())

    def draw_species(self, kind: str) -> tuple[str, bool]:
        """The species, and whether this one is female."""
        female = self.rng.random() < 0.5
        if kind == "animal":
            return pick(self.rng, w.SPECIES), female
        if kind == "job":
            job = pick(self.rng, w.JOBS)
            return job, female and job not in w.HE_JOBS or job in w.SHE_JOBS
        return "girl" if female else "boy", female

    def fits_cast(self, prefix: str, kind: str, species: str, name: str) -> bool:
        """A hero is told apart by the plot and the species, the others by whom they meet."""
        if name in self.names or species in (self.get("sp"), self.get("bsp")):
            return False
        if prefix:
            return fits(self.split, "meet", *self.names, name)
        if kind != "child" and not fits(self.split, "species", species, name):
            return False
        return fits(self.split, "plot", self.plot.name, name)

    def __missing__(self, key: str) -> str:
        self[key] = value = self.make(key)
        return value

    def make(self, key: str) -> str:
        if key.startswith("a_"):
            return w.a(self[key[2:]])
        if key[0].isupper():
            return w.cap(self[key[0].lower() + key[1:]])
        if key.startswith("at_"):
            place = self[key[3:]]
            return f"{w.PLACES[place]} the {place}"
        kind = key.rstrip("0123456789")
        if kind in ("toy", "color"):
            return self.draw_thing(key, kind)
        taken = {v for k, v in self.items() if k.startswith(kind)}
        while True:
            value = pick(self.rng, SLOTS[kind])
            if value not in taken:
                return value

    def draw_thing(self, key: str, kind: str) -> str:
        """A thing and its colour."""
        number = key[len(kind) :]
        taken = {self.get(k) for k in ("toy", "toy1", "toy2", "color", "color1", "color2")}
        while True:
            toy, color = pick(self.rng, THINGS[self.split]), pick(self.rng, w.COLORS)
            if fits(self.split, "thing", color, toy) and not taken & {toy, color}:
                break
        self["toy" + number], self["color" + number] = toy, color
        return self[key]
