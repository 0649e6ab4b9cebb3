"""Whether the model does as much work in the last steps as in the first ones."""

from __future__ import annotations

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.slowing import rises_of_parts
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

MODEL_PARTS = ("forward", "backward", "optimizer")
NOT_WORK = ("python", "gc", "perfwrap", "checkpoint", "validation", "compile")
"""Parts that tell nothing of the model's work on a GPU; the others include the waits for it."""
MAX_RISE = 0.25
"""The model's work is constant if it rises by less than this."""
MIN_WITNESS_SHARE = 0.02
"""Share of the account from which the optimizer's time, which does not depend on the inputs, shows how much slower the
machine got."""


def find_model_growth(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return how many times as much work the model does at the end as at the start; None if it was not recorded.

    On a CPU it is the forward pass, compared with the optimizer. On a GPU it is all of the step but the program's own
    code, because the host only waits for that work.
    """
    rises, account = evidence.get(rises_of_parts, trainer), evidence.get(find_account, trainer)
    machine = 1.0
    if evidence.get(trains_on_gpu, trainer):
        work = [part for part in rises if part not in NOT_WORK]
    else:
        work = ["forward"] if "forward" in rises else ["backward"]
        if account.shares["optimizer"] >= MIN_WITNESS_SHARE and "optimizer" in rises:
            machine = max(1.0, _factor([rises["optimizer"]]))
    known = [rises[part] for part in work if part in rises]
    return _factor(known) / machine if known else None


def is_model_constant(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether the model's work is constant: longer inputs are more work everywhere. False if it is unknown."""
    growth = evidence.get(find_model_growth, trainer)
    return growth is not None and growth <= 1 + MAX_RISE


def machine_slowdown(evidence: Evidence, trainer: Trainer) -> float:
    """Return the time of the model's training in a step at the end over that at the start; 1 if unknown."""
    rises = evidence.get(rises_of_parts, trainer)
    known = [rises[part] for part in MODEL_PARTS if part in rises]
    return _factor(known) if known else 1.0


def model_step_ns(evidence: Evidence, trainer: Trainer) -> float:
    """Return the mean time of the model's training in a step."""
    account, steps = evidence.get(find_account, trainer), evidence.get(find_steps, trainer)
    return sum(account.ns[part] for part in MODEL_PARTS) / max(1, steps.steady)


def _factor(rises: list[tuple[float, float]]) -> float:
    """Return the time at the end over that at the start, of some parts with their times and their rises."""
    whole, rise = (sum(each) for each in zip(*rises, strict=True))
    return (whole + rise / 2) / (whole - rise / 2) if whole > abs(rise / 2) else float("inf")
