"""Counts the instructions of a program's products on 64-bit ARM, and estimates their cycles.

    measure.py PLUGIN NAME ROWS COLS BATCH PROGRAM ARGS…

Prints a row of a table: instructions per multiply-add, then cycles of each of `CPUS`. qemu runs two and four
products and counts how often each block of instructions is entered; the difference leaves out everything else.
llvm-mca computes the cycles of a block in LLVM's model of a processor, as if the block were a loop. The estimate
knows no caches. A block with less than a 500th of all instructions is left out of it.
"""

import re
import subprocess
import sys
from functools import cache

LLVM = "/usr/lib/llvm-22/bin/"
CPUS = ["apple-m1", "neoverse-n1", "neoverse-v1", "neoverse-v2"]
FEATURES = "+dotprod,+i8mm,+fullfp16"
LEAST = 1 / 500
ITERATIONS = 200


def entered(plugin, command):
    """Counts of blocks: {(address in the file, instructions): times}."""
    emulator = ["qemu-aarch64", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu", "-plugin", plugin]
    ran = subprocess.run(emulator + command, check=True, stderr=subprocess.PIPE, text=True)
    counts, start = {}, 0
    for line in ran.stderr.splitlines():
        match line.split():
            case ["start", address]:
                start = int(address)
            case ["block", address, instructions, times]:
                key = int(address) - start, int(instructions)
                counts[key] = counts.get(key, 0) + int(times)
    return counts


def code_start(program):
    """Address in the file at which the executable segment begins."""
    headers = subprocess.check_output([LLVM + "llvm-readelf", "-lW", program], text=True)
    segments = (line.split() for line in headers.splitlines() if re.match(r"\s+LOAD .*R E", line))
    return int(next(segments)[2], 16)


def assembly(program, address, instructions):
    """The instructions of a block, without calls and with a place for the targets of branches."""
    where = [f"--start-address={address}", f"--stop-address={address + 4 * instructions}"]
    shown = subprocess.check_output(
        [LLVM + "llvm-objdump", "-d", "--mattr=" + FEATURES, "--no-show-raw-insn", "--no-leading-addr", *where, program],
        text=True,
    )
    lines = [line.strip() for line in shown.splitlines() if re.match(r"\s+[a-z]", line)]
    assert len(lines) == instructions, (program, hex(address), lines)
    kept = [line for line in lines if not re.match(r"(bl|blr|ret|br)\b", line)]
    return "\n".join(re.sub(r"\s0x[0-9a-f]+ <.*>$|, 0x[0-9a-f]+ <.*>$", target, line) for line in kept) + "\n"


def target(match):
    return " here" if match[0][0].isspace() else ", here"


@cache
def cycles(text, cpu):
    """Cycles of a block as the body of a loop."""
    if not text.strip():
        return 0.0
    command = [LLVM + "llvm-mca", "--mtriple=aarch64", f"--mcpu={cpu}", "--mattr=" + FEATURES, f"--iterations={ITERATIONS}"]
    ran = subprocess.run(command, input="here:\n" + text, capture_output=True, text=True)
    found = re.search(r"Total Cycles:\s+(\d+)", ran.stdout)
    if not found:
        sys.exit(f"llvm-mca cannot read this block:\n{text}\n{ran.stderr}")
    return int(found[1]) / ITERATIONS


def main():
    plugin, name, rows, cols, batch, program, *arguments = sys.argv[1:]
    few, many = (entered(plugin, [program, *arguments, rows, cols, batch, times]) for times in ("2", "4"))
    counts = {key: times - few.get(key, 0) for key, times in many.items()}
    instructions = sum(times * size for (_, size), times in counts.items())
    hot = {key: times for key, times in counts.items() if times * key[1] > LEAST * instructions}
    first = code_start(program)
    texts = {key: assembly(program, key[0] + first, key[1]) for key in hot}
    products = 2 * int(rows) * int(cols) * int(batch)
    numbers = [instructions] + [sum(n * cycles(texts[key], cpu) for key, n in hot.items()) for cpu in CPUS]
    print(f"| {name} | {batch} |", " | ".join(f"{n / products:.4f}" for n in numbers), "|")


if __name__ == "__main__":
    main()
