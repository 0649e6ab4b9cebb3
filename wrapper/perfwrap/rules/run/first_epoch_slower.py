"""The steps of the first epoch are slower than those of later epochs.

What it finds
    A median step of the first epoch that takes at least 1.5 times that of the later epochs, and clearly more than that
    of each of them. The first step of each epoch is left out.

Why it costs
    It is paid once: files are read into the page cache, caches of the dataset fill, kernels are tuned and compiled, the
    allocator grows. In a run of few epochs it matters.

How the gain is estimated
    The share is of the whole run: the extra time of the first epoch's steps. It gets smaller in a longer run, so the
    finding is at most minor, and no saving per step is claimed.

How to fix
    If data is the cause: copy it to a local disk, or store it preprocessed. If functions were compiled: keep
    compilation caches between runs. Exclude the first epoch from measurements.

When it is wrong
    When the epochs differ on purpose (a curriculum, a growing sequence length). If other programs take the cores, a
    first epoch that does not wait for data is not checked: they may be the cause.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_events import thread_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.cores_taken import find_other_programs
from perfwrap.measures.run.first_epoch import FirstEpoch, find_first_epoch
from perfwrap.measures.run.start_up import find_start_up
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, Scope

NEEDS = ("steps", "start_up")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_ratio: float = 1.5
    """Factor from which the epoch is slow: shared machines vary by as much (see warm_up.TOLERANCE)."""
    min_ratio_to_each: float = 1.25
    """The same, compared with the slowest later epoch, so that normal variation of epochs does not count."""
    min_data_share: float = 0.5
    """Share of the difference from which data is the cause."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Compare the first epoch with the later ones."""
    found = evidence.get(find_first_epoch, trainer)
    if found is None:
        return Clear("Fewer than two epochs with enough steps were recorded.")
    if found.ratio < limits.min_ratio or found.first_ns < limits.min_ratio_to_each * found.slowest_later_ns:
        return Clear(f"A step of the first epoch takes {units.times(found.ratio)} as long as later ones.")
    start_up = evidence.get(find_start_up, trainer)
    run_ns = start_up.total_ns / start_up.run_share if start_up is not None and start_up.run_share else 0.0
    share = min(1.0, max(0, found.excess_ns) / run_ns) if run_ns else 0.0
    by_data = _by_data(found, limits)
    if not by_data and evidence.get(find_other_programs, trainer) is not None:
        return NotChecked("Other programs used the cores: the first epoch may be slower because of them.")
    return [
        Finding(
            title=f"A step of the first epoch takes {units.duration(found.first_ns)}, {units.times(found.ratio)} as "
            "long as in later epochs.",
            share=share,
            evidence=(
                f"The first epoch took {units.duration(found.excess_ns)} more than the same number of later steps "
                f"({units.counted(found.epochs, 'epoch')} compared).",
                f"Waits for batches took {units.duration(found.first_data_ns)} per step in it and "
                f"{units.duration(found.later_data_ns)} later: "
                + ("most of the difference." if by_data else "not the main difference."),
            ),
            options=(_fix(evidence, trainer, by_data),),
            scope=Scope.RUN,
        )
    ]


def _fix(evidence: Evidence, trainer: Trainer, by_data: bool) -> Option:
    """Return what to change, as far as the cause is known."""
    measure = "Exclude the first epoch from measurements."
    if by_data:
        return Option("Copy the data to a local disk, or store it preprocessed.", (1.0, 1.0), details=measure)
    if not thread_spans(evidence.timeline, trainer).filter(pl.col("operation") == "compile").is_empty():
        return Option("Keep compilation caches between runs.", (1.0, 1.0), details=measure)
    return Option(measure, (1.0, 1.0))


def _by_data(found: FirstEpoch, limits: Limits) -> bool:
    """Return whether waits for batches are most of the difference."""
    more = found.first_ns - found.later_ns
    return found.first_data_ns - found.later_data_ns >= limits.min_data_share * more
