"""The results of a trial: a row for each variant with gain or noise, the loss, the best one, and the prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfwrap import units
from perfwrap.errors import PerfwrapError
from perfwrap.experiments.changes import CEILING, FIX
from perfwrap.experiments.edits import Edit, Site
from perfwrap.experiments.plan import BASELINE, Planned
from perfwrap.experiments.reading import Reading, Status, Steps
from perfwrap.experiments.standstills import without_standstills
from perfwrap.experiments.statistics import Ratio, TimedRun, disturbed, ratio
from perfwrap.experiments.trial import Run, measured
from perfwrap.experiments.variants import JOINT, Variant, name_of, parse
from perfwrap.rules.model import MIN_REPORTED_SHARE

Judgement = Literal["gain", "slower", "noise", "not repeated", "not measured"]

MIN_COMMON_STEPS = 20
"""Runs are compared over the steps that all of them measured, if these are at least this many."""

WIDER = 1.6
"""The factor by which the interval of the logarithm is wider while runs are still added: ten looks at 95 % intervals
would call one of five variants without an effect different."""

LOSS_BAND = 0.5
"""Relative deviation of the loss from the baseline that gives no warning: the loss is that of one batch, and other
batches, or another order, change it by tens of per cent. The warning is about wrong results."""
ROUGH_LOSS_BAND = 1.0
"""The same for losses of different steps: the loss of one batch is easily twice that of another."""
LOSS_SPREADS = 3.0
"""The deviation may also be this many times the spread of the baseline runs."""


class Row(Struct, frozen=True):
    """One variant, or the baseline, whose ``ratio`` is None."""

    name: str
    kind: str
    status: Status
    judgement: Judgement
    reason: str = ""
    median_ns: float | None = None
    samples_per_s: float | None = None
    ratio: Ratio | None = None
    """The time of a step (of a sample, if batch sizes differ) over that of the baseline."""
    loss: float | None = None
    loss_warning: str = ""
    peak_bytes: float | None = None
    steps: int = 0
    runs: int = 0
    left_out: int = 0
    """Runs that were measured but do not count, because something else on the machine disturbed them."""
    rule: str = ""
    predicted: tuple[float, float] | None = None
    sites: Mapping[str, tuple[Site, ...]] = {}
    """Where each change was made."""
    edit: Edit = Edit()
    """Filled in by ``edits.edit_for``, once for the report."""
    skipped_writes: int = 0
    folder: Path | None = None

    @property
    def prediction_error(self) -> float | None:
        """The distance of the measured ratio from the predicted range; 0 inside, negative if faster."""
        if self.predicted is None or self.ratio is None:
            return None
        low, high = self.predicted
        return min(0.0, self.ratio.value - low) + max(0.0, self.ratio.value - high)


def rows(runs: Sequence[Run], planned: Sequence[Planned]) -> tuple[Row, ...]:
    """Return the baseline's row and one for each variant that was run."""
    warm = _without_the_cold(runs)
    odd = _disturbed(warm)
    counted = [run for run in warm if not any(run is other for other in odd)]
    variants = [Planned(Variant(BASELINE)), *(one for one in planned if _readings(runs, one.variant.name))]
    return tuple(
        replace(
            _row(counted, one),
            left_out=sum(run.name == one.variant.name for run in odd),
            folder=next(run.folder for run in runs if run.name == one.variant.name),
        )
        for one in variants
    )


def is_clear(row: Row) -> bool:
    """Return whether more runs of a variant would hardly change its result.

    It was not measured, it is clearly a gain or a loss, or the whole interval is a change that is too small to matter.
    Because this is asked after every run, a gain must be clearer than in one look: by a wider interval.
    """
    if row.status != "measured":
        return True
    found = row.ratio
    if found is None or found.low is None or found.high is None:
        return False
    if row.judgement in ("gain", "slower"):
        is_gain = row.judgement == "gain"
        wider: float = found.value * ((found.high if is_gain else found.low) / found.value) ** WIDER
        return wider < 1 if is_gain else wider > 1
    return found.low > 1 - MIN_REPORTED_SHARE and found.high < 1 + MIN_REPORTED_SHARE


def combination(rows: Sequence[Row]) -> Variant | None:
    """Return the combination of the fixes that were faster: the best value of each change; None for less than two."""
    chosen: dict[str, str] = {}
    for row in sorted(_gains(rows), key=_value):
        # A variant of several changes is used with all of them or not at all.
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
    """Return the fix or combination of fixes with the largest gain; None without a gain."""
    return min(_gains(rows), key=_value, default=None)


