"""A stage's curve: lines on the terminal, a CSV, and a plot of it."""
import csv
import time
from pathlib import Path


class Progress:
    """Writes the mean of each loss since the last line, the rate, tokens a second, and the time
    left. After an interruption, lines of steps that are done again are taken back."""

    def __init__(self, path: Path, stage: str, steps: int, done: int, kinds: list[str]):
        self.path, self.stage, self.steps, self.done = path, stage, steps, done
        self.kinds, self.begun, self.first = kinds, time.monotonic(), done
        rows = []
        if path.exists():
            with path.open(newline="") as file:
                rows = [row for row in csv.reader(file) if row[0] == "step" or int(row[0]) <= done]
        heading = ["step", "tokens", *kinds, "rate", "strength", "tokens_per_second"]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows or [heading])
        self.reset()

    def reset(self):
        self.sums, self.count, self.tokens, self.since = {}, 0, 0, time.monotonic()

    def add(self, parts: dict, tokens: int):
        """Adds a step."""
        self.done, self.count, self.tokens = self.done + 1, self.count + 1, self.tokens + tokens
        for name, value in parts.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def write(self, seen: int, rate: float, strength: float):
        """Writes a line, and begins anew."""
        if not self.count:
            return
        now = time.monotonic()
        means = {name: value / self.count for name, value in self.sums.items()}
        speed = self.tokens / max(1e-9, now - self.since)
        left = (self.steps - self.done) * (now - self.begun) / max(1, self.done - self.first)
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow([
                self.done, seen, *(f"{means.get(kind, float('nan')):.5g}" for kind in self.kinds),
                f"{rate:.3e}", f"{strength:.3f}", f"{speed:.0f}"])
        said = " ".join(f"{name} {value:.4g}" for name, value in means.items())
        print(f"{self.stage} {self.done}/{self.steps}: {said} rate {rate:.1e} λ {strength:.2f} "
              f"{speed:.0f} tok/s, {left / 60:.0f} min left", flush=True)
        self.reset()


def plot(curves: list[Path], out: Path):
    """Draws the losses of stages, one below the other, as SVG or PNG by the name of `out`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(curves), squeeze=False, figsize=(7, 3 * len(curves)))
    for path, (axis,) in zip(curves, axes):
        with path.open(newline="") as file:
            heading, *rows = csv.reader(file)
        for column in range(2, heading.index("rate")):
            axis.plot([int(row[0]) for row in rows], [float(row[column]) for row in rows],
                      label=heading[column])
        axis.set(title=path.parent.name, xlabel="step", ylabel="loss", yscale="log")
        axis.legend()
    figure.tight_layout()
    figure.savefig(out)
