"""What the rules about lines that copy to a GPU share."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from perfwrap import units
from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers.transfers import TransferLine, find_transfers
from perfwrap.rules.model import MIN_REPORTED_SHARE, Clear, NotChecked, place
from perfwrap.rules.on_gpu import ON_CPU, UNKNOWN_IDLE, idle_share, stayed_on_cpu

PINNED_SHARE = 0.5
"""Share of a line's calls from which its memory counts as pinned: the first batch may differ."""
NON_BLOCKING_SHARE = 0.5
"""Share of a line's calls with non_blocking from which it counts as non-blocking."""


def costly_copies(
    evidence: Evidence, trainer: Trainer, chosen: Callable[[TransferLine], bool], kind: str
) -> list[tuple[TransferLine, float]] | Clear | NotChecked:
    """Return the chosen lines with the maximum share that each costs, or why there is nothing to report.

    The host's time in a copy costs something only while the GPU is idle.
    """
    if stayed_on_cpu(evidence, trainer):
        return ON_CPU
    lines = [
        line for line in evidence.get(find_transfers, trainer) if line.direction == "to_gpu" and chosen(line)
    ]
    slow = [line for line in lines if line.share >= MIN_REPORTED_SHARE]
    if not slow:
        return Clear(f"{kind} take {units.share(sum(line.share for line in lines))} of the loop.")
    idle = idle_share(evidence, trainer)
    if idle is None:
        return NotChecked(
            f"{kind} at {place(slow[0].where, 'one line')} take {units.share(slow[0].share)} of the loop; "
            f"{UNKNOWN_IDLE}."
        )
    if idle < MIN_REPORTED_SHARE:
        return Clear(f"{kind} take time on the host, but the GPU is almost never idle.")
    return [(line, min(line.share, idle)) for line in slow]


def amount(line: TransferLine) -> str:
    """Return how much a line copies, how often and how long it takes."""
    size = "an unknown amount" if line.bytes_per_step is None else units.size(line.bytes_per_step)
    return (
        f"{units.number(line.per_step)} copies per step, {size}, taking "
        f"{units.duration(line.time_ns_per_step)} of the host per step."
    )


def inside(where: Line | None, name: str) -> pl.Expr:
    """Select the segments of the account inside the copies of one line."""
    own = (pl.col("part") == "transfer") & (pl.col("name") == name)
    if where is None:
        return own & pl.col("file").is_null()
    return own & (pl.col("file") == where.file) & (pl.col("line") == where.line)


def on_lines(*lines: Line) -> pl.Expr:
    """Select the segments of the account inside any copy on these lines."""
    here = [(pl.col("file") == line.file) & (pl.col("line") == line.line) for line in lines]
    return (pl.col("part") == "transfer") & pl.any_horizontal(here)
