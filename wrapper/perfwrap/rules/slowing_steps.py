"""Steps take longer and longer, because the program's own code works on something that grows.

What it finds
    A stretch of the program's own code each round of which takes longer than the one before, all over the steady
    loop, when 5 % of the training loop or more is time beyond steps as they were at the beginning. Where py-spy sampled
    stacks, the function with most of the samples of that stretch is named.

Why it costs
    A list, tensor, table or file that is longer in each step and gone over in each step costs time that grows with
    the square of the steps: what is a tenth of a short run can be most of a long one.

How the saving is worked out
    The time beyond as many steps as they were at the beginning, from a fitted line. At best all of it goes, at
    worst half, since what grows may have to grow somewhat.

How to fix
    Bound it (the last N entries), keep a running value instead of all values, append to a buffer that was
    allocated once, or use a structure that finds an entry without looking at all of them.

When it is wrong
    When the growth is wanted and ends: a buffer that fills up for some minutes. A machine that slows down, or
    inputs that become longer, slow down the forward pass too; nothing is reported then, nor where more rounds
    instead of longer ones are the reason.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.slowing import Slowing
from perfwrap.measures.stacks import Sampled
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.gaps import gap_lines, gap_location
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, locate
from perfwrap.rules.sampled import main_function, quote, where

NEEDS = ("phases", "steady_steps")


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for steps that grow, and for the stretch that does."""
    found = evidence.slowing(trainer)
    if found is None:
        return Clear("Steps do not grow, or not because of a stretch of the program's own code.")
    if found.share < MINOR_SHARE:
        return Clear(f"Steps grow, which costs {units.share(found.share)} of the loop so far.")
    return [_finding(found, evidence.sampled_gap(trainer, found.gap, False))]


def _finding(found: Slowing, sampled: Sampled | None) -> Finding:
    """Return the finding about the stretch that grows, and what was ``sampled`` there."""
    lines, hottest = gap_lines(found.gap), main_function(sampled)
    most = f", most of it in {where(hottest)}," if hottest else ""
    looked = f"in {where(hottest)}" if hottest else lines
    first, last = units.duration(found.first_ns), units.duration(found.last_ns)
    later = units.duration(2 * found.last_ns - found.first_ns)
    words = [
        f"A round through that code took {units.duration(found.rounds.first_ns)} at the beginning of the steady "
        f"loop and {units.duration(found.rounds.last_ns)} at its end; {found.witness} took as long as before.",
        f"If it goes on like this, a step takes {later} after twice as many steps.",
    ]
    if found.parts:
        words.insert(1, f"With it {' and '.join(found.parts)} took longer and longer.")
    words[1:1] = quote(sampled, "there")
    return Finding(
        title=f"Steps take longer and longer, from {first} to {last}, which costs "
        f"{SHARE} of the training loop so far: the program's own code {lines}{most} works on something that grows.",
        share=found.share,
        saving=without(found.share),
        evidence=tuple(words),
        advice=f"Look for a list, tensor, table or file that is longer in each step, {looked}: bound it, keep a "
        "running value instead of all values, or find entries without going over all of them.",
        verdict="python-bound",
        location=locate(hottest.line) if hottest else gap_location(found.gap),
        confidence="inferred",
        claims=found.claims,
    )
