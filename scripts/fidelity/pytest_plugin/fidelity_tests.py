"""Notes what became of each test, as it happens, and leaves all tests out but a sample of them.

A plugin for pytest that `torch_tests.py` loads into each run, bare or wrapped, so that both are changed
alike. Each line of the file ``FIDELITY_TESTS`` is a JSON list: the count of what was collected; the start of a test;
or one of its phases, with its outcome, message and seconds. A run that ends in the midst of a test leaves its start
alone. ``FIDELITY_SAMPLE`` is how many tests are kept, 0 for all: which is a matter of their names and of
``FIDELITY_SHUFFLE`` alone.
"""

from __future__ import annotations

import hashlib
import json
import os

import pytest

FILE = os.environ["FIDELITY_TESTS"]
SAMPLE = int(os.environ["FIDELITY_SAMPLE"])
SHUFFLE = os.environ["FIDELITY_SHUFFLE"]
LEAVE_OUT = set(os.environ["FIDELITY_LEAVE_OUT"].split())
STARTED = os.getpid()


def _note(*words):
    if os.getpid() == STARTED:
        with open(FILE, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(json.dumps(words) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Keep the tests whose names come first when they are shuffled, in the order in which they were."""
    _note("collected", len(items))
    kept = [item for item in items if item.nodeid not in LEAVE_OUT]
    if SAMPLE:
        kept = sorted(kept, key=lambda item: hashlib.sha256((SHUFFLE + item.nodeid).encode()).digest())[
            :SAMPLE
        ]
    chosen = {id(item) for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = [item for item in items if id(item) in chosen]


def pytest_runtest_logstart(nodeid):
    """Note that a test starts."""
    _note("start", nodeid)


def pytest_runtest_logreport(report):
    """Note what came of one phase of a test."""
    outcome = report.outcome
    if hasattr(report, "wasxfail"):
        outcome = {"skipped": "xfailed", "passed": "xpassed"}.get(outcome, outcome)
    elif outcome == "failed" and report.when != "call":
        outcome = "error"
    if isinstance(report.longrepr, tuple):
        message = str(report.longrepr[-1])
    else:
        message = report.longreprtext
    _note("end", report.nodeid, report.when, outcome, message, round(report.duration, 3))


def pytest_collectreport(report):
    """Note a file that cannot be collected as a test that has an error."""
    if report.failed:
        _note("end", report.nodeid, "collect", "error", report.longreprtext, 0)
