"""Writes JSON, streams and long lists so that people read them, and a change is a few lines of a diff."""

import json

WIDTH = 110
# Number of fields without parts from which on they share lines.
FILLED = 8


def line(value):
    """Returns JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def lines(value, indent=""):
    """Returns JSON with one line for whatever fits."""
    text = line(value)
    if len(indent) + len(text) <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return text
    if isinstance(value, list) and all(isinstance(v, (int, float)) for v in value):
        return wrapped(value, indent)
    inner = indent + "  "
    if isinstance(value, dict):
        if len(value) > FILLED and not any(isinstance(v, (dict, list)) for v in value.values()):
            return "{\n" + filled(value, inner) + f"\n{indent}}}"
        items = [f"{inner}{line(k)}: {lines(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + lines(v, inner) for v in value) + f"\n{indent}]"


def filled(fields, indent):
    """Returns many fields without parts, several on a line."""
    rows = [indent]
    for key, value in fields.items():
        text = f"{line(key)}: {line(value)}, "
        if len(rows[-1]) + len(text) > WIDTH and rows[-1] != indent:
            rows.append(indent)
        rows[-1] += text
    return "\n".join(row.rstrip() for row in rows).rstrip(",")


def wrapped(numbers, indent):
    """Returns a list of numbers; a long one has its length, its first and its last numbers."""
    if len(numbers) <= 40:
        return line(numbers)
    first, last = (", ".join(line(n) for n in part) for part in (numbers[:8], numbers[-4:]))
    return f"[{first}, … {len(numbers)} numbers …, {last}]"


def leaves(value, path=""):
    """Returns the leaves of JSON by path."""
    if isinstance(value, dict) and value:
        return {p: v for k, inner in value.items() for p, v in leaves(inner, f"{path}.{k}").items()}
    if isinstance(value, list) and value:
        return {p: v for i, inner in enumerate(value) for p, v in leaves(inner, f"{path}.{i}").items()}
    return {path: value}


def stream(events):
    """Returns the events of a stream. An event shows what differs from the last one of its shape.

    The first event of a shape leaves out what an event before it had in the same place, and says how many
    fields these are. Events of one shape that differ in the same leaf stand on one line.
    """
    written, shapes, known, open_leaf = [], {}, {}, None
    for event in events:
        now = leaves(event)
        shape = tuple(now)
        before = shapes.get(shape)
        shapes[shape] = now
        changed = {p: v for p, v in now.items() if before and before[p] != v and p != ".sequence_number"}
        if before is None:
            written.append(lines(news(event, known)))
            open_leaf = None
        elif len(changed) == 1 and open_leaf == (shape, *changed):
            written[-1] += " " + line(*changed.values())
        else:
            written.append("… " + (", ".join(f"{p}: {line(v)}" for p, v in changed.items()) or "the same"))
            open_leaf = (shape, *changed) if len(changed) == 1 else None
        if isinstance(event, dict):
            known |= event
    return "\n".join(written)


def news(value, known):
    """Returns an object without the fields that are known, and the number of these."""
    if not isinstance(value, dict) or not isinstance(known, dict):
        return value
    new = {key: news(inner, known.get(key)) for key, inner in value.items() if known.get(key, ...) != inner}
    same = len(value) - len(new)
    return ({"…": f"{same} as before"} if same else {}) | new
