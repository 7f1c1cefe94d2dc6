"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): steps of about equal length in
every direction of a matrix. Matrices of a shape go through each product together, which on a CPU
takes half the time of one after the other (`torch.optim.Muon` computes the same).
"""
import torch

# The quintic iteration that drives singular values towards 1.
A, B, C, ROUNDS = 3.4445, -4.7750, 2.0315, 5
MOMENTUM = 0.95


def orthogonal(x: torch.Tensor) -> torch.Tensor:
    """Of each matrix in `x` [N, rows, columns], about the nearest orthogonal one, in bf16."""
    x = x.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT.contiguous()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, made orthogonal; the rate means what it means for AdamW (a root mean square
    of 0.2, Liu et al. 2025, arXiv:2502.16982, section 2.2)."""

    def __init__(self, matrices, lr: float, weight_decay: float):
        shapes = {}
        for p in matrices:
            shapes.setdefault(p.shape, []).append(p)
        groups = [{"params": same} for same in shapes.values()]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            matrices = group["params"]
            grads = torch.stack([p.grad for p in matrices])
            state = self.state[matrices[0]]
            momentum = state.setdefault("momentum", torch.zeros_like(grads))
            momentum.lerp_(grads, 1 - MOMENTUM)
            update = orthogonal(grads.lerp_(momentum, MOMENTUM))
            length = 0.2 * max(update.shape[1:]) ** 0.5
            for p, change in zip(matrices, update):
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(change, alpha=-group["lr"] * length)
