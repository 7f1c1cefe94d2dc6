"""The share of the cores that other processes took during a measurement, and their names."""

import os
import pathlib
import resource
import time
from dataclasses import dataclass

TICK = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count()
# Places in the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
BUSY = (0, 1, 2, 5, 6)
STEAL = 7


@dataclass(frozen=True)
class Disturbance:
    share: float
    """Of all cores' time, what others took."""
    culprits: str = ""


def cpu_seconds(stat):
    """Busy and stolen seconds of all cores, of what /proc/stat says."""
    fields = [int(field) for field in stat.splitlines()[0].split()[1:]]
    return sum(fields[i] for i in BUSY) / TICK, fields[STEAL] / TICK


def process_seconds(stat):
    """Name and seconds of a process, of what its /proc/PID/stat says; names may hold anything."""
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    return head.partition("(")[2], (int(fields[11]) + int(fields[12])) / TICK


def processes():
    """Name and seconds of every process but this one, by process."""
    seen = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            seen[path.parent.name] = process_seconds(path.read_text())
        except OSError:
            continue  # it has ended
    seen.pop(str(os.getpid()), None)
    return seen


def own_seconds():
    """CPU time of this process and of those that it has waited for."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


def name(before, after, unseen, stolen, total):
    """`rustc 41 %, python3 3 %`: who took the most of `total` seconds, least last."""
    took = {}
    for pid, (process, seconds) in after.items():
        took[process] = took.get(process, 0) + seconds - before.get(pid, ("", 0))[1]
    took["the hypervisor"] = stolen
    took["processes that have ended"] = unseen - sum(took.values()) + stolen
    most = sorted(took.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{who} {100 * s / total:.0f} %" for who, s in most if s >= 0.01 * total)


class Watch:
    """Measures from its making to `stop`; programs that are to count as ours have ended by then."""

    def __init__(self):
        self.start = self._now()

    @staticmethod
    def _now():
        busy, stolen = cpu_seconds(pathlib.Path("/proc/stat").read_text())
        return time.monotonic(), busy, stolen, own_seconds(), processes()

    def stop(self):
        began, busy, stolen, own, before = self.start
        ended, busy_now, stolen_now, own_now, after = self._now()
        total = max(ended - began, 1 / TICK) * CORES
        others = (busy_now - busy) - (own_now - own)
        stolen = stolen_now - stolen
        share = max(others + stolen, 0) / total
        return Disturbance(share, name(before, after, others, stolen, total))


def wait_for_quiet(limit, patience):
    """Until others leave the cores alone for a second, or `patience` seconds have gone."""
    until = time.monotonic() + patience
    while True:
        watch = Watch()
        time.sleep(1)
        if watch.stop().share <= limit or time.monotonic() >= until:
            return
