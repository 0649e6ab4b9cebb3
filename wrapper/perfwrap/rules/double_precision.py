"""The model computes in double precision.

What it finds
    Models whose parameters are float64 for the most part, in a loop of which their forward pass, backward pass and
    optimizer take 10 % or more, and on a CPU 2 ms or more of a step.

Why it costs
    A number in float64 takes twice the memory and twice the room in a processor's vector unit; GPUs for graphics and
    inference have a 32nd to a 64th of the units for it. It is rarely meant: numpy makes float64 unless told otherwise,
    and a model is then turned to match.

How the saving is worked out
    Inferred: in float32 the same steps took 31 to 78 % less (linear layers, convolutions, an LSTM and a transformer's
    layer with Adam on a CPU, torch 2.13, 9 to 72 ms), and 3 % less where calls cost more than numbers (0.4 ms). Of
    forward, backward and optimizer a quarter to 60 % is promised, and what stands in the middle is the share. On a GPU
    the host's time says nothing of it, and in a job of several ranks a backward pass also waits: not checked there.

How to fix
    Make the data float32 (array.astype("float32"), tensor.float()) and leave out .double() or
    torch.set_default_dtype(torch.float64).

When it is wrong
    When the numbers need it: finite differences, ill-conditioned systems, physics. Compare the results before it stays.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import COMPUTE_PARTS, mean_step_ns, trains_on_gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MAJOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("steady_steps", "options")

DOUBLE = "torch.float64"
MOSTLY = 0.9
"""Part of the parameters that is float64, from which the models compute in it."""
LEAST_GONE, MOST_GONE = 0.25, 0.6
"""Of forward, backward and optimizer, what goes in float32: measured, see above."""

LEAST_NS = 2_000_000
"""Of a step on a CPU: below, calls of torch cost more than the numbers do."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at the types of the models' parameters."""
    models = _elements(evidence, trainer)
    total = sum(sum(types.values()) for types in models.values())
    double = sum(types.get(DOUBLE, 0) for types in models.values())
    if not total or double < MOSTLY * total:
        return Clear("No model computes in double precision.")
    account = evidence.account(trainer)
    if trains_on_gpu(evidence, trainer):
        return NotChecked("What double precision costs on a GPU needs a record of its kernels.")
    if trainer.rank is not None and len(evidence.trainers) > 1:
        return NotChecked("In a job of several ranks a backward pass also waits for the others.")
    compute = sum(account.shares[part] for part in COMPUTE_PARTS)
    is_short = compute * mean_step_ns(evidence, trainer) < LEAST_NS
    if compute < MAJOR_SHARE or is_short:
        return Clear(f"The work in double precision takes {units.share(compute)} of the loop.")
    names = [name for name, types in models.items() if DOUBLE in types]
    name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    share = (LEAST_GONE + MOST_GONE) / 2 * compute
    verb = "has" if len(names) == 1 else "have"
    return [
        Finding(
            title=f"About {SHARE} of the training loop is the price of double precision: {name} {verb} float64 "
            "parameters.",
            share=share,
            saving=(1.0 - MOST_GONE * compute, 1.0 - LEAST_GONE * compute),
            evidence=(
                f"{units.count(double)} of {units.count(total)} parameters are float64; forward, backward and "
                f"optimizer take {units.share(compute)} of the loop.",
            ),
            advice='Make the data float32 (array.astype("float32"), tensor.float()) and leave out .double() or '
            "torch.set_default_dtype(torch.float64), unless the numbers need it.",
            verdict="compute-bound",
            confidence="inferred",
            claims=pl.col("part").is_in([*COMPUTE_PARTS]),
        )
    ]


def _elements(evidence: Evidence, trainer: Trainer) -> dict[str, dict[str, int]]:
    """Return for each model how many elements its parameters have of each type."""
    found = {}
    for key, value in evidence.facts(trainer.process).items():
        head, _, last = key.rpartition("/")
        if head.startswith("model/") and last == "dtypes":
            counts = (each.rpartition(" ") for each in value.split(", "))
            found[head.removeprefix("model/")] = {
                kind: int(many) for kind, _, many in counts if many.isdigit()
            }
    return found
