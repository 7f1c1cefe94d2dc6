"""Rounds: every program once, one after the other, on a machine that nobody else uses."""

import sys
from dataclasses import dataclass, field
from math import inf

from disturbance import Disturbance, Watch, wait_for_quiet

LIMIT = 0.03
"""Of the cores, what others may take while a sample is measured."""
TRIES = 4
PATIENCE = 120
"""Seconds to wait for others to finish, before each try."""


class Disturbed(Exception):
    """Others took too much, again and again."""


@dataclass
class Measured:
    """A case's samples: as many for each program as there were rounds."""

    case: object
    samples: dict = field(default_factory=dict)
    backends: dict = field(default_factory=dict)
    worst: float = 0.0

    def add(self, round_samples, share):
        for program, sample in round_samples.items():
            self.samples.setdefault(program, []).append(sample.tokens_per_second)
            self.backends[program] = sample.backend
        self.worst = max(self.worst, share)


def one_round(programs, case, limit):
    """A sample of each, and what disturbed them most; ends at the first that was too disturbed."""
    samples, worst = {}, Disturbance(0)
    for program in programs:
        watch = Watch()
        samples[program.name] = program.run(case)
        worst = max(worst, watch.stop(), key=lambda noise: noise.share)
        if worst.share > limit:
            break
    return samples, worst


def quiet_round(programs, case):
    for attempt in range(TRIES):
        wait_for_quiet(LIMIT, PATIENCE)
        samples, worst = one_round(programs, case, LIMIT)
        if worst.share <= LIMIT:
            return samples, worst
        said = f"others took {100 * worst.share:.0f} % of the cores ({worst.culprits})"
        print(f"  try {attempt + 1} of {TRIES}: {said}", file=sys.stderr)
    raise Disturbed(f"{said}, in the last of {TRIES} tries of {case.test}: nothing to print")


def measure(programs, cases, count, allow_noise):
    """Round after round through all cases, so that a slow hour is nobody's alone."""
    results = [Measured(case) for case in cases]
    for number in range(count):
        for result in results:
            case = result.case
            place = f"{case.model}, {case.threads} threads, {case.test}"
            print(f"round {number + 1} of {count}: {place}", file=sys.stderr)
            fitting = [p for p in programs if p.fits(case)]
            if allow_noise:
                samples, worst = one_round(fitting, case, limit=inf)
            else:
                samples, worst = quiet_round(fitting, case)
            result.add(samples, worst.share)
    return results
