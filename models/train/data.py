"""Training data: conversations packed into rows of tokens, in shards that a seed and a number make.

The stream has no end: the trainer makes the shard it needs if its file is not there, and the same
seed gives the same shards on every machine. Every conversation starts at a block's start, where
decoding starts too, and is filled up with <|eos|> to a block's end; attention does not cross
conversations, so that a row's rest costs nothing but its room.
"""
import argparse
import json
import os
import random
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
import tinyworld

import tokens

ROWS = 2048  # rows of a shard
JOINED = 0.4  # share of conversations that go on with the next document
POOL = 64  # conversations to choose from when a row is filled


def filled(ids: list[int], block: int) -> list[int]:
    """A conversation, filled up to whole blocks."""
    return ids + [tokens.EOS] * (-len(ids) % block)


def conversations(tokenizer, rng, context: int, block: int):
    """Endless conversations of at most `context` tokens, each filled up to whole blocks."""
    ids = []
    while True:
        more = tokens.conversation(tokenizer, tinyworld.document(rng, "train"))
        if len(more) > context:
            continue
        if ids and rng.random() < JOINED and len(ids) + len(more) - 1 <= context:
            ids += more[1:]
            continue
        if ids:
            yield filled(ids, block)
        ids = more


def rows(source, rng, context: int):
    """Endless rows: each takes the longest conversation at hand that still fits."""
    pool = sorted((next(source) for _ in range(POOL)), key=len)
    while True:
        row = []
        while (fitting := sum(len(ids) <= context - len(row) for ids in pool)) > 0:
            row += pool.pop(rng.randrange(fitting) if not row else fitting - 1)
            pool.append(next(source))
            pool.sort(key=len)
        yield row + [tokens.EOS] * (context - len(row))


def make(number: int, tokenizer, seed: int, context: int, block: int) -> np.ndarray:
    """Shard `number` of the stream."""
    rng = random.Random(f"train {seed} {number}")
    source = rows(conversations(tokenizer, rng, context, block), rng, context)
    return np.array([next(source) for _ in range(ROWS)], dtype=np.uint16)


def shard(number: int, folder: Path, tokenizer, seed: int, context: int, block: int) -> np.ndarray:
    """Shard `number`, from its file if there is one."""
    path = folder / f"shard-{number:05}.bin"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        make(number, tokenizer, seed, context, block).tofile(part)
        part.rename(path)
    return np.fromfile(path, dtype=np.uint16).reshape(-1, context)


def told_rows(path: Path, tokenizer, seed: int, context: int, block: int):
    """Endless rows of the stories that a model told itself (`distil.py`)."""
    rng = random.Random(f"own rows {seed}")
    told = map(json.loads, path.open())
    stories = (tokens.conversation(tokenizer, [(s["prompt"], s["text"])]) for s in told)
    fitting = [filled(ids, block) for ids in stories if len(ids) <= context]
    if not fitting:
        raise SystemExit(f"{path} has no story of at most {context} tokens: was its model trained?")
    rng.shuffle(fitting)
    return rows(cycle(fitting), rng, context)


def main():
    """Makes shards ahead of training, in several processes: worth it where training is fast."""
    from presets import PRESETS

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--tokens", type=float, help="default: as many as the preset trains on")
    args = parser.parse_args()
    preset = PRESETS[args.preset]
    model, length = preset.model, args.tokens or preset.first.tokens
    tokenizer = tokens.load(args.work / "tokenizer.json", model.vocab, args.seed)
    count = -int(-length // (ROWS * model.context))
    one = partial(shard, folder=args.work, tokenizer=tokenizer, seed=args.seed,
                  context=model.context, block=model.block)
    with ProcessPoolExecutor() as pool:
        made = sum(array.size for array in pool.map(one, range(count)))
    print(f"{made / 1e6:.1f} M tokens in {count} shards")


if __name__ == "__main__":
    main()
