"""The training thread runs the program's own code between the phases of the step.

What it finds
    Code sections of the loop without a wait for a batch, a module, a backward pass or an optimizer step, between the
    lines of the recorded events before and after them, that take at least 5 % of the training loop.

Why it costs
    Python runs on one core, one line after the other. On a GPU no new work is launched meanwhile.

How the gain is estimated
    The time is measured; what it is spent on is not. Besides Python it may contain tensor operations outside any
    module, such as a loss function. The upper bound is all of it plus up to six tenths, because nearby code also gets
    faster. The lower bound is three quarters of it, or of the part that py-spy's samples give to the named function;
    half if many short sections are reported together; nothing if the time is in a library, or if the lines call tensor
    operations and no samples show how long they take. If GPU kernels were recorded, only the time in which the GPU was
    idle counts: time that the GPU hides costs nothing.

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

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import HALF, MOST, NOTHING, best_without, without
from perfwrap.measures.dataflow.gap_lines import find_gap_lines, find_main_line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.loop.busy_functions import BusyFunction, find_busy_functions
from perfwrap.measures.loop.functional_models import find_model_gaps
from perfwrap.measures.loop.gap_calls import find_tensor_calls
from perfwrap.measures.loop.model_loops import find_any_loop
from perfwrap.measures.loop.python_gaps import PythonGap, find_python_gaps
from perfwrap.measures.loop.rare_visits import RareVisits, visits_of_function
from perfwrap.measures.loop.section_frames import is_same_function
from perfwrap.measures.loop.slow_calls import shuffles_to_draw
from perfwrap.measures.loop.stacks import (
    HotFunction,
    Sampled,
    has_recorded_calls,
    sampled_function,
    sampled_gap,
)
from perfwrap.measures.steps.phases import acting_share
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded
from perfwrap.rules.levers import find_levers
from perfwrap.rules.loop._code_sections import (
    CodeSection,
    find_sections,
)
from perfwrap.rules.loop._gaps import gap_location
from perfwrap.rules.loop._section_findings import Loop, SectionCode, claims, section_finding
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
    max_acting_share: float = 0.1
    """Share of the forwards that choose actions from which the next batch is what they lead to: it cannot be made in
    parallel with the training."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for long sections of the program's own code, or for very many short ones."""
    busy = [
        function
        for function in evidence.get(find_busy_functions, trainer)
        if function.share >= limits.large_loss_share
    ]
    sections = _own_sections(evidence, trainer, busy, limits)
    found = _large_sections(evidence, trainer, sections, busy, limits)
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


def _own_sections(
    evidence: Evidence, trainer: Trainer, busy: Sequence[BusyFunction], limits: Limits
) -> list[CodeSection]:
    """Return the sections of the program's own code, without the model's and those in the busy functions.

    Of the large ones, those in which detailed recording had paused are left out.
    """
    of_model = evidence.get(find_model_gaps, trainer)
    gaps = evidence.get(find_python_gaps, trainer)
    sections = find_sections([gap for gap in gaps if _is_placed(gap) and gap not in of_model])
    return [
        section
        for section in sections
        if not any(_is_in(section, function) for function in busy)
        and not (_is_large(section, limits) and has_recorded_calls(evidence, trainer, section.longest))
    ]


def _large_sections(
    evidence: Evidence,
    trainer: Trainer,
    sections: Sequence[CodeSection],
    busy: Sequence[BusyFunction],
    limits: Limits,
) -> list[Finding]:
    """Return the findings about long sections, and about functions that read many values."""
    large = [section for section in sections if _is_large(section, limits)]
    samples = [sampled_gap(evidence, trainer, section.longest, len(large) == 1) for section in large]
    inside = {function: _inside(function, large, samples) for function in busy}
    rest = [
        pair
        for pair in zip(large, samples, strict=True)
        if not any(pair[0] in each for each in inside.values())
    ]
    steps = evidence.get(find_steps, trainer)
    acts = acting_share(steps.events, steps.phases) > limits.max_acting_share
    loop = Loop(mean_step_ns(evidence, trainer), evidence.get(find_levers, trainer), acts, limits.nothing)
    found = [
        section_finding(
            SectionCode(
                section,
                sampled,
                find_tensor_calls(evidence, trainer, section.longest),
                find_gap_lines(evidence, trainer, section.longest),
                find_main_line(evidence, trainer, section.longest),
                _shuffles(evidence, main_function(sampled)),
                _visits(evidence, trainer, main_function(sampled)),
            ),
            loop,
        )
        for section, sampled in _joined(rest)
    ]
    for function, its_sections in inside.items():
        sampled = sampled_function(evidence, trainer, function.first.file, function.first.function)
        has_loop = find_any_loop(evidence, trainer, function.first) is not None
        found.append(_busy(function, its_sections, sampled, has_loop))
    return found


