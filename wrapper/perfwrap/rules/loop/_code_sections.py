"""Sections of the program's own code between the same lines, for the rule about such code."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from perfwrap.measures.account.lines import Line
from perfwrap.measures.loop.library_calls import LibraryCall
from perfwrap.measures.loop.python_gaps import PythonGap
from perfwrap.rules.levers import Levers
from perfwrap.rules.model import Option
from perfwrap.rules.stack_samples import library_name

NAMES = {
    "data": "the batch",
    "data_end": "the end of the epoch",
    "loader_start": "the start of the loader",
    "zero_grad": "zero_grad",
    "optimizer": "the optimizer step",
    "scaler_step": "the scaler's step",
    "forward": "the forward pass",
    "backward": "the backward pass",
    "gradient": "torch.autograd.grad",
    "sync": "a read of a value",
    "save": "torch.save",
    "load": "torch.load",
    "gc": "a garbage collection",
}
"""The names of the recorded events in sentences."""


BEFORE_LOSS = ("forward", "gradient")
AFTER_LOSS = ("backward", "gradient", "zero_grad")
"""Events between which the loss function runs."""
RESULTS = ("forward", "gradient", "sync")
"""What follows these events uses results of the model: it does not make the next batch."""


class CodeSection(Struct, frozen=True):
    """The gaps between the same two lines, longest first; a line with several calls has several gaps."""

    gaps: tuple[PythonGap, ...]

    @property
    def longest(self) -> PythonGap:
        """The gap with most of the time."""
        return self.gaps[0]

    @property
    def share(self) -> float:
        """Their total share of the account."""
        return sum(gap.share for gap in self.gaps)

    @property
    def per_step_ns(self) -> float:
        """Their total time per step."""
        return sum(gap.per_step_ns for gap in self.gaps)

    @property
    def holds_loss(self) -> bool:
        """Whether the loss function probably runs in it."""
        gap = self.longest
        return gap.after_operation in BEFORE_LOSS and gap.before_operation in AFTER_LOSS


def find_sections(gaps: Sequence[PythonGap]) -> list[CodeSection]:
    """Return the gaps grouped by the lines around them, longest first."""
    groups: dict[tuple[Line | None, int | None], list[PythonGap]] = {}
    for gap in gaps:
        groups.setdefault((gap.after, gap.until_line), []).append(gap)
    sections = (CodeSection(tuple(group)) for group in groups.values())
    return sorted(sections, key=lambda section: -section.share)


def surroundings(gap: PythonGap) -> str:
    """Return the events around the gap, if recorded."""
    before = NAMES.get(gap.after_operation, gap.after_operation)
    after = NAMES.get(gap.before_operation, gap.before_operation)
    if before and after:
        return f"between {before} and {'the next' if before == after else after}"
    return f"after {before}" if before else f"before {after}"


def library_options(
    library: LibraryCall, levers: Levers, saving: tuple[float, float], basis: str
) -> tuple[Option, ...]:
    """Return what to change if the time is in a library."""
    name = library_name(library)
    if library.package == "torch":
        return (
            Option(
                "Use fewer operations on whole batches instead of many small ones.",
                saving,
                basis,
                details=f"{name} is tensor work outside any module.",
            ),
            *((Option("Compile the function that calls it.", saving),) if levers.compiling else ()),
        )
    if library.package == "copy":
        return (Option("Copy only what changes, or copy once, before the loop.", saving, basis),)
    return (
        Option(
            "Look for a setting of it that does less work or handles many items per call.",
            saving,
            basis,
            details=f"The time is in {name}, not in your own lines.",
        ),
    )
