"""A pytest plugin: skips the tests that are not portable, and counts the others.

`PEER_LIST` names a file with a line for each test that is not portable: a part of its id, a tab and the
reason. `PEER_REPORT` names the file for the results as JSON.
"""

import json
import os
import pathlib

import pytest

results = {"passed": [], "failed": {}, "not portable": {}}


def reasons():
    lines = pathlib.Path(os.environ["PEER_LIST"]).read_text().splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def pytest_collection_modifyitems(items):
    listed = reasons()
    for item in items:
        reason = next((why for part, why in listed if part in item.nodeid), None)
        if reason:
            results["not portable"][item.nodeid] = reason
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_logreport(report):
    if report.failed:
        text = str(report.longrepr).strip().splitlines()
        results["failed"][report.nodeid] = text[-1] if text else report.when
    elif report.passed and report.when == "call":
        results["passed"].append(report.nodeid)


def pytest_terminal_summary(terminalreporter):
    passed = [name for name in results["passed"] if name not in results["failed"]]
    count = len(passed) + len(results["failed"])
    share = 100 * len(passed) / count if count else 0
    terminalreporter.write_line(
        f"portable: {len(passed)} of {count} passed ({share:.1f} %); "
        f"not portable: {len(results['not portable'])}"
    )
    if path := os.environ.get("PEER_REPORT"):
        pathlib.Path(path).write_text(json.dumps(results, indent=1))
