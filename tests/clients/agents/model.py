"""A model that thinks and calls tools: random weights, Qwen3.5's layers and template, and a token per byte.

A text has one tokenization, so every token that the server computes twice has another cause. `qwen3.5.jinja` is
the template of Qwen/Qwen3.5-4B, copyright of the Qwen team, Alibaba Cloud, under Apache-2.0.
"""

import math
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/recordings"))

import tiny  # noqa: E402

WIDTH, LAYERS, VOCABULARY = 64, 4, 288
MARKERS = ["<think>", "</think>"]
TEMPLATE = Path(__file__).with_name("qwen3.5.jinja")


def draw(generator, shape, deviation):
    """Returns a tensor, shape and bytes, of random numbers."""
    return shape, tiny.bf16([generator.gauss(0, deviation) for _ in range(math.prod(shape))])


def deviation(name):
    """Returns the deviation of a matrix's numbers, and `None` for a norm, which stays as it is."""
    if "norm" in name:
        return None
    return {"conv1d": 0.4, "dt_bias": 1.0, "A_log": 1.0}.get(name.split(".")[-2], 0.15)


def write(folder, context):
    """Writes the model into `folder`. At temperature 0 it says lower-case letters, or ends."""
    generator = random.Random(5)
    vocab = {tiny.LETTER[byte]: byte for byte in range(256)}
    added = {text: 256 + i for i, text in enumerate(tiny.SPECIAL + MARKERS)}
    used = len(vocab) + len(added)
    vocab |= {f"<unused{i}>": i for i in range(used, VOCABULARY)}
    end = added["<|im_end|>"]
    said = {ord(letter) for letter in "abcdefghijklmnopqrstuvwxyz"} | {end}
    head = [[generator.gauss(0, 0.3) if i in said else 0.0 for _ in range(WIDTH)] for i in range(VOCABULARY)]
    tensors = {
        "model.embed_tokens.weight": draw(generator, [VOCABULARY, WIDTH], 1.0),
        "lm_head.weight": tiny.rows(head),
        "model.norm.weight": tiny.constant([WIDTH]),
    }
    for name, (shape, data) in tiny.layers(True, WIDTH, LAYERS).items():
        spread = deviation(name)
        tensors[name] = (shape, data) if spread is None else draw(generator, shape, spread)
    config = tiny.config(True, VOCABULARY, end, context, WIDTH, LAYERS)
    tiny.write(folder, tensors, config, tiny.tokenizer(vocab, added), TEMPLATE.read_text())
