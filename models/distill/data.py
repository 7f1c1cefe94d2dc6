"""Samples of tokens, packed into rows in an order that the seed and the step decide."""
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .layout import Rows


@dataclass
class Samples:
    """Tokens of all samples one after the other, which of them are learned, and where each begins."""
    tokens: np.ndarray
    counts: np.ndarray
    starts: np.ndarray  # one more than there are samples

    @staticmethod
    def of(samples) -> "Samples":
        """From pairs of ids and whether each is learned."""
        samples = [(ids, counts) for ids, counts in samples if len(ids) > 1]
        if not samples:
            raise SystemExit("the data has no sample of two tokens or more")
        starts = np.cumsum([0, *(len(ids) for ids, _ in samples)])
        return Samples(np.concatenate([np.asarray(ids, np.int32) for ids, _ in samples]),
                       np.concatenate([np.asarray(counts, bool) for _, counts in samples]), starts)

    def save(self, path: Path):
        part = path.with_suffix(".part.npz")
        np.savez(part, tokens=self.tokens, counts=self.counts, starts=self.starts)
        part.replace(path)

    @staticmethod
    def load(path: Path) -> "Samples":
        with np.load(path) as file:
            return Samples(file["tokens"], file["counts"], file["starts"])


def pack(samples: Samples, context: int, block: int, mask_id: int, seed: int) -> Rows:
    """Packs samples into rows, in random order. Samples longer than a row are cut; each is padded with
    MASK to whole blocks. The rest of a row is a sample of its own that counts nothing."""
    pieces = []
    for start, end in zip(samples.starts, samples.starts[1:]):
        pieces += [(a, min(a + context, end)) for a in range(start, end, context)]
    order = np.random.default_rng([seed, 1]).permutation(len(pieces))
    rows, room = [], 0
    for index in order:
        start, end = pieces[index]
        need = -int(-(end - start) // block) * block
        if need > room:
            rows.append([])
            room = context
        rows[-1].append((start, end, need))
        room -= need
    shape = (len(rows), context)
    tokens, counts = np.full(shape, mask_id, np.int64), np.zeros(shape, bool)
    sample, position = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)
    for i, row in enumerate(rows):
        at = 0
        for number, (start, end, need) in enumerate(row):
            length = end - start
            tokens[i, at:at + length] = samples.tokens[start:end]
            counts[i, at:at + length] = samples.counts[start:end]
            sample[i, at:at + need] = number
            position[i, at:at + need] = np.arange(need)
            at += need
        position[i, at:] = np.arange(context - at)
    return Rows(*map(torch.from_numpy, (tokens, counts, sample, position)))


def at_step(rows: Rows, step: int, batch: int, seed: int) -> Rows:
    """Returns the rows of a step: every row once in each epoch, in an order of the epoch's own."""
    count = len(rows.tokens)
    places = np.arange(step * batch, (step + 1) * batch)
    index = [np.random.default_rng([seed, 2, int(epoch)]).permutation(count)[place]
             for epoch, place in zip(places // count, places % count)]
    return Rows(*(x[index] for x in vars(rows).values()))


def share(rows: Rows, rank: int, processes: int) -> Rows:
    """Returns the rows of one of several processes."""
    return Rows(*(x[rank::processes] for x in vars(rows).values()))
