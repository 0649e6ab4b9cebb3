"""The exported data of a run, and the destination; each exporter converts it for its project."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from perfwrap.errors import PerfwrapError
from perfwrap.exporters.metrics import Metric
from perfwrap.run_folder import EXPORTS

SAMPLES, NANOSECONDS = "samples", "nanoseconds"
"""Units of the weights of stacks."""
Labels = Mapping[str, str]
"""The labels of a metric: the part, the rule, the GPU; empty for the whole run."""


class Figure(Struct, frozen=True):
    """One number about the whole run."""

    metric: Metric
    labels: Labels
    value: float


class Series(Struct, frozen=True):
    """The time series of a metric: values by wall clock (nanoseconds since 1970) and, for steps, by their numbers."""

    metric: Metric
    labels: Labels
    time_ns: tuple[int, ...]
    values: tuple[float, ...]
    steps: tuple[int, ...] = ()


class Phase(Struct, frozen=True):
    """A phase of a step, on the wall clock; ``place`` is the line, empty if unknown."""

    name: str
    start_ns: int
    end_ns: int
    place: str


class ChosenStep(Struct, frozen=True):
    """One step with its phases; ``why`` is the reason for its choice: ``slow`` or ``typical``."""

    number: int
    why: str
    start_ns: int
    end_ns: int
    phases: tuple[Phase, ...]


class StackFrame(Struct, frozen=True):
    """A function, or a part of a step; ``line`` is 0 and ``file`` empty if unknown."""

    function: str
    file: str = ""
    line: int = 0


Stack = tuple[tuple[StackFrame, ...], int]
"""The frames from the outermost, and how many samples or nanoseconds they stand for."""


class StackProfile(Struct, frozen=True):
    """The stacks of one thread in order of time, or of one step."""

    name: str
    unit: str
    stacks: tuple[Stack, ...]

    @property
    def total(self) -> int:
        """All samples or nanoseconds."""
        return sum(weight for _, weight in self.stacks)


class Exported(Struct, frozen=True):
    """A run, ready for export. Texts are valid UTF-8; times are on the wall clock.

    ``is_dated`` is false if the time of the run is unknown: its times then start at the import.
    """

    name: str
    folder: Path
    command: str
    host: str
    tags: tuple[str, ...]
    status: str
    """``finished``, ``failed`` (an exit code) or ``killed`` (a signal); empty if the end is unknown."""
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
    """Attached texts, by the name of their file: diagnosis.json and report.md."""
    page: Path | None
    """The report as HTML, if it was written."""
    version: str
    profiles: tuple[StackProfile, ...] = ()
    """The stacks: of the inspected step, if any, and of each sampled thread."""

    @property
    def report(self) -> str:
        """The address of the HTML report on this machine; empty if it was not written."""
        return self.page.absolute().as_uri() if self.page is not None else ""


class Destination(Struct, frozen=True):
    """The destination that the user gave, or empty. Without ``url`` nothing leaves this machine."""

    url: str = ""
    out: Path | None = None
    experiment: str = ""


def own_place(folder: Path, name: str) -> Path:
    """Return where to write in a run folder; PerfwrapError if a link would lead elsewhere."""
    place = folder / EXPORTS / name
    for path in (place.parent, place):
        if path.is_symlink():
            raise PerfwrapError(
                f"{path} is a link; perfwrap does not write through links.",
                "Delete it, or choose another path with --out.",
            )
    with suppress(OSError):  # The exporter that writes there reports the error.
        place.parent.mkdir(mode=0o700, exist_ok=True)
    return place


class Exporter(Protocol):
    """A module that exports a run."""

    TAKES: frozenset[str]
    """The options that it uses, of ``url``, ``out`` and ``experiment``."""

    def export(self, run: Exported, where: Destination) -> list[str]:
        """Export the run and return the lines to print; PerfwrapError if that fails."""
