"""Models of a few thousand parameters, rows and recipes for the tests."""
import sys
from dataclasses import replace
from pathlib import Path

MODELS = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(MODELS))

import torch  # noqa: E402

from distill.layout import Rows  # noqa: E402
from distill.model import Decoder, Quantizer  # noqa: E402
from distill.recipe import Data, Recipe, Source, Stage  # noqa: E402
from distill.shape import Shape  # noqa: E402

VOCAB, MASK, BLOCK, CONTEXT = 48, 47, 8, 32
SHAPES = {
    family: Shape(family, VOCAB, 32, 64, 2, 2, 1, 16, epsilon=1e-6, context=64, tied=family != "qwen3")
    for family in ("llama", "qwen2", "qwen3")
}
torch.set_num_threads(1)


def dense(family: str = "llama", seed: int = 1) -> Decoder:
    """A dense model of random weights, norms and biases."""
    torch.manual_seed(seed)
    model = Decoder(SHAPES[family])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif "embed" in name:
                parameter.mul_(20)
    return model


def student(teacher: Decoder, **how) -> Decoder:
    """The teacher on the way to ternary."""
    model = Decoder(teacher.shape, Quantizer(**how))
    model.load_state_dict(teacher.state_dict(), strict=False)
    return model


def rows(batch: int = 2, seed: int = 2) -> Rows:
    """Rows of two samples: a prompt of three tokens that do not count, an answer, padding."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, MASK, (batch, CONTEXT), generator=g)
    lengths, counts = (13, 11), torch.zeros(batch, CONTEXT, dtype=torch.bool)
    sample = torch.zeros(batch, CONTEXT, dtype=torch.long)
    position = torch.zeros(batch, CONTEXT, dtype=torch.long)
    for number, length in enumerate(lengths):
        start = 16 * number
        counts[:, start + 3:start + length] = True
        tokens[:, start + length:start + 16] = MASK
        sample[:, start:start + 16], position[:, start:start + 16] = number, torch.arange(16)
    return Rows(tokens, counts, sample, position)


def changed(which: Rows, where: torch.Tensor, seed: int = 9) -> Rows:
    """Rows with other tokens where the mask is true."""
    g = torch.Generator().manual_seed(seed)
    other = (which.tokens + torch.randint(1, MASK, which.tokens.shape, generator=g)) % MASK
    return replace(which, tokens=torch.where(where, other, which.tokens))


def recipe(*stages: Stage, **fields) -> Recipe:
    """A recipe for the small models."""
    return Recipe("small", Source(directory="teacher"), Data(), stages, context=CONTEXT, block=BLOCK,
                  threads=1, **fields)


def logits(model: Decoder, inputs) -> torch.Tensor:
    """All logits `[B, S, vocabulary]`."""
    with torch.no_grad():
        said, _ = model(inputs.tokens, inputs.positions, inputs.mask)
    return said.view(*inputs.tokens.shape, -1)
