"""cuDNN guesses the fastest convolution instead of trying.

What it finds
    Convolutions that take 25 % or more of the time in a record of the GPU's kernels, the same ones in each step, while
    torch.backends.cudnn.benchmark is off.

Why it costs
    With it cuDNN (MIOpen on AMD) tries all its algorithms once for each size and keeps the fastest; without it a
    heuristic chooses.

How the saving is worked out
    Inferred: the convolutions become 1.1 to 1.5 times as fast. The share of the finding is what goes at 1.1 times.

How to fix
    torch.backends.cudnn.benchmark = True before the loop.

When it is wrong
    Where sizes change from step to step each new one is tried again, which costs more than it gains. Where results must
    be the same each time it must stay off.
"""

from __future__ import annotations

from collections import Counter

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded, short, window
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

LARGE_SHARE = 0.25
"""Of the recorded time: at the least gain (1.1 times) that is 2.3 % of it."""

FASTER = (1.5, 1.1)
"""How many times as fast convolutions become, at best and at worst: a range of ours, until an experiment tells."""

MOSTLY = 0.5
"""Of the steps, which must be alike."""
LEAST_STEPS = 2
"""Steps that must be alike to say that sizes do not change."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for convolutions that were not tuned."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    rows = gpu.events.table.filter(pl.col("class") == "conv")
    part = min(1.0, int((rows["end"] - rows["start"]).sum()) / gpu.window_ns)
    if part < LARGE_SHARE:
        return Clear(f"Convolutions take {units.share(part)} of the recorded time.")
    facts = evidence.facts(trainer.process)
    if "cudnn_benchmark" not in facts:
        return NotChecked(
            "Whether cudnn.benchmark is on is told only where `perfwrap run` recorded the program."
        )
    if facts["cudnn_benchmark"] == "True":
        return Clear("torch.backends.cudnn.benchmark is on.")
    if "True" in (facts.get("cudnn_deterministic"), facts.get("deterministic")):
        return Clear("The program wants the same results each time, so cudnn.benchmark stays off.")
    alike = _alike(gpu, rows)
    if alike is None:
        return NotChecked("Too few steps were marked to tell whether the sizes of convolutions change.")
    if not alike:
        return Clear(
            "The convolutions differ from step to step, so trying each would cost more than it gains."
        )
    return [_finding(gpu, rows, part)]


def _finding(gpu: GpuActivity, rows: pl.DataFrame, part: float) -> Finding:
    """Return the finding."""
    best, worst = (1.0 - part * (1.0 - 1.0 / factor) for factor in FASTER)
    spent = rows.group_by("name").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    largest = spent.sort("ns", "name", descending=[True, False])["name"][0]
    return Finding(
        title=f"{units.share(part)} of the GPU's time goes to convolutions that cuDNN chose without trying.",
        share=1.0 - worst,
        saving=(best, worst),
        evidence=(
            f"Seen in {window(gpu)}: the same convolutions in each step, and cudnn.benchmark is off.",
            f"The largest of them: {short(str(largest))}.",
        ),
        advice="Set torch.backends.cudnn.benchmark = True before the loop, and keep sizes alike (drop_last=True).",
        experiment="cudnn-benchmark",
        confidence="inferred",
        of_window=True,
    )


def _alike(gpu: GpuActivity, rows: pl.DataFrame) -> bool | None:
    """Say whether most steps launched the same convolutions; None with too few steps."""
    steps = gpu.steps.table.select(pl.col("start").alias("begun"), pl.col("end").alias("until")).sort("begun")
    launched = rows.filter(pl.col("launched").is_not_null()).sort("launched")
    joined = launched.join_asof(steps, left_on="launched", right_on="begun", strategy="backward")
    inside = joined.filter(pl.col("launched") < pl.col("until"))
    counted = inside.group_by("begun", "name").len().sort("name", "len")
    kinds = counted.group_by("begun").agg(pl.struct("name", "len").alias("kinds"))
    if kinds.height < LEAST_STEPS:
        return None
    each = Counter(str(kind.to_list()) for kind in kinds["kinds"])
    # The first and the last step of a record may be cut.
    return each.most_common(1)[0][1] > MOSTLY * kinds.height
