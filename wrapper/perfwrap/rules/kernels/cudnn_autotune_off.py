"""cuDNN chooses convolution algorithms by a heuristic instead of measuring them.

What it finds
    Convolutions that take at least 25 % of the time in a record of the GPU's kernels, the same ones in each step, while
    torch.backends.cudnn.benchmark is off.

Why it costs
    With benchmark on, cuDNN (MIOpen on AMD) measures all its algorithms once per size and keeps the fastest; without it
    a heuristic chooses.

How the gain is estimated
    Estimated: the convolutions get 1.1 to 1.5 times as fast. The share of the finding is the gain at 1.1 times.

How to fix
    Set torch.backends.cudnn.benchmark = True before the loop.

When it is wrong
    When sizes change from step to step: each new size is measured again, which costs more than it gains. When results
    must be reproducible, it must stay off.
"""

from __future__ import annotations

from collections import Counter

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import limiting, loop_share, short, window
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, Scope

NEEDS = ("trainer", "kernels")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    large_share: float = 0.25
    """Share of the recorded time; at the minimum gain (1.1 times) this is 2.3 % of it."""
    min_equal_share: float = 0.5
    """Share of the steps that must launch the same convolutions."""
    min_steps: int = 2
    """Steps needed to see whether sizes change."""


SPEEDUPS = (1.5, 1.1)
"""Speedups of the convolutions, best and worst: our range, until an experiment measures it."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for convolutions that were not tuned."""
    gpu = limiting(evidence, trainer)
    if not isinstance(gpu, GpuActivity):
        return gpu
    rows = gpu.events.table.filter(pl.col("class") == "conv")
    part = loop_share(evidence, trainer, gpu, int((rows["end"] - rows["start"]).sum()))
    if part < limits.large_share:
        return Clear(f"Convolutions take {units.share(part)} of the recorded time.")
    facts = evidence.get(find_facts, trainer.process)
    if "cudnn_benchmark" not in facts:
        return NotChecked("The setting of cudnn.benchmark is only in recordings by `perfwrap run`.")
    if facts["cudnn_benchmark"] == "True":
        return Clear("torch.backends.cudnn.benchmark is on.")
    if "True" in (facts.get("cudnn_deterministic"), facts.get("deterministic")):
        return Clear("The program requires reproducible results, so cudnn.benchmark stays off.")
    alike = _alike(gpu, rows, limits)
    if alike is None:
        return NotChecked("Too few marked steps to see whether convolution sizes change.")
    if not alike:
        return Clear(
            "The convolutions differ from step to step, so measuring each would cost more than it gains."
        )
    return [_finding(gpu, rows, part)]


def _finding(gpu: GpuActivity, rows: pl.DataFrame, part: float) -> Finding:
    """Return the finding."""
    best, worst = (1.0 - part * (1.0 - 1.0 / factor) for factor in SPEEDUPS)
    spent = rows.group_by("name").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    largest = spent.sort("ns", "name", descending=[True, False])["name"][0]
    return Finding(
        title=f"{units.share(part)} of the GPU's time is convolutions that cuDNN chose by a heuristic.",
        share=1.0 - worst,
        evidence=(
            f"In {window(gpu)}: the same convolutions in each step, and cudnn.benchmark is off.",
            f"The largest: {short(str(largest))}.",
        ),
        options=(
            Option(
                "Set torch.backends.cudnn.benchmark = True before the loop, and keep sizes constant (drop_last=True).",
                (best, worst),
                experiment="cudnn-benchmark",
            ),
        ),
        confidence="inferred",
        scope=Scope.WINDOW,
    )


def _alike(gpu: GpuActivity, rows: pl.DataFrame, limits: Limits) -> bool | None:
    """Return whether most steps launched the same convolutions; None with too few steps."""
    steps = gpu.steps.table.select(pl.col("start").alias("begun"), pl.col("end").alias("until")).sort("begun")
    launched = rows.filter(pl.col("launched").is_not_null()).sort("launched")
    joined = launched.join_asof(steps, left_on="launched", right_on="begun", strategy="backward")
    inside = joined.filter(pl.col("launched") < pl.col("until"))
    counted = inside.group_by("begun", "name").len().sort("name", "len")
    kinds = counted.group_by("begun").agg(pl.struct("name", "len").alias("kinds"))
    if kinds.height < limits.min_steps:
        return None
    each = Counter(str(kind.to_list()) for kind in kinds["kinds"])
    # The first and the last step of a record may be incomplete.
    return each.most_common(1)[0][1] > limits.min_equal_share * kinds.height
