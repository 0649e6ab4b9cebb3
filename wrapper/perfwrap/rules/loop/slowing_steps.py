"""The program's own code takes longer and longer, because it works on something that grows.

What it finds
    Code whose time grows all over the steady loop: a section between two recorded events in each step, every k steps,
    after an epoch or in a validation; a line that calls torch.save; or a line with ever more call stack samples
    (py-spy), also if a library does the work below it. Its time is compared with that of the model's training in the
    same part of the loop. If whole steps get slower, the extra time compared with the first steps must be at least 5 %
    of the loop. For one section or line it must be at least 2 %, and the growth must be significant (Mann-Kendall test,
    at least 8 points). The function with most samples is named.

Why it costs
    A list, tensor, table or file that grows and is scanned, copied, written or drawn each time costs time that grows
    with the square of the steps: 10 % of a short run can be most of a long one.

How the gain is estimated
    Measured with a fitted line: the extra time compared with the start. At best all of it disappears, with what it has
    taken from the beginning, at worst 75 %, because some growth may be necessary.

How to fix
    Limit it (the last N entries), keep a running value instead of all values, append to a file or a preallocated buffer
    instead of writing or copying all of it, or use a structure that finds an entry without a scan.

When it is wrong
    When the growth is intended and ends: a buffer that fills for some minutes, or augmentation that gets stronger.
    Growth that levels off, or comes in one jump, is not reported. If the model's work grows too (longer inputs), no
    code is named, nor if there are more iterations instead of longer ones. On a GPU with time to spare, longer inputs
    may only show in the code that prepares them.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without_growth
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.growing_lines import find_growing_lines
from perfwrap.measures.loop.growing_sections import find_growing_sections
from perfwrap.measures.loop.model_work import MAX_RISE, find_model_growth
from perfwrap.measures.loop.python_gaps import PythonGap
from perfwrap.measures.loop.slowing import StepTimeTrend, find_slowing
from perfwrap.measures.loop.stacks import Sampled, sampled_gap
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.loop._gaps import gap_lines, gap_location
from perfwrap.rules.loop._growth import line_finding, section_finding
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    MINOR_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    Location,
    Option,
    locate,
)
from perfwrap.rules.stack_samples import main_function, quote, where

NEEDS = ("phases", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    minor_share: float = MINOR_SHARE
    """Share of the loop from which slower steps are reported."""
    min_line_share: float = MIN_REPORTED_SHARE
    """The same for one section or line that grows, in each step or rarely: its own time shows its growth better than
    that of whole steps."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for steps that get slower, for code that takes longer each time, and for lines with ever more samples."""
    found = evidence.get(find_slowing, trainer)
    findings = []
    sections = evidence.get(find_growing_sections, trainer)
    if found is not None and found.share >= limits.minor_share:
        findings.append(_finding(found, sampled_gap(evidence, trainer, found.gap, False)))
        sections = tuple(section for section in sections if not _is_same_gap(section.gap, found.gap))
    others = [section_finding(section) for section in sections]
    others += [line_finding(line) for line in evidence.get(find_growing_lines, trainer)]
    for other in others:
        is_new = all(not _is_same_function(other.location, known.location) for known in findings)
        if is_new and other.share >= limits.min_line_share:
            findings.append(other)
    return findings or Clear(_why_clear(evidence, trainer, found))


def _is_same_gap(one: PythonGap | None, other: PythonGap) -> bool:
    """Return whether two sections have the same lines."""
    return one is not None and (one.after, one.until_line) == (other.after, other.until_line)


def _is_same_function(one: Location | None, other: Location | None) -> bool:
    """Return whether two findings are about the same function; what has no place is not named twice."""
    if one is None or other is None:
        return True
    return (one.file, one.function) == (other.file, other.function)


def _why_clear(evidence: Evidence, trainer: Trainer, found: StepTimeTrend | None) -> str:
    """Return what was measured although nothing is reported."""
    if found is not None:
        return f"Steps get slower, which costs {units.share(found.share)} of the loop so far."
    growth = evidence.get(find_model_growth, trainer)
    if growth is not None and growth > 1 + MAX_RISE:
        return (
            f"The model's own work takes {units.times(growth)} as long at the end as at the start (longer inputs, or a "
            "slower machine), so no other code is named."
        )
    return "Steps do not get slower, and no code of the program takes longer each time."


def _finding(found: StepTimeTrend, sampled: Sampled | None) -> Finding:
    """Return the finding about the section that gets slower, with its samples."""
    lines, hottest = gap_lines(found.gap), main_function(sampled)
    most = f", mostly in {where(hottest)}," if hottest else ""
    looked = f"in {where(hottest)}" if hottest else lines
    first, last = units.duration(found.first_ns), units.duration(found.last_ns)
    later = units.duration(2 * found.last_ns - found.first_ns)
    words = [
        f"One pass through that code took {units.duration(found.rounds.first_ns)} at the start of the steady "
        f"loop and {units.duration(found.rounds.last_ns)} at its end; {found.witness} took as long as before.",
        f"If this continues, a step takes {later} after twice as many steps.",
    ]
    if found.parts:
        words.insert(1, f"At the same time, {' and '.join(found.parts)} got slower.")
    words[1:1] = quote(sampled, "there")
    return Finding(
        title=f"Steps get slower, from {first} to {last}, which costs "
        f"{SHARE} of the training loop so far: the program's own code {lines}{most} works on something that grows.",
        share=found.share,
        evidence=tuple(words),
        options=(
            Option(
                f"Look for a list, tensor, table or file that grows in each step, {looked}: limit it, keep a "
                "running value instead of all values, or find entries without a scan.",
                without_growth(found.share, found.rounds.first_ns, found.rounds.last_ns),
            ),
        ),
        verdict="python-bound",
        location=locate(hottest.line) if hottest else gap_location(found.gap),
        confidence="inferred",
        claims=found.claims,
    )
