"""The losses of docs/training.md, each over tensors alone."""
import torch
import torch.nn.functional as F

from .model import States


def mean(each: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Weighted mean over the tokens that count; 0 if there are none."""
    return (each * weight).sum() / max(1, len(weight))


def cross_entropy(logits, targets, weight) -> torch.Tensor:
    """Mean of −log softmax(logits)[target], of logits `[N, vocabulary]`."""
    return mean(F.cross_entropy(logits, targets, reduction="none"), weight)


def divergence(student, teacher, weight, tau: float) -> torch.Tensor:
    """τ² · KL(softmax(teacher / τ) ‖ softmax(student / τ)), mean over the rows `[N, vocabulary]`."""
    ours, theirs = (F.log_softmax(logits / tau, -1) for logits in (student, teacher))
    return tau**2 * mean((theirs.exp() * (theirs - ours)).sum(-1), weight)


def top(student, teacher, weight, tau: float, count: int) -> torch.Tensor:
    """The divergence over the `count` tokens that the teacher holds most likely."""
    index = teacher.topk(min(count, teacher.shape[-1]), -1).indices
    return divergence(student.gather(-1, index), teacher.gather(-1, index), weight, tau)


def relations(x, together, heads: int):
    """Logarithms of softmax(X Xᵀ) over the positions that are `together` `[B, T, T]`, of states
    `[B, T, width]` in relation heads whose rows have length 1: `[B, heads, T, T]`."""
    if x.shape[-1] % heads:
        raise SystemExit(f"{heads} relation heads do not divide states of {x.shape[-1]} columns")
    x = F.normalize(x.float().unflatten(-1, (heads, -1)).transpose(1, 2), dim=-1)
    return (x @ x.transpose(-1, -2)).masked_fill(~together[:, None], -torch.inf).log_softmax(-1)


def relation(student: States, teacher: States, together, heads: int) -> torch.Tensor:
    """Sum over queries, keys and values of KL(R_teacher ‖ R_student), summed over positions and
    divided by batch and heads (`batchmean`, one layer)."""
    total = 0.0
    for ours, theirs in zip(vars(student).values(), vars(teacher).values()):
        ours, theirs = (relations(x, together, heads) for x in (ours, theirs))
        each = theirs.exp() * (theirs - ours).masked_fill(~together[:, None], 0)
        total = total + each.sum() / (ours.shape[0] * heads)
    return total
