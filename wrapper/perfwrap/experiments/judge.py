"""What the runs of a trial mean: a row for each variant, gain or noise, the loss, the best, and what was predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from perfwrap import units
from perfwrap.errors import PerfwrapError
from perfwrap.experiments.changes import CEILING, FIX
from perfwrap.experiments.edits import Edit, Site, edit_for
from perfwrap.experiments.plan import BASELINE, Planned
from perfwrap.experiments.reading import Reading, Status, Steps
from perfwrap.experiments.standstills import without_standstills
from perfwrap.experiments.statistics import Ratio, Turn, ratio
from perfwrap.experiments.trial import Run, measured
from perfwrap.experiments.variants import JOINT, Variant, name_of, parse
from perfwrap.rules.model import QUIET_SHARE

Judgement = Literal["gain", "slower", "noise", "not repeated", "not measured"]

LEAST_COMMON_STEPS = 20
"""Runs are compared over the steps that all of them measured, if these are at least so many."""

LOSS_BAND = 0.5
"""By so much of itself the loss may leave what the baseline's repeats ended at: it is that of one batch, and other
batches, or the same in another order, differ by tens of per cent. What this warns of is nonsense."""
ROUGH_LOSS_BAND = 1.0
"""The same where the losses are of different steps: one batch is easily twice as hard as another."""
LOSS_SPREADS = 3.0
"""And by so many times what those repeats differ among themselves."""


@dataclass(frozen=True)
class Row:
    """One variant, or the baseline, whose ``ratio`` is None."""

    name: str
    kind: str
    status: Status
    judgement: Judgement
    reason: str = ""
    median_ns: float | None = None
    samples_per_s: float | None = None
    ratio: Ratio | None = None
    """The time of a step (of a sample, where batches differ) over the baseline's."""
    loss: float | None = None
    loss_warning: str = ""
    peak_bytes: float | None = None
    steps: int = 0
    runs: int = 0
    rule: str = ""
    predicted: tuple[float, float] | None = None
    edit: Edit = Edit()
    skipped_writes: int = 0
    folder: Path | None = None

    @property
    def prediction_error(self) -> float | None:
        """How far the measured ratio lies outside of the predicted range; 0 inside, below 0 where more was gained."""
        if self.predicted is None or self.ratio is None:
            return None
        low, high = self.predicted
        return min(0.0, self.ratio.value - low) + max(0.0, self.ratio.value - high)


def rows(runs: Sequence[Run], planned: Sequence[Planned], folder: Path) -> tuple[Row, ...]:
    """Return the baseline's row and one for each variant that was run; ``folder`` is where the program runs."""
    baseline = _row(runs, Planned(Variant(BASELINE)), folder)
    return (baseline, *(_row(runs, one, folder) for one in planned if _readings(runs, one.variant.name)))


def combination(rows: Sequence[Row]) -> Variant | None:
    """Return the fixes that gained, together: of each change its best; None where that is not more than one."""
    chosen: dict[str, str] = {}
    for row in sorted(_gains(rows), key=_value):
        # A variant that is itself several takes part with all of them or not at all.
        if not any(name_of(change) in chosen for change in row.name.split(JOINT)):
            chosen |= {name_of(change): change for change in row.name.split(JOINT)}
    name = JOINT.join(chosen.values())
    if len(chosen) < 2 or any(set(row.name.split(JOINT)) == set(chosen.values()) for row in rows):
        return None
    try:
        return parse(name)
    except PerfwrapError:
        return None


def best(rows: Sequence[Row]) -> Row | None:
    """Return the fix, or the combination of fixes, that gained most; None where none did."""
    return min(_gains(rows), key=_value, default=None)


