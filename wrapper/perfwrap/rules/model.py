"""What a rule is given and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal, Protocol

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.trainers import Trainer

Severity = Literal["note", "minor", "major", "critical"]
Confidence = Literal["measured", "inferred"]
State = Literal["found", "clear", "not checked", "failed"]

QUIET_SHARE = 0.02
"""Share of the training loop below which a rule stays quiet, unless it is about health. Below it, run-to-run
noise of a quiet machine is larger than the gain."""

MINOR_SHARE, MAJOR_SHARE, CRITICAL_SHARE = 0.05, 0.10, 0.20
"""The one scale of severity, of the claimed share. 5 % is TensorBoard's threshold for input time; 10 and 20
% are where TraceML warns and raises the alarm."""

SEVERITIES: tuple[Severity, ...] = ("note", "minor", "major", "critical")
"""From the least to the worst."""

LEAST_SHARES: dict[Severity, float] = {
    "note": 0.0,
    "minor": MINOR_SHARE,
    "major": MAJOR_SHARE,
    "critical": 1.0,
}
"""What a finding counts for when findings are ordered, by its least severity: what ends a run stands first."""


def severity_of(share: float) -> Severity:
    """Return how bad it is to lose that share of the training loop, on the one scale of all rules."""
    if share >= CRITICAL_SHARE:
        return "critical"
    if share >= MAJOR_SHARE:
        return "major"
    return "minor" if share >= MINOR_SHARE else "note"


SHARE = "{share}"
"""Stands in a title for the finding's share, which the engine lowers when another finding has taken of it."""


@dataclass(frozen=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""
    until_line: int | None = None
    """The last line of a stretch; it stands above ``line`` when the stretch goes round a loop."""

    def __str__(self) -> str:
        """Return the file's own name and the line: what a reader looks for."""
        return f"{PurePath(self.file).name}:{self.line}"


def locate(line: Line | None) -> Location | None:
    """Return the location that a measure's line names."""
    return None if line is None else Location(line.file, line.line, line.function)


def place(line: Line | Location | None, otherwise: str) -> str:
    """Return e.g. ``train.py:31``, or ``otherwise`` where the line is not known."""
    return otherwise if line is None else f"{PurePath(line.file).name}:{line.line}"


def named(what: str, line: Line | Location | None) -> str:
    """Return e.g. ``the DataLoader at train.py:31``, or just ``what`` where the line is not known."""
    return what if line is None else f"{what} at {place(line, '')}"


@dataclass(frozen=True)
class Finding:
    """A problem that was found.

    ``title`` is one full sentence with the line and the number (SHARE stands for the share), ``evidence`` are
    more of them, ``advice`` is what to change. ``share`` is the claimed part of the training loop's wall time
    (0 to 1), of the whole run's when ``of_run`` is set. ``saving`` gives the step time after the fix over the
    step time now, best case first: (0.4, 0.6) means that a step would take 40 to 60 % of today's time,
    (1.0, 1.0) that there is nothing to gain. ``claims`` selects the segments of the account that the finding
    takes; no segment is claimed twice. ``rule`` and ``ranks`` are filled in by the engine; a rule says ``ranks`` itself
    where others than the rank that was asked about show the cause.
    """

    title: str
    share: float
    saving: tuple[float, float]
    evidence: tuple[str, ...]
    advice: str
    verdict: str | None = None
    """The verdict that it speaks for, with the others that speak for the same."""
    location: Location | None = None
    experiment: str | None = None
    look_closer: str | None = None
    """Options of ``perfwrap run`` with which another run would tell more."""
    confidence: Confidence = "measured"
    claims: pl.Expr | None = field(default=None, compare=False, repr=False)
    of_run: bool = False
    """The share is of the whole run, so a longer run dilutes it: never worse than minor, never the
    verdict."""
    of_window: bool = False
    """The share is of the time in which the GPU's kernels were recorded; every kernel of some steps counts there, so a
    verdict needs no more steps."""
    health: bool = False
    """A correctness or health problem: shown however small its share."""
    of_job: bool = False
    """Every rank loses this share, whichever shows the cause or claims the time: it is not averaged over the ranks."""
    at_least: Severity = "note"
    """The least severity, for what costs no time but the run itself."""
    at_most: Severity = "critical"
    """The worst severity, for what may cost its share and may as well cost nothing."""
    benign: bool = False
    """No waste but the good end: always a note, shown last."""
    rule: str = ""
    ranks: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """The title with the share in its place."""
        return self.title.replace(SHARE, units.share(self.share))

    @property
    def gain(self) -> float:
        """The share that mending gains in the middle of its range; of the whole run, or what is no waste, all of it."""
        if self.of_run or self.benign:
            return self.share
        return min(self.share, 1.0 - sum(self.saving) / 2)

    @property
    def weight(self) -> float:
        """What findings of one severity are ordered by: the gain, or the share that its least severity stands for.

        What costs 22 % for sure stands before what may cost 25 %, or nothing.
        """
        return max(self.gain, LEAST_SHARES[self.at_least])

    @property
    def severity(self) -> Severity:
        """How bad it is, on the one scale of all rules."""
        return min(
            max(self._severity, self.at_least, key=SEVERITIES.index), self.at_most, key=SEVERITIES.index
        )

    @property
    def _severity(self) -> Severity:
        """How bad it is by its share."""
        if self.benign:
            return "note"
        if self.share >= MINOR_SHARE and self.of_run:
            return "minor"
        return severity_of(self.share)


@dataclass(frozen=True)
class Clear:
    """The rule looked and found nothing; ``why`` says what it saw in one sentence."""

    why: str = ""


@dataclass(frozen=True)
class NotChecked:
    """The evidence is missing; ``why`` names it and the option that would supply it."""

    why: str


Answer = list[Finding] | Clear | NotChecked
"""What a rule says about one trainer."""


class Rule(Protocol):
    """A module of this folder: its docstring explains the problem, ``check`` looks for it in one trainer.

    ``NEEDS`` are words of ``Evidence.missing``: the engine asks them before it calls the rule.
    """

    @property
    def __name__(self) -> str:
        """The module's full name; its last part is the rule's id."""

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        """The problem under the five headings."""

    @property
    def NEEDS(self) -> tuple[str, ...]:  # noqa: N802 - a constant of the module
        """The evidence without which the rule cannot be checked."""

    def check(self, evidence: Evidence, trainer: Trainer, /) -> Answer:
        """Look for the problem in one trainer's steady loop."""


def rule_id(rule: Rule) -> str:
    """Return the rule's id: the name of its file."""
    return rule.__name__.rpartition(".")[2]


@dataclass(frozen=True)
class Outcome:
    """What became of one rule: found, clear, not checked (and why), or failed (and how)."""

    rule: str
    state: State
    why: str = ""
