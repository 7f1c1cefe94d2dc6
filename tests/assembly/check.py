"""Checks the assembly of the kernels: `check.py ARCHITECTURE FILE`. See README.md."""

import re
import sys

from assembly import callees, functions, readable
from rules import ALLOWED, REQUIRED, SETS


def faults(found, machine):
    """Returns a line for each fault of a file's functions."""
    kernels = {name: f for name, f in found.items() if SETS[machine].search(name)}
    names = readable(found)
    lines = []
    for name, function in kernels.items():
        for callee in sorted(callees(function, machine)):
            if callee in found and found[callee].loops:
                continue
            if not allowed(name, callee):
                lines.append(f"a loop of {names[name]} calls {names.get(callee, callee)}")
    for architecture, what, parts, instruction in REQUIRED:
        if architecture != machine:
            continue
        of_set = [f for name, f in kernels.items() if all(part in name for part in parts)]
        pattern = re.compile(instruction)
        if not any(pattern.search(text) for f in of_set for text in f.looping()):
            lines.append(f"{what}: no loop of {len(of_set)} functions has {instruction}")
    return lines


def allowed(caller, callee):
    """True if a rule lets loops of this caller call something that has no loop."""
    return any(re.search(a, caller) and re.search(b, callee) for a, b, _ in ALLOWED)


def main():
    machine, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        found = functions(file, machine)
    lines = faults(found, machine)
    for line in lines:
        print(f"{machine}: {line}")
    of_sets = sum(1 for name in found if SETS[machine].search(name))
    print(f"{machine}: {of_sets} functions of kernels, {len(lines)} faults")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