def _gains(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that are a clear gain and keep the meaning of the program."""
    return [row for row in rows if row.kind == FIX and row.judgement == "gain" and row.name != BASELINE]


def _value(row: Row) -> float:
    """Return the ratio of a row that has one."""
    return row.ratio.value if row.ratio is not None else math.inf


def _row(runs: Sequence[Run], planned: Planned, folder: Path) -> Row:
    """Return the row of one variant."""
    name = planned.variant.name
    readings = _readings(runs, name)
    good = [reading for reading in readings if reading.status == "measured"]
    last = good[-1] if good else readings[-1]
    found = None if name == BASELINE or not good else _ratio(runs, name)
    steps = [reading.steps for reading in good]
    return Row(
        name=name,
        kind=FIX if name == BASELINE else planned.variant.kind,
        status=last.status,
        judgement=_judgement(found),
        reason=last.reason,
        median_ns=float(np.median(np.concatenate([one.duration_ns for one in steps]))) if steps else None,
        samples_per_s=_samples_per_s(steps),
        ratio=found,
        loss=last.loss,
        loss_warning="" if name == BASELINE or planned.variant.kind == CEILING else _loss_warning(runs, good),
        peak_bytes=max((one.peak_bytes for one in good if one.peak_bytes is not None), default=None),
        steps=sum(one.number.size for one in steps),
        runs=len(good),
        rule=planned.rule,
        predicted=planned.predicted,
        edit=Edit() if name == BASELINE else edit_for(_sites(last, planned.variant), folder),
        skipped_writes=last.skipped_writes,
        folder=next(run.folder for run in runs if run.name == name),
    )


def _readings(runs: Sequence[Run], name: str) -> list[Reading]:
    """Return what the runs of one name recorded."""
    return [run.reading for run in runs if run.name == name]


def _sites(reading: Reading, variant: Variant) -> dict[str, tuple[Site, ...]]:
    """Return where each change was made."""
    return {
        change: reading.made[change].sites if change in reading.made else () for change in variant.changes
    }


def _ratio(runs: Sequence[Run], name: str) -> Ratio | None:
    """Return the ratio of a variant: over the same steps of the loop in all runs, as far as they have them.

    What comes back every so many steps (a checkpoint, an epoch) then weighs the same in each.
    """
    chosen = [run for which in (name, BASELINE) for run in measured(runs, which)]
    first = max(int(run.reading.steps.number[0]) for run in chosen)
    last = min(int(run.reading.steps.number[-1]) for run in chosen)
    common = {id(run): run.reading.steps.between(first, last) for run in chosen}
    if min(steps.number.size for steps in common.values()) < LEAST_COMMON_STEPS:
        common = {id(run): run.reading.steps for run in chosen}
    per_sample = _batches_differ(list(common.values()))
    good = [run for run in runs if run.reading.status == "measured"]
    steps = without_standstills([common.get(id(run), run.reading.steps) for run in good])
    turns = [Turn(run.name, _times(one, per_sample)) for run, one in zip(good, steps, strict=True)]
    return ratio(turns, name, BASELINE)


def _batches_differ(steps: Sequence[Steps]) -> bool:
    """Say whether steps of some runs have batches of another size, so that steps cannot be compared."""
    if not all((one.samples > 0).all() for one in steps):
        return False
    sizes = [float(np.median(one.samples)) for one in steps]
    return max(sizes) != min(sizes)


def _times(steps: Steps, per_sample: bool) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return how long the steps took, or each sample in them."""
    duration = steps.duration_ns.astype(np.float64)
    return duration / np.maximum(1, steps.samples) if per_sample else duration


def _samples_per_s(steps: Sequence[Steps]) -> float | None:
    """Return samples per second over the steps whose batch is known."""
    known = [(one.samples[one.samples > 0].sum(), one.duration_ns[one.samples > 0].sum()) for one in steps]
    samples, duration = sum(int(pair[0]) for pair in known), sum(int(pair[1]) for pair in known)
    return samples / duration * 1e9 if duration else None


def _judgement(found: Ratio | None) -> Judgement:
    """Return what a ratio means: a gain lies below 1 with its whole interval, and is more than a trifle."""
    if found is None:
        return "not measured"
    if found.low is None or found.high is None:
        return "not repeated"
    if found.high < 1 and found.value <= 1 - QUIET_SHARE:
        return "gain"
    return "slower" if found.low > 1 and found.value >= 1 + QUIET_SHARE else "noise"


def _loss_warning(runs: Sequence[Run], good: Sequence[Reading]) -> str:
    """Return a warning where the loss is no number, or another than the baseline's ever was.

    Losses of the same step are compared closely, those of different steps, which had different batches, roughly.
    """
    usual = [run.reading for run in measured(runs, BASELINE) if run.reading.loss is not None]
    for reading in good:
        if reading.loss is None or not usual:
            continue
        same = [other for other in usual if other.last_step == reading.last_step]
        losses = [other.loss for other in same or usual if other.loss is not None]
        if math.isnan(reading.loss) and not any(math.isnan(loss) for loss in losses):
            return "the loss is no number (NaN)"
        middle, spread = float(np.median(losses)), max(losses) - min(losses)
        allowed = max((LOSS_BAND if same else ROUGH_LOSS_BAND) * abs(middle), LOSS_SPREADS * spread)
        if abs(reading.loss - middle) > allowed:
            return f"the loss is {units.number(reading.loss, 3)}, the baseline's {units.number(middle, 3)}"
    return ""
