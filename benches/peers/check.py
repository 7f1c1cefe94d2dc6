"""Checks that all programs run the same model, by their logits after the same tokens.

What remains between them is rounding. Activations get 8 bits per row in one program and per 64 or
256 columns in others; litespark-inference has 4-bit embeddings besides. A wrong scale, rotation or
order of heads would leave nothing alike.
"""

import subprocess
import tempfile
from itertools import chain
from pathlib import Path

from install import HERE
from programs import ARRAYS, GGUF, IK, IQ2_BN, LITESPARK, LLAMA, Failure

TOKENS = ",".join(str(3 + 97 * i % 4000) for i in range(64))
LEAST = {LLAMA: 0.99, IK: 0.99, LITESPARK: 0.95}
HYBRID_LEAST = 0.9
"""Rounding errors grow in the states of a random hybrid."""


def saved(words, path):
    """Runs a program that prints logits."""
    with open(path, "wb") as file:
        ran = subprocess.run(words, stdout=file, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        raise Failure(f"{words[0]} ended with {ran.returncode}: {ran.stderr[-500:]}")


def command(home, peer, shape):
    """The command that prints a peer's logits."""
    if peer == LITESPARK:
        return [*home.litespark(), "-m", home.model(shape, ARRAYS), "--logits", TOKENS]
    ending = IQ2_BN if peer == IK else GGUF
    return [home.llama(peer)[1], home.model(shape, ending), TOKENS]


def same_model(home, wf_run, models, peers):
    """Prints a line for each; 1 if any is another model."""
    alike = True
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "ours.npy"), Path(folder, "theirs.f32")
        for model in models:
            shape = model.shape
            options = {"--model": home.model(shape), "--tokens": TOKENS, "--output": ours}
            words = [wf_run, "logits", "--force", *chain.from_iterable(options.items())]
            saved(words, Path(folder, "said"))
            for peer in (p for p in peers if p == LLAMA or not model.hybrid):
                saved(command(home, peer, shape), theirs)
                print(f"{shape}, {peer}: ", end="", flush=True)
                least = HYBRID_LEAST if model.hybrid else LEAST[peer]
                words = [home.python, HERE / "cosine.py", ours, theirs, str(least)]
                alike &= subprocess.run(words).returncode == 0
    print("the same models" if alike else "NOT the same models")
    return 0 if alike else 1
