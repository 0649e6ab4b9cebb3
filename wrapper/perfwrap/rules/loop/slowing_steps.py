"""Steps get slower and slower because the program's own code works on something that grows.

What it finds
    A section of the program's own code that takes longer in each iteration, all over the steady loop, if the extra time
    compared with the first steps is at least 5 % of the training loop. If py-spy sampled call stacks, the function with
    most samples in that section is named.

Why it costs
    A list, tensor, table or file that grows in each step and is scanned in each step costs time that grows with the
    square of the steps: 10 % of a short run can be most of a long one.

How the gain is estimated
    Measured with a fitted line: the extra time compared with the first steps. At best all of it disappears, at worst
    half, because some growth may be necessary.

How to fix
    Limit it (the last N entries), keep a running value instead of all values, append to a preallocated buffer, or use a
    structure that finds an entry without a scan.

When it is wrong
    When the growth is intended and ends: a buffer that fills for some minutes. A machine that slows down, or inputs
    that get longer, also slow down the forward pass; nothing is reported then, nor if there are more iterations instead
    of longer ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfwrap import units
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.slowing import StepTimeTrend, find_slowing
from perfwrap.measures.loop.stacks import Sampled, sampled_gap
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.loop._gaps import gap_lines, gap_location
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, locate
from perfwrap.rules.stack_samples import main_function, quote, where

NEEDS = ("phases", "steady_steps")


@dataclass(frozen=True)
class Limits:
    """The thresholds of this rule."""

    minor_share: float = MINOR_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for steps that get slower, and for the code section that causes it."""
    found = evidence.get(find_slowing, trainer)
    if found is None:
        return Clear("Steps do not get slower, or not because of a section of the program's own code.")
    if found.share < limits.minor_share:
        return Clear(f"Steps get slower, which costs {units.share(found.share)} of the loop so far.")
    return [_finding(found, sampled_gap(evidence, trainer, found.gap, False))]


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
        saving=without(found.share),
        evidence=tuple(words),
        advice=f"Look for a list, tensor, table or file that grows in each step, {looked}: limit it, keep a "
        "running value instead of all values, or find entries without a scan.",
        verdict="python-bound",
        location=locate(hottest.line) if hottest else gap_location(found.gap),
        confidence="inferred",
        claims=found.claims,
    )
