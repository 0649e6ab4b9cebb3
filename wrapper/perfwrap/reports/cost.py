"""The overhead of perfwrap in a run, in words."""

from __future__ import annotations

from perfwrap import units
from perfwrap.diagnosis.model import Diagnosis


def own_cost(diagnosis: Diagnosis) -> str:
    """Return the overhead of perfwrap in the training loop, and in the whole run's CPU time; empty if unknown."""
    cost = diagnosis.perfwrap_cost
    if cost is None or not diagnosis.account:
        return ""
    monitors = "" if cost.monitor_cores is None else f", monitors {units.share(cost.monitor_cores)} of a core"
    how = "measured against steps without probes" if cost.measured else "estimated"
    low, high = units.share(cost.low), units.share(cost.high)
    text = f"Overhead of perfwrap: {units.share(cost.share)} of the loop ({low} to {high}, {how}){monitors}."
    if cost.processor is None:
        return text
    used = cost.processor
    total, own, recorder, monitors = (
        units.duration(seconds * 1e9)
        for seconds in (
            used.recorder + used.monitors,
            used.command - used.recorder,
            used.recorder,
            used.monitors,
        )
    )
    return (
        f"{text} In the whole run: {total} of CPU time, {units.share(used.share)} of the program's {own} (recorder "
        f"{recorder}, estimated; monitors {monitors})."
    )
