"""Samples into a table: medians with their spread, and how many times a peer's speed ours is."""

import json
from statistics import median


def short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values):
    """`median (least – most)`."""
    if len(values) == 1:
        return short(values[0])
    return f"{short(median(values))} ({short(min(values))} – {short(max(values))})"


def ratios(above, below):
    """Round by round: what was measured side by side is compared side by side."""
    return [a / b for a, b in zip(above, below, strict=True)]


def faster(result, ours):
    """For each program a cell for each of ours: how many times its speed ours is."""
    samples = result.samples
    for program, speeds in samples.items():
        others = program not in ours
        measured = [name if others and name in samples else None for name in ours]
        yield program, [spread(ratios(samples[n], speeds)) + " ×" if n else "" for n in measured]


def markdown(results, ours):
    head = ["test", "threads", "program", "kernels", "tok/s", *(f"{name} is" for name in ours)]
    rows = []
    for model in dict.fromkeys(result.case.model for result in results):
        rows += [f"### {model}", "", line(head), line(["---"] * len(head))]
        for result in (r for r in results if r.case.model == model):
            where = [str(result.case.test), str(result.case.threads)]
            for program, cells in faster(result, ours):
                about = [program, result.backends[program], spread(result.samples[program])]
                rows.append(line([*where, *about, *cells]))
        rows.append("")
    return "\n".join(rows).rstrip()


def line(words):
    return f"| {' | '.join(words)} |"


def as_json(results, ours, about):
    return json.dumps(about | {"results": [entry(result, ours) for result in results]}, indent=1)


def entry(result, ours):
    case, samples = result.case, result.samples
    programs = {}
    for name, speeds in samples.items():
        programs[name] = {"backend": result.backends[name], "tokens_per_second": speeds}
        if name not in ours:
            faster = {n: ratios(samples[n], speeds) for n in ours if n in samples}
            programs[name]["ours_is_faster"] = faster
    about = {"model": case.model, "test": str(case.test), "threads": case.threads}
    return about | {"others_share": result.worst, "programs": programs}
