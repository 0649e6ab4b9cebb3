"""The steps of the first epoch are slower than those of the later ones.

What it finds
    A median step of the first epoch that takes 1.5 times that of the later epochs or more, and clearly more than
    that of each of them. The first step of each epoch is left out.

Why it costs
    It is paid once: files are read into the page cache, caches of the data set fill, kernels are tuned and compiled,
    the allocator grows. A run of few epochs pays it nearly always.

How the saving is worked out
    The share is of the whole run, what the first epoch's steps took more than as many later ones; a longer run dilutes
    it, so it is never worse than minor, and no saving per step is claimed.

How to fix
    Where it is the data: stage it on a local disk, store it prepared. Else keep compilation caches between runs. When
    timing anything, leave the first epoch out.

When it is wrong
    When the epochs differ on purpose (a curriculum, a growing sequence length).
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.first_epoch import FirstEpoch
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding

NEEDS = ("steps", "start_up")

SLOWER = 1.5
"""Factor from which an epoch is slow: machines that are shared drift by as much (see warm_up.TOLERANCE)."""
THAN_EACH = 1.25
"""The same beside the slowest later epoch, so that a mere spread of epochs says nothing."""
MOSTLY_DATA = 0.5
"""Of the difference, from which the data explain it."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Compare the first epoch with the later ones."""
    found = evidence.first_epoch(trainer)
    if found is None:
        return Clear("No two epochs of enough steps were recorded to be compared.")
    if found.ratio < SLOWER or found.first_ns < THAN_EACH * found.slowest_later_ns:
        return Clear(f"A step of the first epoch takes {units.times(found.ratio)} one of the later epochs.")
    start_up = evidence.start_up(trainer)
    run_ns = start_up.total_ns / start_up.run_share if start_up is not None and start_up.run_share else 0.0
    share = min(1.0, max(0, found.excess_ns) / run_ns) if run_ns else 0.0
    by_data = _by_data(found)
    fix = (
        "Stage the data on a local disk, or store it prepared."
        if by_data
        else "Keep compilation caches between runs."
    )
    return [
        Finding(
            title=f"A step of the first epoch takes {units.duration(found.first_ns)}, {units.times(found.ratio)} one "
            "of the later epochs.",
            share=share,
            saving=(1.0, 1.0),
            evidence=(
                f"The first epoch took {units.duration(found.excess_ns)} more than as many later steps "
                f"({units.counted(found.epochs, 'epoch')} compared).",
                f"Waiting for a batch took {units.duration(found.first_data_ns)} per step in it, and "
                f"{units.duration(found.later_data_ns)} later: "
                + ("that is most of the difference." if by_data else "that is not the difference."),
            ),
            advice=f"{fix} Leave the first epoch out when timing anything.",
            of_run=True,
        )
    ]  # fmt: skip


def _by_data(found: FirstEpoch) -> bool:
    """Say whether waits for batches make most of the difference."""
    more = found.first_ns - found.later_ns
    return found.first_data_ns - found.later_data_ns >= MOSTLY_DATA * more
