"""The input and the answers of a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal, Protocol, runtime_checkable

import polars as pl

from perfwrap import units
from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.notebook_cells import at_line

Severity = Literal["note", "minor", "major", "critical"]
Confidence = Literal["measured", "inferred"]
State = Literal["found", "clear", "not checked", "failed"]

MIN_REPORTED_SHARE = 0.02
"""Share of the training loop below which a rule reports nothing, unless it is about health. Smaller gains disappear in
the run-to-run noise of a quiet machine."""

MINOR_SHARE, MAJOR_SHARE, CRITICAL_SHARE = 0.05, 0.10, 0.20
"""The severity scale of all rules, by the claimed share. 5 % is TensorBoard's threshold for input time; 10 % and 20 %
are TraceML's warning and alarm."""

SEVERITIES: tuple[Severity, ...] = ("note", "minor", "major", "critical")
"""From mild to severe."""

MIN_WEIGHTS: dict[Severity, float] = {
    "note": 0.0,
    "minor": MINOR_SHARE,
    "major": MAJOR_SHARE,
    "critical": 1.0,
}
"""The minimum weight of a finding in the sort order, by its minimum severity: what ends a run comes first."""


def severity_of(share: float) -> Severity:
    """Return the severity of losing that share of the training loop, on the scale of all rules."""
    if share >= CRITICAL_SHARE:
        return "critical"
    if share >= MAJOR_SHARE:
        return "major"
    return "minor" if share >= MINOR_SHARE else "note"


class Scope(Enum):
    """The time that a finding's share refers to; the value is its name in reports."""

    LOOP = "the loop"
    """The steady training loop."""
    WINDOW = "GPU time"
    """The time in which GPU kernels were recorded. All kernels of some steps are in it, so a verdict needs no minimum
    number of steps."""
    RECORDING = "the recording"
    """An imported recording without a training loop; the title says which time, samples or bytes are meant."""
    RUN = "the run"
    """The whole run. The share gets smaller in a longer run: at most minor, never the verdict."""


SHARE = "{share}"
"""Placeholder in a title for the finding's share, which is lower if another finding claimed part of the time."""


