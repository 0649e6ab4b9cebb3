"""What a report says about a run as a whole: how its time divides, and whether the machine was busy with other work."""

from __future__ import annotations

from perfwrap import units
from perfwrap.comparison.obstacles import crowding
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports.json import machine

QUIET = "Repeat the run while no other programs are busy."


def whole_run(diagnosis: Diagnosis) -> str:
    """Return e.g. ``start 3 s (25 %), training loop 8 s (67 %), end 1 s (8 %)``; empty if unknown."""
    parts = diagnosis.whole_run
    if parts is None:
        return ""
    times = {"start": parts.start_ns, "training loop": parts.loop_ns, "end": parts.end_ns}
    shares = units.apportion({part: float(ns) for part, ns in times.items()}, 100)
    return ", ".join(f"{part} {units.duration(ns)} ({shares[part]} %)" for part, ns in times.items())


def busy_machine(diagnosis: Diagnosis) -> str:
    """Return a warning if other programs used the machine while the steps ran; empty if not, or if unknown."""
    crowd = crowding(machine(diagnosis) or {}) if diagnosis.account else ""
    return f"Busy machine: {crowd}, so the step times are not reliable. {QUIET}" if crowd else ""
