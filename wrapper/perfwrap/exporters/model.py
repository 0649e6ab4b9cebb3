"""What is exported of a run, and where to; each exporter turns it into what its project knows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perfwrap.errors import PerfwrapError
from perfwrap.exporters.metrics import Metric
from perfwrap.run_folder import EXPORTS

Labels = Mapping[str, str]
"""Of what a metric is told: the part, the rule, the GPU; empty for the run as a whole."""


@dataclass(frozen=True)
class Figure:
    """One number about the whole run."""

    metric: Metric
    labels: Labels
    value: float


@dataclass(frozen=True)
class Series:
    """How a metric went: values by wall clock (nanoseconds since 1970) and, for steps, by their numbers."""

    metric: Metric
    labels: Labels
    time_ns: tuple[int, ...]
    values: tuple[float, ...]
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Phase:
    """A stretch of a step, on the wall clock; ``place`` is the line, empty where it is not known."""

    name: str
    start_ns: int
    end_ns: int
    place: str


@dataclass(frozen=True)
class ChosenStep:
    """One step with its phases; ``why`` says what it stands for: ``slow`` or ``typical``."""

    number: int
    why: str
    start_ns: int
    end_ns: int
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class Exported:
    """A run, ready to be handed over. Texts are clean UTF-8; times are on the wall clock.

    ``is_dated`` is false where nobody wrote down when the run was: then its times begin when it was read in.
    """

    name: str
    folder: Path
    command: str
    host: str
    tags: tuple[str, ...]
    status: str
    """``finished``, ``failed`` (an exit code) or ``killed`` (a signal); empty where the end is not known."""
    verdict: str
    confidence: str
    sentence: str
    conditions: Mapping[str, str]
    begin_ns: int
    end_ns: int
    is_dated: bool
    figures: tuple[Figure, ...]
    series: tuple[Series, ...]
    steps: tuple[ChosenStep, ...]
    documents: Mapping[str, str]
    """Texts that go along, by the name of their file: diagnosis.json and report.md."""
    page: Path | None
    """The report as HTML, where it was written."""
    version: str


@dataclass(frozen=True)
class Destination:
    """Where to, as the user named it; empty where he did not. Without ``url`` nothing leaves this machine."""

    url: str = ""
    out: Path | None = None
    experiment: str = ""


def own_place(folder: Path, name: str) -> Path:
    """Return where to write in a run folder; PerfwrapError where a link would lead elsewhere."""
    place = folder / EXPORTS / name
    for path in (place.parent, place):
        if path.is_symlink():
            raise PerfwrapError(
                f"{path} is a link, as nothing that perfwrap made is.",
                "Remove it, or name another place with --out.",
            )
    with suppress(OSError):  # Whoever writes there says why it cannot be done.
        place.parent.mkdir(mode=0o700, exist_ok=True)
    return place


class Exporter(Protocol):
    """A module that hands a run over."""

    TAKES: frozenset[str]
    """Options that it has a use for: of ``url``, ``out`` and ``experiment``."""

    def export(self, run: Exported, where: Destination) -> list[str]:
        """Hand the run over and return what to tell the user, in lines; PerfwrapError where that fails."""
