"""Ternary weights and 8-bit activations with straight-through gradients."""
import torch
import torch.nn.functional as F

EPSILON = 1e-5


def norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float = EPSILON) -> torch.Tensor:
    """Returns the RMS norm of the last axis, in f32."""
    x = x.float()
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, weight.shape, weight, epsilon)
    # PyTorch 1.13 has none.
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def ternary(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the ternary values of a weight matrix, and its scale: the mean magnitude."""
    scale = weight.abs().mean().clamp(min=EPSILON)
    return (weight / scale).round().clamp(-1, 1), scale


def straight(quantized, x, strength: float = 1.0):
    """Returns the quantized value with the gradient of the exact one. With a `strength` below 1 the
    value is that far on the way from the exact to the quantized one."""
    change = (quantized - x).detach()
    return x + (change if strength == 1 else strength * change)


def eight_bits(weight: torch.Tensor) -> torch.Tensor:
    """Returns rows of an embedding in eight bits times a power of two: bf16 holds them exactly, and so
    does int8 with a scale per row."""
    unit = weight.abs().amax(-1, keepdim=True).clamp(min=EPSILON).div(127).log2().ceil().exp2()
    return (weight / unit).round() * unit


def steps(x: torch.Tensor) -> torch.Tensor:
    """Returns the 8-bit step of each row: a 127th of its largest magnitude, `[..., 1]`."""
    return x.detach().abs().amax(-1, keepdim=True).clamp(min=EPSILON) / 127


def keep_largest(rounded: torch.Tensor, share: float, block: int = 0) -> torch.Tensor:
    """Returns true for the `share` of values of each row (or of each `block` neighbors) that are
    largest, and for ties of the last one, as `wf-run --activation-sparsity topk:R` keeps them."""
    size = rounded.abs()
    if block:
        if size.shape[-1] % block:
            raise ValueError(f"blocks of {block} do not divide rows of {size.shape[-1]} values")
        size = size.unflatten(-1, (-1, block))
    count = max(1, -int(-share * size.shape[-1] // 1))
    cut = size.topk(count, -1).values[..., -1:]
    kept = (size >= cut) & (size > 0)
    return kept.flatten(-2) if block else kept


def bit_linear(x, weight, strength: float = 1.0, dtype=torch.bfloat16, keep: float = 1.0,
               block: int = 0):
    """Returns x · Wᵀ with ternary weights and 8-bit activations. Both are exact in bf16; the sums are
    rounded to `dtype`. `keep` is the share of activations that are not zeroed (Q-Sparse); their
    gradient is that of all activations."""
    values, scale = ternary(weight.detach())
    weight = straight(values, weight / scale, strength)
    step = steps(x)
    x = x / step
    rounded = x.detach().round().clamp(-128, 127)
    if keep < 1:
        rounded = rounded * keep_largest(rounded, keep, block)
    x = straight(rounded, x, strength)
    return F.linear(x.to(dtype), weight.to(dtype)) * (step * scale).to(dtype)
