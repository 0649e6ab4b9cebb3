"""How the time of a run that is still going on divides, and what its costliest lines are."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.run.whole_run import AFTER, EXIT, find_whole_run, find_whole_run_of
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

SINCE = "since then"
"""The time of a long run whose records are not kept: it is not divided."""
MAX_LINES = 8


class LineNow(Struct, frozen=True):
    """What a line takes of the training loop; ``until_line`` is the last line of a range of the program's Python."""

    line: Line
    until_line: int | None
    part: str
    share: float


class RunSoFar(Struct, frozen=True):
    """The parts of a run until ``end``, on the clock of its recording, in nanoseconds; they sum to its length."""

    parts: dict[str, int]
    end: int

    def until(self, end: int) -> RunSoFar:
        """Return the same with the time until a later moment, which is not divided."""
        more = max(0, end - self.end)
        return RunSoFar({**self.parts, SINCE: self.parts.get(SINCE, 0) + more}, self.end + more)


def divide_run(evidence: Evidence, trainer: Trainer, over: bool) -> RunSoFar | None:
    """Return the parts until the end of the last step, or of the run if it is over; None if the start is unknown."""
    run = evidence.timeline.run
    if over:
        whole, end = evidence.get(find_whole_run), run.get("end")
        known = whole is not None and isinstance(end, dict)
        return RunSoFar(_present(whole.parts), int(end["monotonic_ns"])) if known and whole and end else None
    last = loop_end(evidence, trainer)
    until = replace(evidence.timeline, run={**run, "end": {"monotonic_ns": last, "wall_ns": 0}})
    whole = Evidence(until).get(find_whole_run_of, trainer)
    if whole is None:
        return None
    # The program goes on: what comes after the last step is not yet known.
    return RunSoFar(
        {part: ns for part, ns in _present(whole.parts).items() if part not in (AFTER, EXIT)}, last
    )


def loop_end(evidence: Evidence, trainer: Trainer) -> int:
    """Return when the last step ended, on the clock of the recording."""
    return int(evidence.get(find_steps, trainer).loop_end)


def find_costly_lines(evidence: Evidence, trainer: Trainer) -> tuple[LineNow, ...]:
    """Return the lines that take most of the training loop, most first; no time belongs to two lines."""
    return costly_lines(evidence.get(find_account, trainer))


def costly_lines(account: Account) -> tuple[LineNow, ...]:
    """Return the costliest lines of an account."""
    length = (pl.col("end") - pl.col("start")).sum().alias("ns")
    key = [pl.col("file", "line", "until_line"), pl.col("part").cast(pl.String)]
    rows = account.segments.filter(pl.col("file").is_not_null() & pl.col("line").is_not_null())
    found = rows.group_by(key).agg(length, pl.col("function").drop_nulls().first())
    top = found.sort("ns", "file", "line", descending=[True, False, False]).head(MAX_LINES)
    total = max(1, account.total_ns)
    return tuple(
        LineNow(
            Line(row["file"], row["line"], row["function"] or ""),
            row["until_line"],
            row["part"],
            row["ns"] / total,
        )
        for row in top.iter_rows(named=True)
    )


def _present(parts: dict[str, int]) -> dict[str, int]:
    """Return the parts that a run has."""
    return {part: ns for part, ns in parts.items() if ns}
