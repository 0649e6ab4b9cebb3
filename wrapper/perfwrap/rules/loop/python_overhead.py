"""The training thread runs the program's own code between the phases of the step.

What it finds
    Code sections of the loop without a wait for a batch, a module, a backward pass or an optimizer step, between the
    lines of the recorded events before and after them, that take at least 5 % of the training loop.

Why it costs
    Python runs on one core, one line after the other. On a GPU no new work is launched meanwhile.

How the gain is estimated
    The time is measured; what it is spent on is not. Besides Python it may contain tensor operations outside any
    module, such as a loss function. The upper bound is all of it plus up to three tenths, because nearby code also gets
    faster. The lower bound is nine tenths of it, half if many short sections are reported together, or nothing if the
    time is in a library, or if the lines call tensor operations and no samples show how long they take. If GPU kernels
    were recorded, only the time in which the GPU was idle counts: time that the GPU hides costs nothing.

How to fix
    If the samples are in a library, the finding names the library's function: look for a setting of it that does less.
    Sections whose samples are in the same call of a library are one finding.
    Replace loops over samples by tensor operations. Do bookkeeping every N steps instead of each step. If the section
    makes batches, move that code into a Dataset and let DataLoader workers run it in parallel with the training.

When it is wrong
    When the section contains the loss function or other tensor work of the model. A section between the forward and the
    backward pass is therefore reported only from 15 %, and tensor work of a model that is no module not at all: where a
    backward pass has no recorded forward pass, as much tensor work as the backward pass takes is the model's. If
    most samples of a long section are in modules or other recorded calls, it is not reported: detailed recording had
    paused there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import HALF, NOTHING, best_without, without, without_measured
from perfwrap.measures.dataflow.gap_lines import find_gap_lines, find_main_line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.loop.busy_functions import BusyFunction, find_busy_functions
from perfwrap.measures.loop.functional_models import find_model_gaps
from perfwrap.measures.loop.gap_calls import find_tensor_calls
from perfwrap.measures.loop.python_gaps import PythonGap, find_python_gaps
from perfwrap.measures.loop.stacks import Sampled, has_recorded_calls, sampled_gap
from perfwrap.measures.steps.phases import acting_share
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded
from perfwrap.rules.levers import Levers, find_levers
from perfwrap.rules.loop._code_sections import (
    RESULTS,
    CodeSection,
    find_sections,
    library_options,
    surroundings,
)
from perfwrap.rules.loop._gaps import gap_lines, gap_location
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, Location, NotChecked, Option, locate, place
from perfwrap.rules.stack_samples import library_name, main_function, main_library, quote, where

NEEDS = ("phases", "steady_steps", "syncs", "transfers")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    nothing: float = NOTHING
    large_share: float = 0.05
    """Share of the loop from which a section is reported: some Python between the phases is normal, up to 4 % in
    healthy workloads."""
    large_loss_share: float = 0.15
    """The same for a section between forward and backward pass, where the loss function runs."""
    scattered_share: float = 0.20
    """Share of the loop from which many short sections are reported together: none of them is large, but together they
    are critical."""
    short_step_ns: int = units.MILLISECOND
    """Below this a step is so short that calling Python and torch costs as much as the work: a call of a torch function
    takes some microseconds, and a step makes dozens."""
    max_calls: int = 3
    """How many tensor operations, or lines of recorded ones, are named."""
    min_line_share: float = 0.1
    """Share of a section's recorded operations from which a line is named."""
    main_line_share: float = 0.4
    """The same, from which it is the place of the finding."""
    max_acting_share: float = 0.1
    """Share of the forwards that choose actions from which the next batch is what they lead to: it cannot be made in
    parallel with the training."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for long sections of the program's own code, or for very many short ones."""
    of_model = evidence.get(find_model_gaps, trainer)
    gaps = evidence.get(find_python_gaps, trainer)
    sections = find_sections([gap for gap in gaps if _is_placed(gap) and gap not in of_model])
    step_ns = mean_step_ns(evidence, trainer)
    busy = [
        function
        for function in evidence.get(find_busy_functions, trainer)
        if function.share >= limits.large_loss_share
    ]
    sections = [section for section in sections if not any(_is_in(section, function) for function in busy)]
    paused = [
        section
        for section in sections
        if _is_large(section, limits) and has_recorded_calls(evidence, trainer, section.longest)
    ]
    sections = [section for section in sections if section not in paused]
    large = [section for section in sections if _is_large(section, limits)]
    samples = [sampled_gap(evidence, trainer, section.longest, len(large) == 1) for section in large]
    steps = evidence.get(find_steps, trainer)
    acts = acting_share(steps.events, steps.phases) > limits.max_acting_share
    inside = {function: _inside(function, large, samples) for function in busy}
    rest = [
        pair
        for pair in zip(large, samples, strict=True)
        if not any(pair[0] in each for each in inside.values())
    ]
    found = [
        _finding(
            section,
            step_ns,
            sampled,
            find_tensor_calls(evidence, trainer, section.longest),
            find_gap_lines(evidence, trainer, section.longest),
            find_main_line(evidence, trainer, section.longest),
            evidence.get(find_levers, trainer),
            acts,
            limits,
        )
        for section, sampled in _joined(rest)
    ]
    found += [_busy(function, sections) for function, sections in inside.items()]
    idle = _gpu_idle(evidence, trainer)
    if idle is not None and idle < limits.large_share:
        return Clear(
            f"The GPU is idle for the program's own Python {units.share(idle)} of the recorded time."
        )
    if found:
        return found if idle is None else [_limited(finding, idle) for finding in found]
    scattered = [section for section in sections if not section.holds_loss]
    if sum(section.share for section in scattered) >= limits.scattered_share:
        return [_scattered(scattered)]
    total = evidence.get(find_account, trainer).shares["python"]
    return Clear(
        f"The program's own code between the phases takes {units.share(total)} of the loop, no large section."
    )


