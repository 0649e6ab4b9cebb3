"""The finding about one section of the program's own code, for the rule about such code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.what_if import HALF, MOST, best_without, without
from perfwrap.measures.loop.rare_visits import RareVisits
from perfwrap.measures.loop.stacks import HotFunction, Sampled
from perfwrap.rules.levers import Levers
from perfwrap.rules.loop._code_sections import RESULTS, CodeSection, library_options, surroundings
from perfwrap.rules.loop._gaps import gap_lines, gap_location
from perfwrap.rules.model import SHARE, Finding, Option, locate, place
from perfwrap.rules.stack_samples import (
    MAIN_SHARE,
    library_name,
    main_function,
    main_library,
    quote,
    quote_visits,
    where,
)

SHORT_STEP_NS = units.MILLISECOND
"""Below this a step is so short that calling Python and torch costs as much as the work: a call of a torch function
takes some microseconds, and a step makes dozens."""
PREPARED = ("data", "gradient", "zero_grad", "transfer")
"""After these events, code before the forward pass makes its input or its weights: it cannot run less often."""
ON_WHOLE_ARRAYS = (
    "work on whole arrays or tensors instead of in Python loops, and compute once what does not change."
)
MAX_CALLS = 3
"""How many tensor operations, or lines of recorded ones, are named."""
MIN_LINE_SHARE = 0.1
"""Share of a section's recorded operations from which a line is named."""
MAIN_LINE_SHARE = 0.4
"""The same, from which it is the place of the finding."""


class Loop(Struct, frozen=True):
    """What the findings about all sections of a loop need."""

    step_ns: float
    levers: Levers
    acts: bool
    """Whether the loop chooses actions."""
    nothing: float
    """The saving of which a range begins if it is not certain that there is any."""

    @property
    def is_short(self) -> bool:
        """Whether a step is so short that calls cost as much as the work."""
        return self.step_ns < SHORT_STEP_NS


class SectionCode(Struct, frozen=True):
    """One section and what is known about the code in it."""

    section: CodeSection
    sampled: Sampled | None
    tensor_calls: tuple[str, ...]
    """The tensor operations that it calls."""
    inspected: tuple[tuple[Line, float], ...]
    """The lines of its recorded operations with their shares."""
    main_line: Line | None
    """The line that calls most of them."""
    shuffles: bool = False
    """Whether the line with most samples shuffles an array to draw a few of its numbers."""
    visits: RareVisits | None = None
    """How rarely the function with most samples runs; None if that is not known, or it runs in each step."""

    @property
    def costly(self) -> list[tuple[Line, float]]:
        """The lines of recorded operations to name, with their shares."""
        return [pair for pair in self.inspected[:MAX_CALLS] if pair[1] >= MIN_LINE_SHARE]

    @property
    def inner(self) -> Line | None:
        """The line of most of the operations, if no samples name a function."""
        if main_function(self.sampled):
            return None
        costly = self.costly
        return costly[0][0] if costly and costly[0][1] >= MAIN_LINE_SHARE else self.main_line

    @property
    def hides_work(self) -> bool:
        """Whether its time includes tensor operations, of which no samples tell how much they take."""
        return bool(self.tensor_calls) and self.sampled is None


def section_finding(code: SectionCode, loop: Loop) -> Finding:
    """Return the finding about one section."""
    section = code.section
    hottest = main_function(code.sampled)
    library = main_library(hottest)
    unsure = bool(library) or code.hides_work
    saving = (
        without(section.share, loop.nothing)
        if unsure
        else _without_most(section.share, code.sampled, hottest)
    )
    basis = f"{units.duration(section.per_step_ns)} per step"
    return Finding(
        title=_title(code),
        share=section.share,
        evidence=tuple(_evidence(code, loop)),
        options=(
            *_rarer(code, saving[0]),
            *(library_options(library, loop.levers, saving, basis) if library else ()),
        )
        or _options(code, loop, saving, basis),
        verdict="python-bound",
        location=locate(hottest.line if hottest else code.inner) or gap_location(section.longest),
        confidence="inferred",
        claims=claims([section]),
    )


def _rarer(code: SectionCode, best: float) -> tuple[Option, ...]:
    """Return the option to run a function less often that already runs rarely; it saves half at least."""
    hottest, visits = main_function(code.sampled), code.visits
    if hottest is None or visits is None:
        return ()
    often = f"once in {units.number(visits.every_steps)} steps" if visits.count > 1 else "once"
    edit = (
        f"Make {where(hottest)} cheaper, or run it less often than {often} if the training does not need it."
    )
    worst = 1.0 - HALF * code.section.share
    return (Option(edit, (best, worst), f"{units.duration(visits.each_ns)} each time"),)


