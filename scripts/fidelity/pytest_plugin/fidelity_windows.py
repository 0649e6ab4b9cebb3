"""Opens a dataflow window around each test, where the recorder has them (``--inspect``); else it does nothing.

A plugin for pytest that ``torch_tests.py`` loads into each run. Windows open and close by the recorder's own functions,
for its own reasons; only the moment is another one: the beginning and end of a test. Each line of the file
``FIDELITY_WINDOWS`` is a JSON list of one test: its name, why no window was open at its end ("" if one was), and how
many operations the window had recorded.
"""

from __future__ import annotations

import json
import os
import sys

import pytest

FILE = os.environ.get("FIDELITY_WINDOWS", "")
STARTED = os.getpid()
WINDOWS = "perfwrap_recorder.dataflow.operation_windows"


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item):
    """Open a window before a test, and close it behind it."""
    opened, why = _open() if FILE else (None, "")
    yield
    if FILE and os.getpid() == STARTED:
        with open(FILE, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(json.dumps([item.nodeid, *_close(opened, why)]) + "\n")


def _open():
    """Return what a new window has seen; or None, and why there is none."""
    windows, torch = sys.modules.get(WINDOWS), sys.modules.get("torch")
    plan = getattr(windows, "_plan", None)
    if plan is None:
        return None, "perfwrap runs without --inspect"
    windows.STEPS = sys.maxsize  # the end of a test closes it
    plan.tries_left, plan.written, plan.is_over = windows.window_plan.MAX_TRIES, 0, False
    reason = "a window is open" if plan.is_open else windows.window_obstacles.find_reason(torch)
    if reason:
        return None, reason
    windows._open(torch, plan)
    return plan.watched, ""


def _close(opened, why):
    """Close the window; return why it was closed before, and its operations."""
    if opened is None:
        return why, 0
    windows, torch = sys.modules[WINDOWS], sys.modules["torch"]
    plan = windows._plan
    operations, why = len(opened.operations), opened.why or plan.why
    if plan.watched is not opened:
        return why or "the window was closed", operations
    windows._give_up(torch, plan, "the test is over")
    if plan.is_open:
        why = why or "the mode cannot leave the stack"
    return why, operations
