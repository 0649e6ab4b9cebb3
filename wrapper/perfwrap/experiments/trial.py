"""All runs of a trial, alternating: the baseline first, and again after each variant, so that a drift is not a gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.experiments import written
from perfwrap.experiments.plan import BASELINE, Planned
from perfwrap.experiments.reading import Reading, read, read_timeline
from perfwrap.experiments.runner import Ended, Settings, run_once
from perfwrap.experiments.variants import Variant, name_of
from perfwrap.experiments.written import Written

LIMIT_FACTOR, MIN_LIMIT_S = 5.0, 120.0
"""A variant may take five times as long as the slowest baseline, and at least two minutes."""

UNCHANGED = Variant(BASELINE)

DIAGNOSED_S = 6.0
"""The first run, which is diagnosed, measures so many seconds of steps: rare events and a second epoch show late."""
MEASURED_S = 1.5
"""Further runs measure so many: most of the time of a short run is its start."""
MAX_EPOCHS_S = 6.0
"""Runs measure whole epochs if these take at most this time: the start of one, with its workers, counts."""

UNEVEN = 1.05
"""Mean over median of steps of which some are much longer, e.g. with a checkpoint or at the start of an epoch."""


class Run(Struct, frozen=True):
    """One run of a trial."""

    name: str
    folder: Path
    reading: Reading
    wall_s: float


class Progress(Protocol):
    """Shows the progress of the trial to the user."""

    def says(self, text: str) -> None:
        """Something to know before the runs that follow."""

    def begins(self, name: str, number: int) -> None:
        """A run begins; ``number`` counts from 1."""

    def ticks(self, seconds: float) -> None:
        """The run has taken so long."""

    def ends(self, run: Run) -> None:
        """The run has ended."""

    def stops(self) -> None:
        """A run that is not timed has ended."""


class BatchSize(Struct, frozen=True):
    """The result of the search: ``largest`` fits, ``smallest`` does not, for that ``reason``.

    ``smallest`` is None if no size failed; then ``reason`` says why larger ones were not tried.
    """

    largest: int
    smallest: int | None
    reason: str
    advised: int
    """The largest size, minus a margin if memory is the limit."""
    fastest: int | None = None
    """The size with the most samples per second; None if that is unknown."""


@dataclass
class Trial:
    """The runs so far."""

    command: Sequence[str]
    folder: Path
    settings: Settings
    progress: Progress
    runs: list[Run] = field(default_factory=list)
    planned: list[Planned] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    """Of the first baseline."""
    found: BatchSize | None = None
    """The result of a search for the largest batch."""
    interrupted: bool = False
    is_brief: bool = False
    """Whether runs measure no more than the steps of the settings, even if these take little time."""
    sample_hz: float = 0.0
    """How often the stacks of the first run are sampled; 0 for never."""
    uneven: bool = False
    """Whether some steps of the baseline are much longer; then every run measures all of its steps."""
    steps: int = 0
    """The steps that further runs measure: more if they are short, and whole epochs if these are."""

    @property
    def baseline(self) -> Run:
        """The first run of the baseline."""
        return self.runs[0]

    def start(self) -> bool:
        """Run the baseline, and return whether it was measured, without which nothing can be compared."""
        try:
            self._run(UNCHANGED)
        except KeyboardInterrupt:
            self.interrupted = True
            return False
        self.uneven = _is_uneven(self.baseline.reading)
        wanted = self.settings.steps
        enough = wanted if self.is_brief else _enough(wanted, self.baseline.reading)
        self.steps = _whole_epochs(enough, self.baseline.reading)
        return self.baseline.reading.status == "measured"

    def measure(self, planned: Sequence[Planned]) -> None:
        """Run each variant once, the baseline after each; ends early when the user interrupts."""
        self._plan(planned)
        try:
            for one in planned:
                if not self.interrupted and not self.failed(one.variant.name):
                    self._alternate(one.variant)
        except KeyboardInterrupt:
            # Between two runs, or while one was read: the results so far are kept.
            self.interrupted = True

    def run_alone(self, planned: Planned, limit_s: float) -> Reading | None:
        """Run a variant without the baseline, for at most so long; None if the user interrupts."""
        self._plan([planned])
        try:
            self._run(planned.variant, limit_s)
        except KeyboardInterrupt:
            self.interrupted = True
        return None if self.interrupted else self.runs[-1].reading

    def mean_wall_s(self, name: str) -> float:
        """Return how long the runs of a variant took on average; of all runs, if it has none."""
        walls = [run.wall_s for run in self.runs if run.name == name] or [run.wall_s for run in self.runs]
        return sum(walls) / len(walls)

    def _plan(self, planned: Sequence[Planned]) -> None:
        known = {one.variant.name for one in self.planned}
        self.planned += [one for one in planned if one.variant.name not in known]

    def _alternate(self, variant: Variant) -> None:
        """Run a variant and then the baseline, unless the variant failed."""
        self._run(variant)
        if not self.interrupted and not self.failed(variant.name):
            self._run(UNCHANGED)

    def failed(self, name: str) -> bool:
        """Return whether a variant ran without being measured, so that it is not run again."""
        return any(run.name == name and run.reading.status != "measured" for run in self.runs)

    def _run(self, variant: Variant, limit_s: float = math.inf) -> None:
        """Run once and read the recording."""
        name, changes = variant.name, variant.changes
        number = len(self.runs) + 1
        self.progress.begins(name, number)
        folder = self.folder / f"{number:02}-{name}"
        settings = replace(self._settings(changes), overlay=variant.overlay)
        limit_s = min(limit_s, self._limit_s(changes))
        ended = run_once(self.command, changes, folder, settings, self.progress.ticks, limit_s)
        self.runs.append(Run(name, folder, self._read(ended, changes), ended.wall_s))
        self.interrupted = ended.how == "interrupted"
        self.progress.ends(self.runs[-1])

    def _settings(self, changes: tuple[str, ...]) -> Settings:
        """Return the settings of the next run: a variant measures the same steps as the baseline if possible."""
        if not self.runs:
            # The precision is that of the median, which does not see what happens every N steps.
            least_s = 0.0 if self.is_brief else DIAGNOSED_S
            return replace(self.settings, precision=0.0, least_s=least_s, sample_hz=self.sample_hz)
        first = self.baseline.reading.first_step
        same = first is not None and not _compiles(changes)
        return replace(
            self.settings,
            steps=self.steps,
            precision=0.0 if self.uneven or self.steps > self.settings.steps else self.settings.precision,
            warm_up=str((first or 1) - 1) if same else self.settings.warm_up,
        )

    def _read(self, ended: Ended, changes: tuple[str, ...]) -> Reading:
        """Return what a run recorded; the first run is also diagnosed."""
        timeline = read_timeline(ended.run)
        if not self.runs and timeline is not None:
            self.diagnosis = diagnose(timeline)
        return read(ended, changes, timeline)

    def _limit_s(self, changes: tuple[str, ...]) -> float:
        """Return the time limit of a run; compiling may take the full timeout."""
        walls = [run.wall_s for run in self.runs if run.name == BASELINE]
        if not walls or _compiles(changes):
            return self.settings.timeout_s
        return min(self.settings.timeout_s, max(MIN_LIMIT_S, LIMIT_FACTOR * max(walls)))


def _compiles(changes: tuple[str, ...]) -> bool:
    """Return whether a variant compiles: it needs another warm-up and more time."""
    return any(name_of(change) == "compile" for change in changes)


def _enough(steps: int, reading: Reading) -> int:
    """Return the steps that take MEASURED_S, at least so many and at most those of the first run."""
    durations = reading.steps.duration_ns
    if not durations.size:
        return steps
    return max(steps, min(durations.size, math.ceil(MEASURED_S * 1e9 / float(durations.mean()))))


def _whole_epochs(steps: int, reading: Reading) -> int:
    """Return the steps of whole epochs that are at least so many, or only so many if that would take too long."""
    if not reading.epoch_steps or not reading.steps.duration_ns.size:
        return steps
    more = math.ceil(steps / reading.epoch_steps) * reading.epoch_steps
    return more if more * float(reading.steps.duration_ns.mean()) <= MAX_EPOCHS_S * 1e9 else steps


def _is_uneven(reading: Reading) -> bool:
    """Return whether the mean step is longer than the median by more than chance."""
    durations = reading.steps.duration_ns
    return bool(durations.size and durations.mean() > UNEVEN * np.median(durations))


def watched(folder: Path, leave_out: Path) -> Callable[[], Written]:
    """Return a function that, called after the runs, returns what they wrote into the working folder."""
    before = written.look(folder, leave_out)
    return lambda: written.compare(before, written.look(folder, leave_out))


def measured(runs: Sequence[Run], name: str) -> Iterator[Run]:
    """Return the runs of one name that have measured steps."""
    return (run for run in runs if run.name == name and run.reading.status == "measured")
