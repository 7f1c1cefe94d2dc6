"""Puppets: tiny models that say a given text token by token, so that a parser is tested through the whole program.

The text is cut into pieces that occur once each, and each piece is a token. The head's row of a token is
the embedding of the token before it. All other weights are zero, so the last token alone decides the
next one. Tokens that are not in the text share the embedding of "before the beginning". Grammars still
mask the logits: a puppet says its text only where it may.
"""

import random

import tiny

MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"]
WIDTH = 64
DRAW = random.Random(7)
BEGIN, *VECTORS = ([DRAW.gauss(0, 1) for _ in range(WIDTH)] for _ in range(1024))
# What tokens share that are not in the text.
BEFORE = [[b + 0.05 * v for b, v in zip(BEGIN, vector)] for vector in VECTORS]


def segments_of(text):
    """Cuts a text at the first of each marker."""
    segments = [text]
    for marker in MARKERS:
        found = (i for i, part in enumerate(segments) if part not in MARKERS and marker in part)
        at = next(found, None)
        if at is not None:
            before, after = segments[at].split(marker, 1)
            segments[at : at + 1] = [part for part in (before, marker, after) if part]
    return segments


def pieces_of(text):
    """Cuts a text into pieces that occur once each. The first of each marker is one token."""
    for seed in range(500):
        choice, pieces, used = random.Random(seed), [], set(MARKERS)
        for part in segments_of(text):
            if part in MARKERS:
                pieces.append(part)
                continue
            while part:
                length = 2 + (choice.randrange(3) if seed else 0)
                while length < len(part) and part[:length] in used:
                    length += 1
                if len(part) - length < 2:
                    length = len(part)
                pieces.append(part[:length])
                used.add(part[:length])
                part = part[length:]
        # Pieces of one byte are tokens of the vocabulary already.
        if len(set(pieces)) == len(pieces) and all(len(p.encode()) > 1 for p in pieces):
            return pieces
    raise ValueError(f"no cut of {text!r} into distinct pieces")


def write(folder, text, template, hybrid=False, context=4096):
    """Writes a model that says `text` and ends."""
    pieces = pieces_of(text)
    vocab = {tiny.LETTER[byte]: byte for byte in range(256)}
    added = {token: 256 + i for i, token in enumerate(tiny.SPECIAL + MARKERS)}
    ids = []
    for piece in pieces:
        if piece not in added:
            vocab[tiny.spelled(piece)] = len(vocab) + len(added)
        ids.append(added.get(piece) or vocab[tiny.spelled(piece)])
    used = len(vocab) + len(added)
    count, end = -(-used // 32) * 32, added["<|im_end|>"]
    vocab |= {f"<unused{i}>": i for i in range(used, count)}
    follower = dict(zip(ids, [*ids[1:], end])) | {end: end}

    embedding = [VECTORS[t] if t in follower else BEFORE[t] for t in range(count)]
    head = [[0.0] * WIDTH for _ in range(count)]
    for token, vector in [(ids[0], BEGIN), *((f, embedding[t]) for t, f in follower.items())]:
        head[token] = [h + v / 16 for h, v in zip(head[token], vector)]

    layers = 4 if hybrid else 1
    tensors = {"model.embed_tokens.weight": tiny.rows(embedding), "lm_head.weight": tiny.rows(head)}
    tensors |= tiny.layers(hybrid, WIDTH, layers)
    # The factor of the last norm puts logits far apart, so rounding changes no token.
    tensors["model.norm.weight"] = tiny.constant([WIDTH], 3.0 if hybrid else 4.0)
    config = tiny.config(hybrid, count, end, context, WIDTH, layers)
    # Real tokenizers have a token for the empty line after the thinking, and prompts may end with it.
    merges = [" ".join(tiny.spelled("\n") * 2)] if "\n\n" in pieces else []
    tiny.write(folder, tensors, config, tiny.tokenizer(vocab, added, merges), template)
