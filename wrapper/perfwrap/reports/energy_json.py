"""Energy, cost and the GPU's idle time between phases, as parts of ``diagnosis.json``."""

from __future__ import annotations

from typing import Any

from perfwrap import units
from perfwrap.diagnosis.model import Diagnosis, PhaseIdle

STEP_DIGITS, DIGITS = 4, 6
"""Significant digits of figures per step, and of those of the run."""


def gpu_idle(idle: PhaseIdle | None) -> dict[str, Any] | None:
    """Return why the GPU was idle between timed phases; None if they were not timed."""
    if idle is None:
        return None
    return {
        "steps": idle.steps,
        "duration_ns": idle.duration_ns,
        "busy_share": _rounded(idle.busy_ns / idle.duration_ns, DIGITS),
        "idle": {cause: _rounded(share, DIGITS) for cause, share in idle.shares.items()},
    }


def energy(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return joules of the run and of a step, and what they cost; None if neither is known."""
    found, cost = diagnosis.energy, diagnosis.cost
    if found is None and cost is None:
        return None
    return {
        "gpu_joules": _rounded(found.gpu_joules, DIGITS) if found else None,
        "processor_joules": _rounded(found.processor_joules, DIGITS) if found else None,
        "gpu_step_joules": _rounded(found.gpu_step_joules, STEP_DIGITS) if found else None,
        "processor_step_joules": _rounded(found.processor_step_joules, STEP_DIGITS) if found else None,
        "sampled": found.sampled if found else False,
        "cost": None
        if cost is None
        else {
            "amount": _rounded(cost.amount, STEP_DIGITS),
            "step_amount": _rounded(cost.step_amount, STEP_DIGITS),
            "currency": cost.currency,
            "of": "energy" if cost.by_energy else "time",
        },
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else units.significant(value, digits)
