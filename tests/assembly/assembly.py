"""Functions, loops and calls of a compiler's assembly: x86-64, AArch64 and WebAssembly."""

import re
import subprocess
from dataclasses import dataclass, field

LABEL = re.compile(r"^(\.L[\w$.]+):")
TARGET = re.compile(r"\.L[\w$.]+")
TYPE = re.compile(r"^\s*\.type\s+([\w$.]+)\s*,\s*[@%]function")
# A cold path outside of its loop, or inside it in WebAssembly: it never comes back.
ENDS = re.compile(
    r"panicking|_fail\b|slice_index_fail|handle_error|expect_failed|unwrap_failed|len_mismatch"
    r"|something_went_wrong|Unwind_Resume"
)


@dataclass
class Function:
    """A function: its instructions, and which of them are in loops."""

    name: str
    code: list = field(default_factory=list)
    loops: set = field(default_factory=set)

    def looping(self):
        """Returns the instructions in loops, in order."""
        return [self.code[i] for i in sorted(self.loops)]


@dataclass
class Machine:
    """Control flow as an architecture writes it."""

    comment: str
    jump: re.Pattern
    leaves: re.Pattern
    call: re.Pattern


MACHINES = {
    "x86_64": Machine(
        "#",
        re.compile(r"j[a-z]+\b"),
        re.compile(r"(jmpq?|retq?|ud2|hlt)\b"),
        re.compile(r"callq?\s+(.+)"),
    ),
    "aarch64": Machine(
        "//",
        re.compile(r"(b|b\.[a-z]+|cbn?z|tbn?z|br)\s"),
        re.compile(r"(b|br|ret|brk|udf)\b(?!\.)"),
        re.compile(r"blr?\s+(.+)"),
    ),
    "wasm32": Machine(
        "#", re.compile(r"$^"), re.compile(r"$^"), re.compile(r"call(?:_indirect)?\s+(.+)")
    ),
}


def functions(lines, machine):
    """Returns the functions of a file by name."""
    kind, lines = MACHINES[machine], list(lines)
    tables = jump_tables(lines)
    names, found, body, name = set(), {}, [], None
    for line in lines:
        if match := TYPE.match(line):
            names.add(match[1])
        elif (match := re.match(r"^([\w$.]+):", line)) and match[1] in names:
            name, body = match[1], []
        elif name and re.match(r"^\.Lfunc_end|\s*end_function", line):
            if machine == "wasm32":
                found[name] = of_wasm(Function(name), body)
            else:
                found[name] = of_blocks(Function(name), body, kind, tables)
            name = None
        elif name:
            text = line.split(kind.comment)[0].strip()
            if LABEL.match(line) or (text and not text.startswith(".")):
                body.append(text or line.strip())
    return found


def jump_tables(lines):
    """Returns the targets of each table of a `match`."""
    tables, name = {}, None
    for line in lines:
        if match := re.match(r"^(\.LJTI\w+):", line):
            name = match[1]
            tables[name] = set()
        elif name and (match := re.match(r"\s*\.(?:long|word|hword|byte|quad)\s+(.*)", line)):
            tables[name].update(TARGET.findall(match[1])[:1])
        elif line.strip():
            name = None
    return tables


def of_wasm(function, body):
    """Finds the loops of structured code."""
    depth, ends = 0, []
    for text in body:
        word = text.split()[0] if text else ""
        if word in ("block", "loop", "try_table"):
            ends.append(word == "loop")
            depth += word == "loop"
        elif word.startswith("end_") and ends:
            depth -= ends.pop()
        elif text and not LABEL.match(text):
            if depth:
                function.loops.add(len(function.code))
            function.code.append(text)
    return function


def of_blocks(function, body, kind, tables):
    """Finds the loops of code with jumps: the cycles of its basic blocks."""
    blocks, labels, open_block = [[]], {}, True
    for text in body:
        if match := LABEL.match(text):
            if blocks[-1] or not open_block:
                blocks.append([])
            labels[match[1]], open_block = len(blocks) - 1, True
            continue
        if not open_block:
            blocks.append([])
            open_block = True
        blocks[-1].append(len(function.code))
        function.code.append(text)
        ends = kind.call.match(text) and ENDS.search(text)
        open_block = not (ends or kind.jump.match(text) or kind.leaves.match(text))
    named = {table for text in body for table in re.findall(r"\.LJTI\w+", text)}
    anywhere = {labels[to] for table in named for to in tables.get(table, ()) if to in labels}
    follows = []
    for i, block in enumerate(blocks):
        last = function.code[block[-1]] if block else ""
        next_ = successors(last, i, labels, kind, anywhere)
        follows.append([to for to in next_ if to < len(blocks)])
    for cycle in cycles(follows):
        for block in cycle:
            function.loops.update(blocks[block])
    return function


def successors(last, i, labels, kind, anywhere):
    """Returns the blocks that may follow the `i`-th one, which ends with an instruction."""
    if kind.call.match(last) and ENDS.search(last):
        return []
    leaves, jumps = kind.leaves.match(last), kind.jump.match(last)
    targets = [labels[t] for t in TARGET.findall(last) if t in labels] if leaves or jumps else []
    if re.match(r"(jmpq?\s+\*|br\s)", last):
        targets = sorted(anywhere)
    return targets if leaves else [*targets, i + 1]


def cycles(follows):
    """Returns the strongly connected components that are cycles (Tarjan, without recursion)."""
    order, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in range(len(follows)):
        if root in order:
            continue
        work = [(root, iter(follows[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            new = next((n for n in rest if n not in order or n in on_stack), None)
            if new is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    at = stack.index(node)
                    component, stack[at:] = stack[at:], []
                    on_stack.difference_update(component)
                    if len(component) > 1 or node in follows[node]:
                        found.append(component)
            elif new in order:
                low[node] = min(low[node], order[new])
            else:
                order[new] = low[new] = len(order)
                stack.append(new)
                on_stack.add(new)
                work.append((new, iter(follows[new])))
    return found


def callees(function, machine):
    """Returns what the loops of a function call, but for panics. Where the function loads addresses of
    functions into a register, a call of the register is a call of all of these."""
    call = MACHINES[machine].call
    loaded = {}
    for text in function.code:
        if match := re.match(r"movq\s+([\w$.]+)@GOTPCREL\(%rip\), (%r\w+)", text):
            loaded.setdefault("*" + match[2], set()).add(match[1])
    found = (call.match(text) for text in function.looping())
    texts = {match[1].split(",")[0].strip() for match in found if match}
    names = set()
    for text in texts:
        direct = re.match(r"\*?([A-Za-z_$.][\w$.]*)(@.*)?$", text)
        names.update(loaded.get(text, [direct[1] if direct else text]))
    return {name for name in names if not ENDS.search(name)}


def readable(names):
    """Returns names as Rust writes them, where the system can translate them."""
    names = list(names)
    try:
        text = "\n".join(names)
        out = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {name: name for name in names}
    short = (line.replace("wrinklefree_compute::", "") for line in out.stdout.split("\n"))
    return dict(zip(names, short))