def _without_most(share: float, sampled: Sampled | None, hottest: HotFunction | None) -> tuple[float, float]:
    """Return the step-time ratios (best, worst) without a section, or most of what one function takes of it.

    The function is the named one, or the one that takes most of that one's time.
    """
    part = 1.0
    if hottest and sampled:
        inner = sampled.functions[0].count
        part = (inner if inner >= MAIN_SHARE * sampled.count else hottest.count) / sampled.count
    return best_without(share), 1.0 - MOST * part * share


def _title(code: SectionCode) -> str:
    hottest = main_function(code.sampled)
    library = main_library(hottest)
    if hottest and library:
        called = place(hottest.line, "")
        return f"{SHARE} of the training loop is library code that {called} calls, mostly {library_name(library)}."
    most = f", mostly in {where(hottest)}" if hottest else ""
    if code.inner:
        most = f", mostly work of {place(code.inner, '')}"
    return f"{SHARE} of the training loop is the program's own code {gap_lines(code.section.longest)}{most}."


def _evidence(code: SectionCode, loop: Loop) -> list[str]:
    section, hottest = code.section, main_function(code.sampled)
    mostly = "mostly " if len(section.gaps) > 1 else ""
    words = [
        f"{units.duration(section.per_step_ns)} per step, {mostly}{surroundings(section.longest)}; "
        f"{units.counted(section.longest.count, 'time')} in the steady loop.",
        *quote(code.sampled, "there"),
        *(quote_visits(hottest.line.function, code.visits) if hottest and code.visits else ()),
    ]
    if code.costly:
        named = ", ".join(f"{units.share(part)} at {place(line, '')}" for line, part in code.costly)
        words.append(f"Of its operations in the recorded step, by time: {named}.")
    if code.hides_work:
        words.append(
            f"These lines call {', '.join(code.tensor_calls[:MAX_CALLS])}, and the time includes that work; "
            "`perfwrap run --py-spy` separates it from Python."
        )
    if loop.is_short:
        words.append(
            f"A whole step takes {units.duration(loop.step_ns)}. In such short steps every call of Python and torch "
            "counts, including perfwrap's own probes."
        )
    return words


def _options(code: SectionCode, loop: Loop, saving: tuple[float, float], basis: str) -> tuple[Option, ...]:
    """Return the ways to spend less time in a section; ``saving`` is that without it."""
    section, levers = code.section, loop.levers
    hottest = main_function(code.sampled)
    lines = gap_lines(section.longest)
    if hottest or code.inner:
        lines = f"in {where(hottest)}" if hottest else f"around {place(code.inner, '')}"
    unknown = (1.0 - section.share, 1.0)
    if code.shuffles and hottest:
        draw = (
            f"Draw with numpy.random.default_rng().choice at {place(hottest.line, '')}: numpy.random.choice with "
            "replace=False shuffles all that it draws from. Make the generator once; it draws other numbers."
        )
        return (Option(draw, saving, basis),)
    if loop.is_short:
        larger = Option("Do more work in each step: a larger batch.", saving, basis)
        compiled = Option("Call torch.compile for the whole step.", unknown, basis, "compile")
        fewer = Option(f"Call fewer functions {lines}: in such short steps each call counts.", unknown, basis)
        return (
            *((larger,) if levers.can_grow else ()),
            *((compiled,) if levers.compiling else ()),
            fewer,
        )
    rarer = Option(
        f"If the code {lines} is bookkeeping, such as metrics, run it only every N steps.", unknown, basis
    )
    if section.holds_loss:
        whole = Option(
            f"Check the code {lines}; the loss function runs there.",
            saving,
            basis,
            details="Replace loops over samples or values by tensor operations. If it calls many small ones, use fewer "
            "operations on the whole batch.",
        )
        compiled = Option("Compile the loss function with torch.compile.", unknown, basis)
        return (whole, compiled) if levers.compiling else (whole,)
    if section.longest.before_operation == "forward":
        parallel = Option(
            "Let DataLoader workers make the next batch in parallel with the training, if this code makes it.",
            unknown,
            basis,
        )
        return (
            Option(
                f"Check the code {lines}: {ON_WHOLE_ARRAYS}",
                saving,
                basis,
            ),
            *(() if loop.acts or section.longest.after_operation in RESULTS else (parallel,)),
            *(() if loop.acts or section.longest.after_operation in PREPARED else (rarer,)),
        )
    return (
        Option(f"Check the code {lines}: {ON_WHOLE_ARRAYS}", saving, basis),
        *(() if loop.acts else (rarer,)),
    )


def claims(sections: Sequence[CodeSection]) -> pl.Expr:
    """Select the segments of the account in these sections."""
    return reduce(or_, (gap.segments for section in sections for gap in section.gaps))
