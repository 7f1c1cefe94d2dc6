"""Random masks of block diffusion."""
import torch


def uniform(shape, g: torch.Generator) -> torch.Tensor:
    """Returns numbers from 0 to 1, on the generator's device."""
    return torch.rand(shape, generator=g, device=g.device)


def complementary(shape, rate: torch.Tensor, g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a random mask, true with the probability `rate`, and its complement: together they cover
    each position once."""
    mask = uniform(shape, g) < rate
    return mask, ~mask
