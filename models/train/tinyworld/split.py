"""The combinations of the training split, and those that are held out.

A model cannot say a word that it never saw, so what is held out is how known words meet: a tenth of
all pairs (a name and a plot, a colour and a thing, two numbers of a sum, ...) never occurs in
training, and every held-out world is made of such pairs alone.
"""

from zlib import crc32

TRAIN, HELDOUT = "train", "heldout"
ONE_IN = 10


def is_held(*key) -> bool:
    # `crc32` and not `hash`: the split may not depend on the process.
    return crc32("|".join(map(str, key)).encode()) % ONE_IN == 0


def fits(split: str, *key) -> bool:
    """True if worlds of the split may have this combination."""
    return is_held(*key) == (split == HELDOUT)


def draw(rng, split, pick, *key):
    """`pick(rng)` until the combination with `key` belongs to the split."""
    while True:
        value = pick(rng)
        if fits(split, *key, value):
            return value
