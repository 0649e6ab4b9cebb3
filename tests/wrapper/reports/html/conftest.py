"""A run whose every text is hostile, and pages drawn from runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.journal_format import INSTANTS
from perfwrap.reports.html.document import document
from perfwrap.timeline.model import Timeline

MS = 1_000_000
ATTACK = "</script><script>window.owned = 1</script><img src=x onerror='window.owned = 2'>\"'`&amp;${1}%{x}"
HOSTILE = f"{ATTACK} 🔥‮ <a href=https://example.invalid/>click</a>"
LONG_PATH = "/" + "verylong/" * 1_111 + "train<b>.py"
"""Ten thousand characters."""


class Attack(NamedTuple):
    """What the hostile run is full of."""

    text: str
    long_path: str


def _fill(run: Any, steps: int = 60, name: str = "loader/1", file: str = "train.py") -> Any:
    """Write a loop that waits for its data half of the time, and now and then collects garbage."""
    journal = run.journal(opened=1_000 * MS)
    journal.fact(f"{name}/num_workers", 0)
    journal.fact(f"{name}/created", f"{file}\x1f12\x1fmain")
    for number in range(steps):
        journal.span("loader_start" if number == 0 else "sync", MS // 10, name, line=f"{file}:19:main")
        journal.span("data", (30 if number % 20 == 7 else 10) * MS, name, 32, f"{file}:20:main")
        journal.span("forward", 4 * MS, "Net", 3, f"{file}:21:main")
        if number % 25 == 3:
            journal.span("gc", 2 * MS)
        journal.span("backward", 5 * MS, line=f"{file}:23:main")
        journal.span("optimizer", MS, "SGD#1", line=f"{file}:24:main")
    return journal


def _told(timeline: Timeline) -> tuple[Diagnosis, dict[str, Any]]:
    """Return the diagnosis of a timeline, and the data of its page."""
    diagnosis = diagnose(timeline, overview=True)
    assert diagnosis.overview is not None
    return diagnosis, document(diagnosis, timeline)


@pytest.fixture
def fill() -> Callable[..., Any]:
    """Return the function that writes a loop."""
    return _fill


@pytest.fixture
def reported() -> Callable[[Timeline], tuple[Diagnosis, dict[str, Any]]]:
    """Return the function that makes the data of the page for a timeline."""
    return _told


@pytest.fixture
def attack() -> Attack:
    """What the hostile run is full of."""
    return Attack(HOSTILE, LONG_PATH)


@pytest.fixture
def hostile(run: Any) -> Timeline:
    """A run whose command, folder, files, functions, threads, facts, marks and stacks all attack the page."""
    journal = _fill(run, name=f"loader/{HOSTILE}", file=LONG_PATH)
    journal.name_thread(1, HOSTILE, 100)
    journal.fact(HOSTILE, HOSTILE)
    journal.non_finite(float("nan"), HOSTILE)
    journal.sample("gpu/0", "utilization_share", 0.5, 1_100 * MS)
    for number in range(12):
        frames = f"{HOSTILE.replace(';', '')} ({LONG_PATH}:{number});inner <script> (/usr/lib/python3/x.py:3)"
        label = "\x1f".join([frames, LONG_PATH, str(number), HOSTILE])
        journal.record(INSTANTS["STACK"], (1_100 + 10 * number) * MS, MS, 3, label, 1)
    run.folder.write_manifest(
        {
            "command": ["python", "train.py", HOSTILE, "x" * 10_000],
            "cwd": f"/home/{HOSTILE}",
            "start": {"monotonic_ns": 1_000 * MS, "wall_ns": 1},
            "end": {"monotonic_ns": 3_000 * MS, "wall_ns": 2_000 * MS},
            "exit": {"code": 0},
        }
    )
    timeline: Timeline = run.read()
    return timeline