def _visits(evidence: Evidence, trainer: Trainer, hottest: HotFunction | None) -> RareVisits | None:
    """Return how rarely the function with most samples runs."""
    if hottest is None:
        return None
    return visits_of_function(evidence, trainer, hottest.line.file, hottest.line.function)


def _shuffles(evidence: Evidence, hottest: HotFunction | None) -> bool:
    """Return whether most samples of a function are on a line that shuffles an array to draw from it."""
    if hottest is None or hottest.on_line < HALF * hottest.count:
        return False
    return shuffles_to_draw(evidence.timeline.run, hottest.line.file, hottest.line.line)


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
        if hottest and _is_function(hottest, function):
            found.append(section)
    return found


def _is_function(hottest: HotFunction, function: BusyFunction) -> bool:
    """Return whether samples are in that function."""
    first = function.first
    return hottest.line.file == first.file and is_same_function(hottest.line.function, first.function or "")


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


def _is_in(section: CodeSection, function: BusyFunction) -> bool:
    """Return whether a section is in that function."""
    after = section.longest.after
    return after is not None and (after.file, after.function) == (
        function.first.file,
        function.first.function,
    )


def _busy(
    function: BusyFunction, sections: Sequence[CodeSection], sampled: Sampled | None, has_loop: bool
) -> Finding:
    """Return the finding about a function that reads many values in each step, with ``sections`` around the reads.

    Without a loop around the first read, the function is called many times in a step.

    Where most of its samples are in another function, the reads are not what takes the time.
    """
    share = function.share + sum(section.share for section in sections)
    per_step_ns = function.per_step_ns + sum(section.per_step_ns for section in sections)
    first = function.first
    name = first.function or "a function"
    hottest = main_function(sampled)
    if sampled and hottest and not _is_function(hottest, function):
        what = f"mostly {where(hottest)}"
        edit = (
            f"Check the code in {where(hottest)}: compute once what is the same in each step, and replace operations "
            "on more than a step needs."
        )
        worst = 1.0 - MOST * hottest.count / sampled.count * share
        location = locate(hottest.line)
    else:
        what = f"which reads about {units.number(function.reads_per_step)} values of tensors in each step"
        edit = (
            f"Check whether {name} loops over samples or parameters. Compute on the whole batch at once, or on lists "
            "of tensors with functions like torch._foreach_lerp_: each read and small operation is a call."
            if has_loop
            else f"Call {name} less often in a step, for many inputs at once (with several environments, where it "
            "chooses actions): each read and small operation is a call."
        )
        worst = 1.0 - HALF * share if has_loop else 1.0
        location = Location(first.file, first.line, first.function, function.until_line)
    return Finding(
        title=f"{SHARE} of the training loop is {name} at {place(first, '')}, {what}.",
        share=share,
        evidence=(
            f"{units.duration(per_step_ns)} per step, with the reads, "
            + (
                "there."
                if function.until_line == first.line
                else f"in lines {first.line} to {function.until_line}."
            ),
            *quote(sampled, "there"),
        ),
        options=(Option(edit, (best_without(share), worst)),),
        verdict="python-bound",
        location=location,
        confidence="inferred",
        claims=function.segments | claims(sections) if sections else function.segments,
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
        claims=claims(sections),
    )
