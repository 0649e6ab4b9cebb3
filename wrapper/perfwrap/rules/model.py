"""What a rule is given and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

Severity = Literal["note", "minor", "major", "critical"]
Confidence = Literal["measured", "inferred"]


@dataclass(frozen=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True)
class Finding:
    """A problem that was found.

    ``share`` is the claimed part of the training loop's wall time (0 to 1). ``saving`` gives the step time after
    the fix over the step time now, as a range: (0.4, 0.6) means that a step would take 40 to 60 % of today's time;
    (1.0, 1.0) means nothing to gain. ``evidence`` are full sentences with numbers, ``advice`` is what to change.
    """

    rule: str
    title: str
    share: float
    saving: tuple[float, float]
    evidence: tuple[str, ...]
    advice: str
    location: Location | None = None
    experiment: str | None = None
    confidence: Confidence = "measured"
    ranks: tuple[int, ...] = ()
    claims: tuple[str, ...] = ()
    """The parts of the account that this finding takes (``data``, ``sync``, …)."""
    health: bool = False
    """A correctness or health problem: shown however small its share."""


@dataclass(frozen=True)
class Clear:
    """The rule looked and found nothing; ``why`` says what it saw in one sentence."""

    why: str = ""


@dataclass(frozen=True)
class NotChecked:
    """The evidence is missing; ``why`` names it and the option that would supply it."""

    why: str


class Evidence(Protocol):
    """What rules read; implemented by ``perfwrap.measures.evidence``."""


class Rule(Protocol):
    """A module of this folder: its docstring explains the problem, ``check`` looks for it."""

    __doc__: str | None
    __name__: str


@dataclass(frozen=True)
class Outcome:
    """What became of one rule: found, clear, not checked (and why), or failed (and how)."""

    rule: str
    state: Literal["found", "clear", "not checked", "failed"]
    why: str = ""
    findings: tuple[Finding, ...] = field(default=())
