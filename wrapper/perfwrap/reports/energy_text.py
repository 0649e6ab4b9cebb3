"""The energy and the cost of a run in a sentence each."""

from __future__ import annotations

from perfwrap import units
from perfwrap.diagnosis.model import Cost, Diagnosis, Energy


def sentences(diagnosis: Diagnosis) -> list[str]:
    """Return what is known of energy and cost; nothing if neither is."""
    found = []
    if diagnosis.energy is not None:
        found.append(_energy(diagnosis.energy))
    if diagnosis.cost is not None:
        found.append(_cost(diagnosis.cost))
    return found


def short(diagnosis: Diagnosis) -> str:
    """Return the energy of a step or, if that is unknown, of the run; empty if nothing is known."""
    energy = diagnosis.energy
    if energy is None:
        return ""
    if energy.step_joules is not None:
        return f"{units.energy(energy.step_joules)} per step"
    return f"{units.energy(energy.joules)} in all"


def _energy(energy: Energy) -> str:
    parts = []
    if energy.gpu_joules is not None:
        way = ", by power samples" if energy.sampled else ""
        parts.append(f"{units.energy(energy.gpu_joules)} by {units.counted(energy.gpus, 'GPU')}{way}")
    if energy.processor_joules is not None:
        parts.append(
            f"{units.energy(energy.processor_joules)} by the machine's processors, other programs included"
        )
    steps = []
    if energy.gpu_step_joules is not None:
        steps.append(f"{units.energy(energy.gpu_step_joules)} of the GPUs")
    if energy.processor_step_joules is not None:
        steps.append(f"{units.energy(energy.processor_step_joules)} of the processors")
    of_step = f"; per step {' and '.join(steps)}" if steps else ""
    return f"Energy: {' and '.join(parts)}{of_step}."


def _cost(cost: Cost) -> str:
    currency = f" {cost.currency}" if cost.currency else ""
    step = (
        ""
        if cost.step_amount is None
        else f", {units.number(cost.step_amount * 1e6)}{currency} per million steps"
    )
    basis = "its energy" if cost.by_energy else "its time"
    return f"Cost: {units.number(cost.amount)}{currency} for {basis}{step}."
