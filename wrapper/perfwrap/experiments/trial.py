"""All runs of a trial, in turns: the baseline first, and again after each variant, so that a drift fakes no gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from perfwrap.diagnosis import Diagnosis, diagnose
from perfwrap.experiments import written
from perfwrap.experiments.plan import BASELINE, Planned, repeats_for, runs_for
from perfwrap.experiments.reading import Reading, read, read_timeline
from perfwrap.experiments.runner import Ended, Settings, run_once
from perfwrap.experiments.variants import Variant, name_of
from perfwrap.experiments.written import Written

LIMIT_FACTOR, LEAST_LIMIT_S = 5.0, 120.0
"""A variant may take five times as long as the slowest baseline, and two minutes in any case."""

UNEVEN = 1.05
"""Mean over median of steps of which a few take much longer: with a checkpoint, an epoch's start, a collection."""


@dataclass(frozen=True)
class Run:
    """One run of a trial, in its place in the order."""

    name: str
    folder: Path
    reading: Reading
    wall_s: float


class Progress(Protocol):
    """Tells the user how far the trial is."""

    def begins(self, name: str, number: int, of: int) -> None:
        """A run begins; ``of`` is how many there will be, as far as is known."""

    def ticks(self, seconds: float) -> None:
        """It goes on."""

    def ends(self, run: Run) -> None:
        """It has ended."""


@dataclass(frozen=True)
class BatchSize:
    """The largest batch that was found: ``largest`` fits, ``smallest`` does not, for that ``reason``."""

    largest: int
    smallest: int | None
    reason: str
    advised: int
    """The largest, less a margin where memory is the limit."""


@dataclass
class Trial:
    """What has been run so far."""

    command: Sequence[str]
    folder: Path
    settings: Settings
    progress: Progress
    runs: list[Run] = field(default_factory=list)
    planned: list[Planned] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    """Of the first baseline."""
    found: BatchSize | None = None
    """The largest batch, where that was searched for."""
    interrupted: bool = False
    expected: int = 1
    """How many runs there will be."""

    uneven: bool = False
    """Whether some steps of the baseline take much longer: then every run measures all of its steps."""

    @property
    def baseline(self) -> Run:
        """The first run of the baseline."""
        return self.runs[0]

    def start(self) -> bool:
        """Run the baseline, and say whether it was measured: nothing can be compared without it."""
        try:
            self._run(BASELINE, ())
        except KeyboardInterrupt:
            self.interrupted = True
            return False
        self.uneven = _is_uneven(self.baseline.reading)
        return self.baseline.reading.status == "measured"

    def measure(self, planned: Sequence[Planned], repeats: int | None = None) -> None:
        """Run variants, the baseline after each; ends early when the user interrupts."""
        self.planned += planned
        rounds = repeats if repeats is not None else repeats_for(len(planned))
        self.expected = len(self.runs) + runs_for(len(planned), rounds) - 1
        try:
            for one in [one for _ in range(rounds) for one in planned]:
                if not self.interrupted and not self.failed(one.variant.name):
                    self._take_turn(one.variant)
        except KeyboardInterrupt:
            # Between two runs, or while one was read: what is known by then is kept.
            self.interrupted = True

    def _take_turn(self, variant: Variant) -> None:
        """Run a variant and then the baseline, which is not needed again where the variant failed."""
        self._run(variant.name, variant.changes)
        if not self.interrupted and not self.failed(variant.name):
            self._run(BASELINE, ())

    def failed(self, name: str) -> bool:
        """Say whether a variant has run without being measured: it is not run again."""
        return any(run.name == name and run.reading.status != "measured" for run in self.runs)

    def _run(self, name: str, changes: tuple[str, ...]) -> None:
        """Run once and read what was recorded."""
        number = len(self.runs) + 1
        self.progress.begins(name, number, max(number, self.expected))
        folder = self.folder / f"{number:02}-{name}"
        settings = self._settings(changes)
        ended = run_once(self.command, changes, folder, settings, self.progress.ticks, self._limit_s(changes))
        self.runs.append(Run(name, folder, self._read(ended, changes), ended.wall_s))
        self.interrupted = ended.how == "interrupted"
        self.progress.ends(self.runs[-1])

    def _settings(self, changes: tuple[str, ...]) -> Settings:
        """Return how the next run is run: a variant measures the same steps as the baseline did, as far as it can."""
        if not self.runs:
            # Precision is that of the median, which tells nothing of what comes back every so many steps.
            return replace(self.settings, precision=0.0)
        first = self.baseline.reading.first_step
        same = first is not None and not _compiles(changes)
        return replace(
            self.settings,
            precision=0.0 if self.uneven else self.settings.precision,
            warm_up=str((first or 1) - 1) if same else self.settings.warm_up,
        )

    def _read(self, ended: Ended, changes: tuple[str, ...]) -> Reading:
        """Return what a run recorded; the first one is diagnosed, too."""
        timeline = read_timeline(ended.run)
        if not self.runs and timeline is not None:
            self.diagnosis = diagnose(timeline)
        return read(ended, changes, timeline)

    def _limit_s(self, changes: tuple[str, ...]) -> float:
        """Return how long a run may take; compiling takes as long as it takes."""
        walls = [run.wall_s for run in self.runs if run.name == BASELINE]
        if not walls or _compiles(changes):
            return self.settings.timeout_s
        return min(self.settings.timeout_s, max(LEAST_LIMIT_S, LIMIT_FACTOR * max(walls)))


def _compiles(changes: tuple[str, ...]) -> bool:
    """Say whether a variant compiles: its warm-up is another one, and takes as long as it takes."""
    return any(name_of(change) == "compile" for change in changes)


def _is_uneven(reading: Reading) -> bool:
    """Say whether the mean step is longer than the median by more than chance makes it."""
    durations = reading.steps.duration_ns
    return bool(durations.size and durations.mean() > UNEVEN * np.median(durations))


def watched(folder: Path, leave_out: Path) -> Callable[[], Written]:
    """Return what will say, when it is called after the runs, what they wrote into the program's folder."""
    before = written.look(folder, leave_out)
    return lambda: written.compare(before, written.look(folder, leave_out))


def measured(runs: Sequence[Run], name: str) -> Iterator[Run]:
    """Return the runs of one name that have measured steps."""
    return (run for run in runs if run.name == name and run.reading.status == "measured")
