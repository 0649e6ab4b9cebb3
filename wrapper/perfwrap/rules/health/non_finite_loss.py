"""A value that the program read became NaN or infinite.

What it finds
    The first NaN or infinity that the training thread read from a tensor (.item(), .tolist(), float(t), print(t)), with
    its step and line.

Why it costs
    A loss that is not finite trains nothing: every later step is wasted.

How the gain is estimated
    No saving per step is claimed. The share is that of the steps between the first and the last such value, times the
    share of non-finite values on that line: time that trained nothing.

How to fix
    Lower the learning rate, use warm-up, clip gradients, check logarithms and divisions by zero; with float16 use a
    GradScaler or bfloat16. torch.autograd.set_detect_anomaly(True) names the operation (slow).

When it is wrong
    When the value is infinite on purpose: a mask, the start of a running minimum.
"""

from __future__ import annotations

import math

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.lines import line_of
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.non_finite import find_non_finite
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, Option, locate, place

NEEDS = ("trainer", "syncs", "values")


class Limits(Struct, frozen=True):
    """This rule has no thresholds."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for the first value that is not finite."""
    marks = evidence.get(find_non_finite).filter(pl.col("track").is_in([trainer.thread, trainer.process]))
    if marks.is_empty():
        return Clear("Every value that the program read was finite.")
    first = marks.row(0, named=True)
    line = line_of(first["file"], first["line"], first["function"])
    ends = evidence.get(find_steps, trainer).table["end"]
    done = int((ends <= first["time"]).sum())
    kind = "NaN" if first["value"] is None or math.isnan(first["value"]) else "infinite"
    return [
        Finding(
            title=f"A value read at {place(line, 'one line')} became {kind} after {units.count(done)} of "
            f"{units.counted(ends.len(), 'step')}.",
            share=_lost(evidence, trainer, marks, ends),
            evidence=(
                f"{units.counted(ends.len() - done, 'step')} ran after it; "
                f"{units.counted(marks.height, 'such value')} recorded in total.",
            ),
            options=(
                Option("Lower or warm up the learning rate, or clip gradients.", (1.0, 1.0)),
                Option("Find the operation with torch.autograd.set_detect_anomaly(True).", (1.0, 1.0)),
                Option("Stop the training at the first such value.", (1.0, 1.0)),
            ),
            location=locate(line),
            health=True,
        )
    ]


def _lost(evidence: Evidence, trainer: Trainer, marks: pl.DataFrame, ends: pl.Series) -> float:
    """Return the share of the steps that are known to have trained with such a value.

    They are between the first and the last one, and only the share of reads on the same line that were not finite
    counts.
    """
    first, last = marks["time"][0], marks["time"][-1]
    between = int(((ends > first) & (ends <= last)).sum())
    same_line = pl.col("file").eq_missing(marks["file"][0]) & pl.col("line").eq_missing(marks["line"][0])
    spans = evidence.timeline.spans.filter(pl.col("track") == trainer.thread, pl.col("operation") == "sync")
    reads = spans.filter(same_line, pl.col("start").is_between(first, last)).height
    bad = marks.filter(same_line).height
    return between / max(1, ends.len()) * (bad / max(bad, reads, 1))
