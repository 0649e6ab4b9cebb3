"""The model computes in double precision.

What it finds
    Models with mostly float64 parameters, in a loop in which their forward pass, backward pass and optimizer take at
    least 10 %, and on a CPU at least 2 ms of a step.

Why it costs
    A float64 number takes twice the memory and twice the space in a vector unit; GPUs for graphics and inference have a
    32nd to a 64th of the units for it. It is rarely intended: numpy creates float64 by default, and a model is then
    converted to match.

How the gain is estimated
    Estimated: in float32 the same steps took 31 to 78 % less (linear layers, convolutions, an LSTM and a transformer
    layer with Adam on a CPU, torch 2.13, 9 to 72 ms), and 3 % less if calls cost more than arithmetic (0.4 ms). The
    gain is 25 to 60 % of forward, backward and optimizer, and the share is the middle of that. Not checked on a GPU,
    where the host's time says nothing about it, or with several ranks, where a backward pass also waits.

How to fix
    Make the data float32 (array.astype("float32"), tensor.float()) and remove .double() or
    torch.set_default_dtype(torch.float64).

When it is wrong
    When the numbers need it: finite differences, ill-conditioned systems, physics. Compare the results first.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, mean_step_ns, trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.models import find_models
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.model import MAJOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option

NEEDS = ("steady_steps", "options")

DOUBLE = "torch.float64"


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    major_share: float = MAJOR_SHARE
    min_double_share: float = 0.9
    """Share of float64 parameters from which the models compute in double precision."""
    min_saved_share: float = 0.25
    max_saved_share: float = 0.6
    """Share of forward, backward and optimizer that float32 saves (measured, see above)."""
    min_step_ns: int = 2_000_000
    """Part of a step on a CPU; below it, calls of torch cost more than arithmetic."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the types of the models' parameters."""
    models = evidence.get(find_models, trainer)
    total = sum(sum(model.elements.values()) for model in models)
    double = sum(model.elements.get(DOUBLE, 0) for model in models)
    if not total or double < limits.min_double_share * total:
        return Clear("No model computes in double precision.")
    account = evidence.get(find_account, trainer)
    if trains_on_gpu(evidence, trainer):
        return NotChecked("The cost of double precision on a GPU needs a record of its kernels.")
    if trainer.rank is not None and len(evidence.get(find_trainers)) > 1:
        return NotChecked("With several ranks, a backward pass also waits for other ranks.")
    compute = sum(account.shares[part] for part in COMPUTE_PARTS)
    is_short = compute * mean_step_ns(evidence, trainer) < limits.min_step_ns
    if compute < limits.major_share or is_short:
        return Clear(f"Work in double precision takes {units.share(compute)} of the loop.")
    names = [model.name for model in models if DOUBLE in model.elements]
    name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    share = (limits.min_saved_share + limits.max_saved_share) / 2 * compute
    verb = "has" if len(names) == 1 else "have"
    return [
        Finding(
            title=f"About {SHARE} of the training loop is lost to double precision: {name} {verb} float64 "
            "parameters.",
            share=share,
            evidence=(
                f"{units.count(double)} of {units.count(total)} parameters are float64; forward, backward and "
                f"optimizer take {units.share(compute)} of the loop.",
            ),
            options=(
                Option(
                    'Make the data float32 (array.astype("float32"), tensor.float()) and remove .double() or '
                    "torch.set_default_dtype(torch.float64), unless you need the precision.",
                    (1.0 - limits.max_saved_share * compute, 1.0 - limits.min_saved_share * compute),
                ),
            ),
            verdict="compute-bound",
            confidence="inferred",
            claims=pl.col("part").is_in([*COMPUTE_PARTS]),
        )
    ]
