"""The losses and quantizers once more, in NumPy and f64, written from their formulas alone. Gradients are
derived by hand."""
import numpy as np


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def cross_entropy(logits, targets, weight):
    """Loss and its gradient for logits `[N, V]`."""
    said, count = log_softmax(logits), len(targets)
    picked = np.arange(count), targets
    gradient = np.exp(said)
    gradient[picked] -= 1
    return -(said[picked] * weight).sum() / count, gradient * weight[:, None] / count


def divergence(student, teacher, tau):
    """τ² · KL(teacher ‖ student) at temperature τ, mean over rows; gradient for the student."""
    ours, theirs = log_softmax(student / tau), log_softmax(teacher / tau)
    loss = tau**2 * (np.exp(theirs) * (theirs - ours)).sum(-1).mean()
    return loss, tau * (np.exp(ours) - np.exp(theirs)) / len(student)


def top(student, teacher, tau, count):
    """The divergence over the teacher's most likely ids."""
    loss, gradient = 0.0, np.zeros_like(student)
    for row in range(len(student)):
        index = np.argsort(-teacher[row])[:count]
        one, slope = divergence(student[row:row + 1, index], teacher[row:row + 1, index], tau)
        loss, gradient[row, index] = loss + one / len(student), slope[0] / len(student)
    return loss, gradient


def relation(student, teacher, together, heads):
    """KL of one of Q, K, V: states `[B, T, width]`; loss and gradient for the student."""
    batch, length, width = student.shape
    loss, gradient, size = 0.0, np.zeros_like(student), width // heads
    for b in range(batch):
        for head in range(heads):
            part, wide = slice(head * size, (head + 1) * size), teacher.shape[2] // heads
            ours, theirs = student[b, :, part], teacher[b, :, head * wide:(head + 1) * wide]
            norms = np.linalg.norm(ours, axis=-1, keepdims=True)
            unit = ours / norms
            unit_teacher = theirs / np.linalg.norm(theirs, axis=-1, keepdims=True)
            slopes = np.zeros((length, length))
            for t in range(length):
                seen = np.nonzero(together[b, t])[0]
                said = log_softmax(unit[seen] @ unit[t])
                want = log_softmax(unit_teacher[seen] @ unit_teacher[t])
                loss += (np.exp(want) * (want - said)).sum()
                slopes[t, seen] = np.exp(said) - np.exp(want)
            slope = (slopes + slopes.T) @ unit
            # Through the normalization: what points along the row is lost.
            slope = (slope - unit * (slope * unit).sum(-1, keepdims=True)) / norms
            gradient[b, :, part] = slope
    return loss / (batch * heads), gradient / (batch * heads)


def ternary(weight):
    scale = np.abs(weight).mean()
    return np.clip(np.rint(weight / scale), -1, 1) * scale


def eight_bits(x):
    step = np.abs(x).max(-1, keepdims=True) / 127
    return np.clip(np.rint(x / step), -128, 127) * step


def linear(x, weight, strength, above):
    """x̃ W̃ᵀ with W̃ = W + λ (q(W) − W) and x̃ likewise; and the straight-through gradients for x and W,
    given that of the output."""
    x_near = x + strength * (eight_bits(x) - x)
    w_near = weight + strength * (ternary(weight) - weight)
    return x_near @ w_near.T, above @ w_near, above.T @ x_near


def haar_ternary(weight):
    even, odd = weight[:, 0::2], weight[:, 1::2]
    low, high = ternary((even + odd) / np.sqrt(2)), ternary((even - odd) / np.sqrt(2))
    out = np.empty_like(weight)
    out[:, 0::2], out[:, 1::2] = (low + high) / np.sqrt(2), (low - high) / np.sqrt(2)
    return out


def sees(query, key, block, clean_causal):
    """True if a row sees another. A row is (sample, position, view), view None in the clean half."""
    (sample, place, view), (other, past, whose) = query, key
    number, before = place // block, past // block
    if sample != other:
        return False
    if view is not None:
        return (whose == view and before == number) or (whose is None and before < number)
    if whose is not None:
        return False
    return past <= place if clean_causal else before <= number
