"""Checks an exported directory with `transformers` (PyTorch, f32) as the witness: our own PyTorch
model and `wf-run logits` must give its logits, and `wf-run` its text."""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import decode
from checkpoint import load

PROMPT = "Tell me a story about a fox."
BOUND = 1e-3
LENGTH = 64


def theirs(directory: Path):
    """The model as `transformers` loads it, all but its ternary weights in f32."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    model.model.embed_tokens.float()
    model.lm_head.float()
    return model


def wf_run(program: str, *args) -> str:
    return subprocess.run([program, *map(str, args)], check=True, text=True,
                          capture_output=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--checkpoint", type=Path, help="the PyTorch model it was exported from")
    parser.add_argument("--wf-run", default="wf-run")
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.directory)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}],
                                        add_generation_prompt=True, return_dict=False)
    model = theirs(args.directory)
    with torch.no_grad():
        text = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=LENGTH,
                              min_new_tokens=LENGTH, eos_token_id=[], pad_token_id=2)[0].tolist()
        expected = model(torch.tensor([text])).logits[0].numpy()
    print(tokenizer.decode(text))
    found = {}
    if args.checkpoint:
        own = decode.Cache(decode.freeze(load(args.checkpoint)))
        found["the PyTorch model"] = own.forward(text, True, False).numpy()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logits.npy"
        wf_run(args.wf_run, "logits", "--model", args.directory, "--tokens",
               ",".join(map(str, text)), "--output", file)
        found["wf-run logits"] = np.load(file)
    failed = False
    for name, logits in found.items():
        difference = float(np.abs(logits - expected).max())
        chosen = logits[len(ids) - 1:-1].argmax(-1).tolist() == text[len(ids):]
        failed |= difference > BOUND or not chosen
        print(f"{name}: logits differ by at most {difference:.1e}, "
              f"{LENGTH} tokens {'the same' if chosen else 'NOT the same'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
