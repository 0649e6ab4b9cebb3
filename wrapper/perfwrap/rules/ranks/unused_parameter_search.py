"""DDP searches for unused parameters in each step, but there are none.

What it finds
    DistributedDataParallel(find_unused_parameters=True), if DDP itself found no unused parameter in any step that its
    logger measured, and its work after each forward pass takes at least 2 % of a step.

Why it costs
    After each forward pass DDP visits the whole autograd graph to find parameters without a gradient, and it exchanges
    a map of them with all ranks at the end of the backward pass.

How the gain is estimated
    Measured: the time of DDP's work after the forward pass. The exchange of the map is also saved, but not counted.

How to fix
    Remove find_unused_parameters=True, or use static_graph=True if the same parameters are unused in each step.

When it is wrong
    When parameters are unused only in rare steps: without the search such a step fails with an error.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.spread_models import WARM_UP_PASSES, find_spread_models
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    locate,
    named,
)
from perfwrap.rules.ranks._spread_models import calls_per_step

NEEDS = ("trainer", "steady_steps", "recorder")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    warm_up_passes: int = WARM_UP_PASSES


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check models that search although nothing is unused."""
    models = [
        model
        for model in evidence.get(find_spread_models, trainer)
        if model.find_unused_parameters and not model.static_graph
    ]
    if not models:
        return Clear("No model is searched for unused parameters.")
    model = models[0]
    if model.unused_bytes:
        return Clear(f"{units.size(model.unused_bytes)} of parameters are unused, so the search is needed.")
    if (
        model.unused_bytes is None
        or model.post_forward_ns is None
        or model.iterations < limits.warm_up_passes
    ):
        return NotChecked(
            "DDP's logger has not reported yet whether parameters are unused, or the search time."
        )
    cost = model.post_forward_ns * calls_per_step(evidence, trainer)
    share = cost / max(1.0, mean_step_ns(evidence, trainer))
    if share < limits.min_reported_share:
        return Clear(f"No parameter is unused, but the search takes only {units.share(share)} of a step.")
    return [
        Finding(
            title=f"{SHARE} of the time {named('the DDP model', model.where)} is searched for unused parameters; none "
            "is unused.",
            share=share,
            evidence=(
                f"DDP's work after a forward pass takes {units.duration(model.post_forward_ns)}; in "
                f"{units.counted(model.iterations, 'step')} its logger found no unused parameter.",
            ),
            options=(
                Option(
                    "Remove find_unused_parameters=True, if no step leaves parameters unused.", without(share)
                ),
            ),
            verdict="communication-bound",
            location=locate(model.where),
        )
    ]
