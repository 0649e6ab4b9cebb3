"""DDP looks for unused parameters in each step, and there are none.

What it finds
    DistributedDataParallel(find_unused_parameters=True) where DDP itself found no unused parameter in any step that
    its logger looked at, and where what it does after each forward pass takes 2 % of a step or more.

Why it costs
    After each forward pass the whole autograd graph is walked through to find parameters that got no gradient, and a
    map of them is exchanged with all ranks at the end of the backward pass.

How the saving is worked out
    Measured: the time of DDP's work after the forward pass. The exchange of the map, which goes too, is not counted.

How to fix
    Leave find_unused_parameters out, or use static_graph=True where the same parameters are unused in each step.

When it is wrong
    When parameters are unused in rare steps only: without the search such a step fails with an error.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.spread_models import SETTLED
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, named
from perfwrap.rules.spread import calls_per_step

NEEDS = ("trainer", "steady_steps", "recorder")


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at models that search although nothing is unused."""
    models = [
        model
        for model in evidence.spread_models(trainer)
        if model.find_unused_parameters and not model.static_graph
    ]
    if not models:
        return Clear("No model is searched for unused parameters.")
    model = models[0]
    if model.unused_bytes:
        return Clear(f"{units.size(model.unused_bytes)} of parameters are unused, so the search is needed.")
    if model.unused_bytes is None or model.post_forward_ns is None or model.iterations < SETTLED:
        return NotChecked("DDP did not tell yet whether parameters are unused, or what the search takes.")
    cost = model.post_forward_ns * calls_per_step(evidence, trainer)
    share = cost / max(1.0, mean_step_ns(evidence, trainer))
    if share < QUIET_SHARE:
        return Clear(f"Nothing is unused, but the search takes only {units.share(share)} of a step.")
    return [
        Finding(
            title=f"{SHARE} of the time {named('the DDP model', model.where)} is searched for unused parameters; none "
            "is unused.",
            share=share,
            saving=without(share),
            evidence=(
                f"DDP's work after a forward pass takes {units.duration(model.post_forward_ns)}; in "
                f"{units.counted(model.iterations, 'step')} its logger saw no unused parameter.",
            ),
            advice="Leave find_unused_parameters=True out, if no step of yours leaves parameters unused.",
            verdict="communication-bound",
            location=locate(model.where),
        )
    ]
