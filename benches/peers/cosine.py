"""Compares two programs' logits; exits with 1 if their cosine is below LEAST.

python cosine.py OURS.npy THEIRS.f32 LEAST
"""

import sys

import numpy as np


def compare(ours, theirs):
    """Cosine of each row, and the share of rows whose largest logit is the same token's."""
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return (ours * theirs).sum(axis=1) / norms, np.mean(ours.argmax(1) == theirs.argmax(1))


if __name__ == "__main__":
    ours = np.load(sys.argv[1]).astype(np.float64)
    theirs = np.fromfile(sys.argv[2], np.float32).reshape(ours.shape).astype(np.float64)
    cosines, agree = compare(ours, theirs)
    print(
        f"{len(ours)} tokens, cosine of logits {cosines.mean():.4f} (least {cosines.min():.4f}), "
        f"the same next token after {100 * agree:.0f} %"
    )
    sys.exit(int(cosines.min() < float(sys.argv[3])))
