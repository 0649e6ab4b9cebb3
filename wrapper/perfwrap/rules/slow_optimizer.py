"""The optimizer updates its tensors one after the other.

What it finds
    An optimizer that loops over its tensors in Python, in a loop that spends 2 % of its time or more in the
    optimizer's step: on a GPU one of torch's own because of foreach=False, on a CPU one with many small tensors, for
    which torch loops unless fused=True is given. A class of the program's own, or of a library, is taken to loop on a
    CPU where it takes 10 us or more for each of many small tensors.

Why it costs
    The loop makes some ten calls of torch for each tensor, however small the tensor is. With hundreds of small ones
    these calls are the step, not the arithmetic.

How the saving is worked out
    The time of the step is measured. On a CPU fused=True took 60 to 90 % off it for 16 to 2 M elements a tensor (Adam
    and AdamW of torch 2.13), 50 to 70 % for Adagrad, 30 to 75 % for SGD with small ones. On a GPU the gain is inferred:
    from half of the host's time in the step to nearly all of it. For a class that torch has no fused form of, nothing
    is promised for sure.

How to fix
    Pass fused=True to the optimizer (torch 2.4 and later on a CPU), or on a GPU leave foreach=False away. Instead of a
    copy of an optimizer take torch's own; write what torch does not have with its foreach functions.

When it is wrong
    When foreach=False was chosen for want of GPU memory: foreach needs as much again as the parameters for a moment;
    fused=True does not. Where the GPU is the limit, the host's time in the step is hidden behind it.
"""

from __future__ import annotations

from math import inf

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns, trains_on_gpu
from perfwrap.measures.optimizers import OptimizerUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, place

NEEDS = ("steady_steps", "options")

OWN = "torch.optim."
"""Begins the classes of torch's own optimizers, whose options these are."""

FUSED_ON_CPU = {"Adam": (0.60, 0.85), "AdamW": (0.60, 0.85), "Adagrad": (0.50, 0.70), "SGD": (0.30, 0.75)}
"""Optimizers with a fused kernel for the CPU (torch 2.4's release notes), and the part of the step that it takes off:
measured, see above. SGD is quicker by less without momentum."""

FIRST_FUSED_ON_CPU = (2, 4)
"""The version of torch that brought them."""

MANY_TENSORS = 50
"""Tensors from which a loop over them counts: below, its calls take less than a millisecond."""

SMALL_ELEMENTS = 16_384
"""Elements of a tensor, on average, up to which calls cost more than arithmetic on a CPU: measured 9 to 110 us for a
tensor of up to 4,096 elements with Adam or SGD, 125 to 560 us for one of 65,536. No limit of time is used, because a
busy machine would move it."""

LOOP_NS = 10_000
"""For each small tensor, from which an optimizer that is not torch's own is taken to loop in Python: a dozen calls of
torch take 20 to 50 us, the same through foreach functions less than 10."""

LAUNCHES_LEAST, LAUNCHES_MOST = 0.5, 0.95
"""Part of the host's time in the step that goes on a GPU, where hundreds of launches become a few."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at how each optimizer goes through its tensors."""
    on_gpu = trains_on_gpu(evidence, trainer)
    found = evidence.optimizers(trainer)
    version = _version(evidence.facts(trainer.process).get("torch", ""))
    small = _elements(evidence, trainer) <= SMALL_ELEMENTS * sum(use.tensors or 0 for use in found)
    slow = [
        use
        for use in found
        if use.share >= QUIET_SHARE
        and (_loops_on_gpu(use) if on_gpu else small and _loops_on_cpu(use, version))
    ]
    if not slow:
        total = units.share(sum(use.share for use in found))
        return Clear(f"Optimizer steps take {total} of the loop, none of it for a loop over small tensors.")
    step_ns = mean_step_ns(evidence, trainer)
    return [_finding(use, on_gpu, step_ns) for use in slow]


def _loops_on_gpu(use: OptimizerUse) -> bool:
    """Say whether the program itself asked for a loop."""
    return use.kind.startswith(OWN) and use.foreach is False and not use.fused


def _loops_on_cpu(use: OptimizerUse, version: tuple[int, ...]) -> bool:
    """Say whether a step loops over many small tensors, and need not."""
    if use.fused or use.tensors is None or use.tensors < MANY_TENSORS:
        return False
    if use.kind.startswith(OWN):
        return _can_be_fused(use) and version >= FIRST_FUSED_ON_CPU
    return bool(use.kind) and use.ns_per_step >= LOOP_NS * use.tensors


def _can_be_fused(use: OptimizerUse) -> bool:
    """Say whether torch has a fused form of it for the CPU, or of one of the same name."""
    return use.kind.rpartition(".")[2] in FUSED_ON_CPU


def _elements(evidence: Evidence, trainer: Trainer) -> float:
    """Return how many elements the trainer's models have together; infinity where none of them tells."""
    facts = evidence.facts(trainer.process).items()
    told = [value for key, value in facts if key.startswith("model/") and key.endswith("/parameters")]
    return sum(int(value) for value in told if value.isdigit()) if told else inf


def _version(text: str) -> tuple[int, ...]:
    """Return the first two numbers of torch's version; (0, 0) where it is not known."""
    numbers = text.split("+")[0].split(".")[:2]
    return tuple(int(number) for number in numbers) if all(map(str.isdigit, numbers)) else (0, 0)


def _finding(use: OptimizerUse, on_gpu: bool, step_ns: float) -> Finding:
    """Return the finding about one optimizer."""
    kind = use.kind.rpartition(".")[2]
    least, most = (LAUNCHES_LEAST, LAUNCHES_MOST) if on_gpu else FUSED_ON_CPU.get(kind, FUSED_ON_CPU["Adam"])
    best, worst = saving(step_ns, least * use.share * step_ns, most * use.share * step_ns)
    each = (
        f", {units.duration(use.ns_per_step / use.tensors)} for each of "
        f"{units.counted(use.tensors, 'tensor')}"
        if use.tensors
        else ""
    )
    is_torchs = use.kind.startswith(OWN)
    made = (
        f"it is not torch's own ({use.kind.removeprefix('__main__.')})"
        if not is_torchs
        else f"it was made with {'foreach=False' if use.foreach is False else 'neither foreach nor fused'}"
    )
    return Finding(
        title=f"{SHARE} of the training loop is {kind}.step() at {place(use.where, 'one line')}, which updates "
        "one tensor after the other.",
        share=use.share,
        saving=(best, worst if not on_gpu and _can_be_fused(use) else 1.0),
        evidence=(f"{units.duration(use.ns_per_step)} per step{each}; {made}.",),
        advice=_advice(use, kind, is_torchs),
        verdict="launch-bound" if on_gpu else "python-bound",
        location=locate(use.where),
        experiment="fused-optimizer" if is_torchs else None,
        confidence="inferred",
        claims=(pl.col("operation") == "optimizer")
        & (pl.col("name") == use.name)
        & (pl.col("part") == "optimizer"),
    )


def _advice(use: OptimizerUse, kind: str, is_torchs: bool) -> str:
    """Return what to change."""
    if is_torchs:
        return f"Pass fused=True where the {kind} is made: one call then updates all tensors in one pass."
    if _can_be_fused(use):
        return (
            f"Take torch.optim.{kind} with fused=True instead, if it does the same: one call then updates all "
            "tensors."
        )
    return (
        f"Write {kind}.step() with torch's foreach functions (torch._foreach_mul_ and its kin), which take all tensors "
        "at once, or take an optimizer of torch's with fused=True."
    )
