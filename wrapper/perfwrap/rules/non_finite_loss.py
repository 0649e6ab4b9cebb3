"""A value that the program read became NaN or infinite.

What it finds
    The first NaN or infinity that the training thread read from a tensor (.item(), .tolist(), float(t),
    print(t)), with its step and line.

Why it costs
    A loss that is not finite trains nothing: every step after it is wasted.

How the saving is worked out
    No saving per step is claimed. The report says how many steps ran after the first such value.

How to fix
    Lower the learning rate, warm it up, clip gradients, look for logarithms and divisions of zero; with
    float16 use a GradScaler or bfloat16. torch.autograd.set_detect_anomaly(True) names the operation
    (slowly).

When it is wrong
    When the value is meant to be infinite: a mask, the start of a running minimum.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import line_of
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, locate, place

NEEDS = ("trainer", "syncs")
VERDICT = None


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for the first value that is not finite."""
    marks = evidence.non_finite.filter(pl.col("track").is_in([trainer.thread, trainer.process]))
    if marks.is_empty():
        return Clear("Every value that the program read was finite.")
    first = marks.row(0, named=True)
    line = line_of(first["file"], first["line"], first["function"])
    steps = evidence.steps(trainer).table
    done = steps.filter(pl.col("end") <= first["time"]).height
    later = steps.height - done
    kind = "NaN" if first["value"] is None or first["value"] != first["value"] else "infinite"
    return [
        Finding(
            title=f"A value read at {place(line, 'one line')} became {kind} after {units.count(done)} of "
            f"{units.counted(steps.height, 'step')}.",
            share=0.0,
            saving=(1.0, 1.0),
            evidence=(
                f"{units.counted(later, 'step')} ran after it; {units.counted(marks.height, 'such value')} "
                "in all were noted.",
            ),
            advice="Stop at the first such value. Lower or warm up the learning rate, clip gradients, and "
            "find the operation with torch.autograd.set_detect_anomaly(True).",
            location=locate(line),
            health=True,
        )
    ]