def _is_large(section: CodeSection, limits: Limits) -> bool:
    """Return whether a section is large enough for a finding."""
    return section.share >= (limits.large_loss_share if section.holds_loss else limits.large_share)


def _is_placed(gap: PythonGap) -> bool:
    """Return whether the position of a gap is known.

    Time that remains unexplained while detailed recording is paused may be anything, even other programs.
    """
    return bool(gap.after or gap.after_operation or gap.before_operation)


def _gpu_idle(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return the maximum share of time in which the GPU was idle for Python; None if not recorded."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return None
    step = evidence.get(find_ordinary_step, trainer)
    if step is None:
        return None
    return 1.0 - step.busy_share if gpu.events.clock_is_off else step.idle.get("python", 0.0)


def _limited(finding: Finding, idle: float) -> Finding:
    """Return the finding, limited to the share in which the GPU was idle."""
    share = min(finding.share, idle)
    options = tuple(replace(option, saving=without(share)) for option in finding.options)
    return replace(finding, share=share, options=options)


def _inside(
    function: BusyFunction, sections: Sequence[CodeSection], samples: Sequence[Sampled | None]
) -> list[CodeSection]:
    """Return the sections most of whose time is in that function, between its first read and the event before."""
    found = []
    for section, sampled in zip(sections, samples, strict=True):
        hottest = main_function(sampled)
        if hottest and (hottest.line.file, hottest.line.function) == (
            function.first.file,
            function.first.function,
        ):
            found.append(section)
    return found


def _joined(
    sections: Sequence[tuple[CodeSection, Sampled | None]],
) -> list[tuple[CodeSection, Sampled | None]]:
    """Return the sections with their samples; those in the same library call are one, because its fix is the same."""
    joined: dict[object, tuple[CodeSection, Sampled | None]] = {}
    for number, (section, sampled) in enumerate(sections):
        hottest = main_function(sampled)
        library = main_library(hottest)
        key: object = (hottest.line, library_name(library)) if hottest and library else number
        first, its_samples = joined.get(key, (CodeSection(()), sampled))
        joined[key] = CodeSection((*first.gaps, *section.gaps)), its_samples
    return list(joined.values())


def _finding(
    section: CodeSection,
    step_ns: float,
    sampled: Sampled | None,
    tensor_calls: tuple[str, ...],
    inspected: tuple[tuple[Line, float], ...],
    main_line: Line | None,
    levers: Levers,
    acts: bool,
    limits: Limits,
) -> Finding:
    """Return the finding about one section, with its samples and the tensor operations that it calls.

    ``inspected`` are the lines of its recorded operations with their shares, ``main_line`` is one that calls most of
    them; ``acts`` is whether the loop chooses actions.
    """
    gap, lines, share = section.longest, gap_lines(section.longest), section.share
    hottest = main_function(sampled)
    library = main_library(hottest)
    most = f", mostly in {where(hottest)}" if hottest else ""
    mostly = "mostly " if len(section.gaps) > 1 else ""
    words = [
        f"{units.duration(section.per_step_ns)} per step, {mostly}{surroundings(gap)}; "
        f"{units.counted(gap.count, 'time')} in the steady loop."
    ]
    words += quote(sampled, "there")
    costly = [pair for pair in inspected[: limits.max_calls] if pair[1] >= limits.min_line_share]
    if costly:
        named = ", ".join(f"{units.share(part)} at {place(line, '')}" for line, part in costly)
        words.append(f"Of its operations in the recorded step, by time: {named}.")
    if tensor_calls and sampled is None:
        words.append(
            f"These lines call {', '.join(tensor_calls[: limits.max_calls])}, and the time includes that work; "
            "`perfwrap run --py-spy` separates it from Python."
        )
    if step_ns < limits.short_step_ns:
        words.append(
            f"A whole step takes {units.duration(step_ns)}. In such short steps every call of Python and torch "
            "counts, including perfwrap's own probes."
        )
    inner = costly[0][0] if costly and costly[0][1] >= limits.main_line_share else main_line
    inner = None if hottest else inner
    if inner:
        most = f", mostly work of {place(inner, '')}"
    title = f"{SHARE} of the training loop is the program's own code {lines}{most}."
    if hottest and library:
        called = place(hottest.line, "")
        title = f"{SHARE} of the training loop is library code that {called} calls, mostly {library_name(library)}."
    saving = (
        without(share, limits.nothing)
        if library or (tensor_calls and sampled is None)
        else without_measured(share)
    )
    basis = f"{units.duration(section.per_step_ns)} per step"
    return Finding(
        title=title,
        share=share,
        evidence=tuple(words),
        options=library_options(library, levers, saving, basis)
        if library
        else _options(
            section,
            f"in {where(hottest)}" if hottest else f"around {place(inner, '')}" if inner else lines,
            step_ns,
            levers,
            acts,
            limits,
            saving,
            basis,
        ),
        verdict="python-bound",
        location=locate(hottest.line if hottest else inner) or gap_location(gap),
        confidence="inferred",
        claims=_claims([section]),
    )


def _is_in(section: CodeSection, function: BusyFunction) -> bool:
    """Return whether a section is in that function."""
    after = section.longest.after
    return after is not None and (after.file, after.function) == (
        function.first.file,
        function.first.function,
    )


def _busy(function: BusyFunction, sections: Sequence[CodeSection]) -> Finding:
    """Return the finding about a function that reads many values in each step, with ``sections`` around the reads."""
    share = function.share + sum(section.share for section in sections)
    per_step_ns = function.per_step_ns + sum(section.per_step_ns for section in sections)
    first = function.first
    name = first.function or "a function"
    return Finding(
        title=f"{SHARE} of the training loop is {name} at {place(first, '')}, which reads "
        f"{units.number(function.reads_per_step)} values of tensors in each step.",
        share=share,
        evidence=(
            f"{units.duration(per_step_ns)} per step, with the reads, in lines {first.line} to "
            f"{function.until_line}.",
        ),
        options=(
            Option(
                f"Check whether {name} loops over samples, and compute on the whole batch at once instead: each read "
                "and each small operation costs a call.",
                (best_without(share), 1.0 - HALF * share),
            ),
        ),
        verdict="python-bound",
        location=Location(first.file, first.line, first.function, function.until_line),
        confidence="inferred",
        claims=function.segments | _claims(sections) if sections else function.segments,
    )


def _scattered(sections: Sequence[CodeSection]) -> Finding:
    """Return the finding about many short sections, longest first."""
    share = sum(section.share for section in sections)
    step_ns = sum(section.per_step_ns for section in sections)
    largest = ", ".join(place(section.longest.after, "an unknown line") for section in sections[:3])
    number = units.counted(len(sections), "short section")
    return Finding(
        title=f"{SHARE} of the training loop is the program's own code, in {number}.",
        share=share,
        evidence=(
            f"{units.duration(step_ns)} per step in total; the longest sections start after {largest}.",
        ),
        options=(
            Option(
                "Do more per call: read values together instead of one by one, and work on whole batches.",
                without(share),
            ),
        ),
        verdict="python-bound",
        location=gap_location(sections[0].longest),
        confidence="inferred",
        claims=_claims(sections),
    )


def _options(
    section: CodeSection,
    lines: str,
    step_ns: float,
    levers: Levers,
    acts: bool,
    limits: Limits,
    saving: tuple[float, float],
    basis: str,
) -> tuple[Option, ...]:
    """Return the ways to spend less time in a section; ``saving`` is that without it."""
    share = section.share
    unknown = (1.0 - share, 1.0)
    if step_ns < limits.short_step_ns:
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
                f"Check the code {lines}: replace loops over samples by array or tensor operations.",
                saving,
                basis,
            ),
            *(() if acts or section.longest.after_operation in RESULTS else (parallel,)),
            *(() if acts else (rarer,)),
        )
    return (
        Option(f"Check the code {lines}: replace loops over samples by tensor operations.", saving, basis),
        rarer,
    )


def _claims(sections: Sequence[CodeSection]) -> pl.Expr:
    """Select the segments of the account in these sections."""
    return reduce(or_, (gap.segments for section in sections for gap in section.gaps))
