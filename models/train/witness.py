"""Checks an exported directory with `transformers` (PyTorch, f32) as the witness: our own PyTorch
model and `wf-run logits` must give its logits, and `wf-run` its text."""
import argparse
import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer

import decode
from checkpoint import load

from bitnet import witness

PROMPTS = ["Tell me a story about a fox.", "What is the plural of dog?", "What is 3 + 4?",
           "Where does a bee live?", "Tell me a story about Mia and a lost kite."]
FIRST, ALIKE = 2, 60  # positions and tokens that must agree whatever is rounded
LENGTH = 64


def expected(model, ids: list):
    """The text that the witness writes, as ids, and its logits."""
    with torch.no_grad():
        text = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=LENGTH,
                              min_new_tokens=LENGTH, eos_token_id=[], pad_token_id=2)
        return text[0].tolist(), model(text).logits[0].numpy()


def compare(name: str, ours, theirs, text: list, start: int) -> bool:
    """Prints how far two sets of logits agree, and returns true if that is far enough."""
    agreed, _ = witness.agreement(ours, theirs)
    same = int((ours[start - 1:-1].argmax(-1) == text[start:]).sum())
    print(f"{name}: {agreed} of {len(text)} positions within {witness.BOUND:g} before a rounding tips, "
          f"{same} of {LENGTH} tokens the same")
    return agreed >= FIRST and same >= ALIKE


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--checkpoint", type=Path, help="the PyTorch model it was exported from")
    parser.add_argument("--wf-run", default="wf-run")
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.directory)
    model, fine = witness.theirs(args.directory), True
    own = decode.freeze(load(args.checkpoint)) if args.checkpoint else None
    for prompt in PROMPTS:
        ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}],
                                            add_generation_prompt=True, return_dict=False)
        text, right = expected(model, ids)
        found = {"wf-run": witness.logits(args.wf_run, args.directory, text)}
        if own:
            found["PyTorch"] = decode.Cache(own).forward(text, True, False).numpy()
        for name, ours in found.items():
            fine &= compare(f"{prompt} {name}", ours, right, text, len(ids))
    sys.exit(not fine)


if __name__ == "__main__":
    main()
