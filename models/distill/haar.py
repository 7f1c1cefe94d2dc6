"""Ternary weights in the Haar-wavelet basis."""
import torch
from bitnet.ternary import ternary


def forward(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the low and the high half of each row, from pairs of neighboring columns."""
    if weight.shape[-1] % 2:
        raise ValueError(f"the Haar transform needs an even number of columns, not {weight.shape[-1]}")
    even, odd = weight[..., 0::2], weight[..., 1::2]
    return (even + odd) * 0.5**0.5, (even - odd) * 0.5**0.5


def inverse(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Returns the rows of two halves. The factor is 1/√2 as in `forward`: HBLLM's published inverse
    has 0.70703125, which loses a ten-thousandth of the weight."""
    pairs = torch.stack([low + high, low - high], -1) * 0.5**0.5
    return pairs.flatten(-2)


def haar_ternary(weight: torch.Tensor) -> torch.Tensor:
    """Returns a matrix whose halves are ternary, each with its scale. Its weights have up to nine
    values: (±s ± t)/√2."""
    halves = (values * scale for values, scale in map(ternary, forward(weight)))
    return inverse(*halves)