def _gains(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that are a clear gain and do not change the result of the program."""
    return [row for row in rows if row.kind == FIX and row.judgement == "gain" and row.name != BASELINE]


def _value(row: Row) -> float:
    """Return the ratio of a row that has one."""
    return row.ratio.value if row.ratio is not None else math.inf


def _row(runs: Sequence[Run], planned: Planned) -> Row:
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
        sites=_sites(last, planned.variant),
        skipped_writes=last.skipped_writes,
    )


def _without_the_cold(runs: Sequence[Run]) -> list[Run]:
    """Return the runs without the first one, which filled the caches of the system, if another can replace it."""
    return list(runs if len(list(measured(runs, BASELINE))) < 2 else runs[1:])


def _disturbed(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that something else on the machine disturbed."""
    good = [run for run in runs if run.reading.status == "measured"]
    steps = without_standstills([run.reading.steps for run in good])
    per_sample = _batches_differ(steps) if steps else False
    timed = [TimedRun(run.name, _times(one, per_sample)) for run, one in zip(good, steps, strict=True)]
    return [good[place] for place in disturbed(timed)]


def _readings(runs: Sequence[Run], name: str) -> list[Reading]:
    """Return what the runs of one name recorded."""
    return [run.reading for run in runs if run.name == name]


def _sites(reading: Reading, variant: Variant) -> dict[str, tuple[Site, ...]]:
    """Return where each change was made."""
    return {
        change: reading.made[change].sites if change in reading.made else () for change in variant.changes
    }


def _ratio(runs: Sequence[Run], name: str) -> Ratio | None:
    """Return the ratio of a variant over the same steps of the loop in all runs, if they have common steps.

    Then work that happens every N steps (a checkpoint, an epoch) has the same weight in each run.
    """
    chosen = [run for which in (name, BASELINE) for run in measured(runs, which)]
    first = max(int(run.reading.steps.number[0]) for run in chosen)
    last = min(int(run.reading.steps.number[-1]) for run in chosen)
    common = {id(run): run.reading.steps.between(first, last) for run in chosen}
    if min(steps.number.size for steps in common.values()) < MIN_COMMON_STEPS:
        common = {id(run): run.reading.steps for run in chosen}
    per_sample = _batches_differ(list(common.values()))
    good = [run for run in runs if run.reading.status == "measured"]
    steps = without_standstills([common.get(id(run), run.reading.steps) for run in good])
    timed = [TimedRun(run.name, _times(one, per_sample)) for run, one in zip(good, steps, strict=True)]
    return ratio(timed, name, BASELINE)


def _batches_differ(steps: Sequence[Steps]) -> bool:
    """Return whether the batch sizes of the runs differ, so that steps cannot be compared."""
    if not all((one.samples > 0).all() for one in steps):
        return False
    sizes = [float(np.median(one.samples)) for one in steps]
    return max(sizes) != min(sizes)


def _times(steps: Steps, per_sample: bool) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the durations of the steps, or of each sample in them."""
    duration = steps.duration_ns.astype(np.float64)
    return duration / np.maximum(1, steps.samples) if per_sample else duration


def _samples_per_s(steps: Sequence[Steps]) -> float | None:
    """Return samples per second over the steps with a known batch size."""
    known = [(one.samples[one.samples > 0].sum(), one.duration_ns[one.samples > 0].sum()) for one in steps]
    samples, duration = sum(int(pair[0]) for pair in known), sum(int(pair[1]) for pair in known)
    return samples / duration * 1e9 if duration else None


def _judgement(found: Ratio | None) -> Judgement:
    """Return what a ratio means: for a gain, the whole interval is below 1, and the gain is not tiny."""
    if found is None:
        return "not measured"
    if found.low is None or found.high is None:
        return "not repeated"
    if found.high < 1 and found.value <= 1 - MIN_REPORTED_SHARE:
        return "gain"
    return "slower" if found.low > 1 and found.value >= 1 + MIN_REPORTED_SHARE else "noise"


def _loss_warning(runs: Sequence[Run], good: Sequence[Reading]) -> str:
    """Return a warning if the loss is NaN, or differs from the baseline.

    Losses of the same step are compared with a narrow band, those of different steps with a wide one.
    """
    usual = [run.reading for run in measured(runs, BASELINE) if run.reading.loss is not None]
    for reading in good:
        if reading.loss is None or not usual:
            continue
        same = [other for other in usual if other.last_step == reading.last_step]
        losses = [other.loss for other in same or usual if other.loss is not None]
        if math.isnan(reading.loss) and not any(math.isnan(loss) for loss in losses):
            return "the loss is NaN"
        middle, spread = float(np.median(losses)), max(losses) - min(losses)
        allowed = max((LOSS_BAND if same else ROUGH_LOSS_BAND) * abs(middle), LOSS_SPREADS * spread)
        if abs(reading.loss - middle) > allowed:
            return f"the loss is {units.number(reading.loss, 3)}, the baseline's {units.number(middle, 3)}"
    return ""
