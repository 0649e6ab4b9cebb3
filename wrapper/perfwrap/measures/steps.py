"""The training steps of an unmodified loop, found afterwards from what was recorded."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.timeline.model import Timeline

ENOUGH_STEADY_STEPS = 20
"""Steady steps that a verdict wants; with fewer the diagnosis says how little it rests on."""

STEP_COLUMNS = {
    "index": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "duration": pl.Int64,
    "steady": pl.Boolean,
    "detailed": pl.Boolean,
    "epoch": pl.Int64,
    "samples": pl.Int64,
}


@dataclass(frozen=True)
class Steps:
    """The steps of one trainer, in order and without gaps: a step starts where the one before it ended.

    ``table`` has the columns of STEP_COLUMNS; ``detailed`` is false for steps whose detail was thinned away: they
    are counted, their ends are evenly spaced. ``epoch`` and ``samples`` are null where no loader told them.
    ``anchor`` says in words what ended a step. ``warm_up_end`` is where the first steady step starts and
    ``warm_up_steps`` how many came before it. ``loop_end`` is where the loop ends: the end of the last step, or of
    what follows it when the loop also held such phases between steps (a validation after every epoch).
    """

    table: pl.DataFrame
    anchor: str
    warm_up_end: int
    warm_up_steps: int
    loop_end: int

    @property
    def count(self) -> int:
        """How many steps there were."""
        return self.table.height

    @property
    def steady(self) -> int:
        """How many of them came after the warm-up."""
        return int(self.table["steady"].sum())

    @property
    def few(self) -> bool:
        """Whether there are too few steady steps to rest a verdict on."""
        return self.steady < ENOUGH_STEADY_STEPS

    @property
    def median_ns(self) -> float | None:
        """The median duration of the steady, detailed steps."""
        return self._quantile(0.5)

    @property
    def p99_ns(self) -> float | None:
        """The duration that 99 % of the steady, detailed steps stay below."""
        return self._quantile(0.99)

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second over the steady steps whose batch size is known; None when no loader told it."""
        known = self.table.filter("steady", pl.col("samples").is_not_null())
        seconds = known["duration"].sum() / 1e9
        return float(known["samples"].sum() / seconds) if seconds > 0 else None

    def _quantile(self, share: float) -> float | None:
        """Return a quantile of the steady, detailed steps' durations."""
        durations = self.table.filter("steady", "detailed")["duration"]
        return None if durations.is_empty() else float(durations.quantile(share, "linear") or 0.0)