@dataclass(frozen=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""
    until_line: int | None = None
    """The last line of a range; it is smaller than ``line`` if the range wraps around a loop."""

    def __str__(self) -> str:
        """Return the file name and the line."""
        return at_line(PurePath(self.file).name, self.line)


def locate(line: Line | None) -> Location | None:
    """Return the location of a measure's line."""
    return None if line is None else Location(line.file, line.line, line.function)


def place(line: Line | Location | None, otherwise: str) -> str:
    """Return e.g. ``train.py:31`` or ``a.ipynb, cell [3], line 2``, or ``otherwise`` if the line is unknown."""
    return otherwise if line is None else at_line(PurePath(line.file).name, line.line)


def named(what: str, line: Line | Location | None) -> str:
    """Return e.g. ``the DataLoader at train.py:31``, or just ``what`` if the line is unknown."""
    return what if line is None else f"{what} at {place(line, '')}"


@dataclass(frozen=True)
class Option:
    """One way to fix a problem.

    ``edit`` says in one imperative sentence what to change and where. ``saving`` is the step time after the fix over
    the step time now, best case first: (0.4, 0.6) means that a step would take 40 to 60 % of its present time,
    (1.0, 1.0) that no gain is predicted. ``basis`` is a short phrase: the figures that the prediction rests on.
    ``experiment`` is the change of `perfwrap try` that measures it, None if there is none.
    """

    edit: str
    saving: tuple[float, float]
    basis: str = ""
    experiment: str | None = None
    details: str = ""
    """More sentences, for users who choose this option."""
    location: Location | None = None
    """The line to change, if it is another one than the finding's."""

    @property
    def advice(self) -> str:
        """What to change, with all details."""
        return f"{self.edit} {self.details}".rstrip()

    @property
    def ratio(self) -> float:
        """The expected step time over that now: the middle of the range."""
        return sum(self.saving) / 2


@dataclass(frozen=True)
class Finding:
    """A problem that was found.

    ``title`` is one full sentence with the line and the number (SHARE is replaced by the share), ``evidence`` has more
    sentences. ``options`` are the ways to fix it, at least one, each sufficient on its own; they are sorted by expected
    gain here, and those that gain the same stay in the rule's order. ``share`` is the claimed part (0 to 1) of the wall
    time that ``scope`` names. ``claims`` selects the segments of the account that the finding claims; no segment is
    claimed twice. ``rule`` and ``ranks`` are filled in by the engine; a rule sets ``ranks`` itself if the cause is on
    other ranks than the one that it checks.
    """

    title: str
    share: float
    evidence: tuple[str, ...]
    options: tuple[Option, ...]
    verdict: str | None = None
    """The verdict that it supports, together with other findings of the same verdict."""
    location: Location | None = None
    """Given: where the problem is. Afterwards: the line that the best option changes."""
    problem: Location | None = None
    """Where the problem is; filled in."""
    rerun_options: str | None = None
    """Options of ``perfwrap run`` that record more detail about this problem."""
    confidence: Confidence = "measured"
    claims: pl.Expr | None = field(default=None, compare=False, repr=False)
    scope: Scope = Scope.LOOP
    health: bool = False
    """A correctness or health problem: reported even if its share is small."""
    of_job: bool = False
    """Every rank loses this share, whichever has the cause or claims the time: it is not averaged over the ranks."""
    min_severity: Severity = "note"
    """The minimum severity, for problems that cost no time but may end the run."""
    max_severity: Severity = "critical"
    """The maximum severity, for problems that may cost their share or nothing."""
    informational: bool = False
    """Information, not a problem: always a note, shown last."""
    rule: str = ""
    ranks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Sort the options, the best first, and take the line of the first; ValueError if there are none."""
        if not self.options:
            raise ValueError("A finding has at least one option.")
        best_first = sorted(self.options, key=lambda option: option.ratio)
        # Another location than these two is that of another problem.
        known = (self.problem, best_first[0].location)
        problem = self.problem if self.problem and self.location in known else self.location
        object.__setattr__(self, "options", tuple(best_first))
        object.__setattr__(self, "problem", problem)
        object.__setattr__(self, "location", best_first[0].location or problem)

    @property
    def advice(self) -> str:
        """What to change: the best option."""
        return self.options[0].advice

    @property
    def saving(self) -> tuple[float, float]:
        """The step-time ratios of the best option, best case first."""
        return self.options[0].saving

    @property
    def experiment(self) -> str | None:
        """The change of `perfwrap try` that measures the best option."""
        return self.options[0].experiment

    @property
    def sentence(self) -> str:
        """The title with the share filled in."""
        return self.title.replace(SHARE, units.share(self.share))

    @property
    def gain(self) -> float:
        """The share that the fix gains in the middle of its range; the whole share if of the run or informational."""
        if self.scope is Scope.RUN or self.informational:
            return self.share
        return min(self.share, 1.0 - self.options[0].ratio)

    @property
    def weight(self) -> float:
        """The sort key within one severity: the gain, or the share that the minimum severity corresponds to.

        A certain loss of 22 % comes before a possible loss of 25 %.
        """
        return max(self.gain, MIN_WEIGHTS[self.min_severity])

    @property
    def severity(self) -> Severity:
        """The severity, on the scale of all rules."""
        return min(
            max(self._severity, self.min_severity, key=SEVERITIES.index),
            self.max_severity,
            key=SEVERITIES.index,
        )

    @property
    def _severity(self) -> Severity:
        """The severity by share."""
        if self.informational:
            return "note"
        if self.share >= MINOR_SHARE and self.scope is Scope.RUN:
            return "minor"
        return severity_of(self.share)


@dataclass(frozen=True)
class Clear:
    """The rule ran and found nothing; ``why`` says what it measured, in one sentence."""

    why: str = ""


@dataclass(frozen=True)
class NotChecked:
    """Evidence is missing; ``why`` names it and how to record it."""

    why: str


Answer = list[Finding] | Clear | NotChecked
"""What a rule answers for one training thread."""


class Rule(Protocol):
    """A module of this folder: its docstring explains the problem, ``check`` looks for it in one training thread.

    ``NEEDS`` are names of ``rules.needs``; the engine checks them before it calls the rule. ``Limits`` is a frozen
    Struct with the thresholds and their defaults; the engine makes one for each diagnosis, with the values that the
    user has changed.
    """

    @property
    def __name__(self) -> str:
        """The module's full name; its last part is the rule's id."""

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        """The problem under the five headings."""

    @property
    def NEEDS(self) -> tuple[str, ...]:  # noqa: N802 - a constant of the module
        """The evidence without which the rule cannot run."""

    @property
    def Limits(self) -> Callable[..., Any]:  # noqa: N802 - a class of the module
        """The rule's thresholds; its fields are the keys of ``[thresholds.<rule>]`` in perfwrap.toml."""

    def check(self, evidence: Evidence, trainer: Trainer, limits: Any, /) -> Answer:
        """Look for the problem in the steady loop of one training thread; ``limits`` is an instance of ``Limits``."""


@runtime_checkable
class RunRule(Protocol):
    """A rule that also looks at a run in which nothing trained."""

    def check_run(self, evidence: Evidence, limits: Any, /) -> Answer:
        """Look for the problem in the whole run."""


def rule_id(rule: Rule) -> str:
    """Return the rule's id: the name of its file."""
    return rule.__name__.rpartition(".")[2]


@dataclass(frozen=True)
class Outcome:
    """The result of one rule: found, clear, not checked (and why), or failed (with the error)."""

    rule: str
    state: State
    why: str = ""
