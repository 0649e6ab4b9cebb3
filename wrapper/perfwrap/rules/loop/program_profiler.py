"""The program's own torch.profiler takes time of the training loop.

What it finds
    Calls of the program's torch.profiler that take at least 2 % of the training loop: the ends of its windows, its
    tables and its exports, whether the program, a library or a flag of a trainer started it. Garbage collections
    during these calls count too, and so does the time by which later ones take longer because of the profiler's
    objects.

Why it costs
    At the end of a window torch turns each recorded operation into an object. key_averages() and table() visit
    all of them, with stacks several times. An export writes them to a file. A million operations take minutes.

How the gain is estimated
    Measured: the time of these calls. The lower bound is nine tenths of it; the upper bound is all of it plus up to
    six tenths, because nearby code also gets faster. That recorded steps take longer is not part of it.

How to fix
    Profile a few steps once, with schedule(..., repeat=1), and switch the profiler off for the rest of the run.
    Export the trace and read the table later, outside the training. with_stack, record_shapes and
    profile_memory multiply the cost.

When it is wrong
    When the purpose of the run is the profile: then compare the other shares with each other only.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.what_if import NOTHING, without, without_measured
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.profiler_calls import ProfilerCall, ProfilerCalls, find_profiler_calls
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("steady_steps", "profiler")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_slowdown: float = 1.1
    """Recorded steps over the others, in time, from which the difference is named."""
    max_single_steps: int = 2
    """Steps up to which the calls are one recording, which starts in one step and ends in another."""
    max_calls: int = 3
    """How many calls are named."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for the time of the program's profiler."""
    found = evidence.get(find_profiler_calls, trainer)
    account = evidence.get(find_account, trainer)
    share = found.share + found.objects_ns / max(1, account.total_ns)
    if share < limits.min_reported_share or not found.calls:
        return Clear(f"The program's own profiler takes {units.share(share)} of the loop.")
    where = next((call.where for call in found.calls if call.where is not None), None)
    return [
        Finding(
            title=f"{SHARE} of the training loop is the program's own torch.profiler, mostly at "
            f"{place(where, 'an unknown line')}.",
            share=share,
            evidence=_words(found, account, limits),
            options=(
                Option(
                    "Profile a few steps once, with schedule(..., repeat=1), and train without the profiler.",
                    without_measured(share),
                    f"{units.share(share)} of the loop",
                ),
                Option(
                    "Read the tables of a recording after the training, and switch off with_stack and record_shapes.",
                    without(share, NOTHING),
                ),
            ),
            verdict="python-bound",
            location=locate(where),
            claims=_claims(found),
        )
    ]


def _words(found: ProfilerCalls, account: Account, limits: Limits) -> tuple[str, ...]:
    """Return the measured figures."""
    most = found.calls[: limits.max_calls]
    words = ["Time by call: " + ", ".join(_call(call, account) for call in most) + "."]
    if found.steps <= limits.max_single_steps:
        words.append(
            f"All of them are in {units.counted(found.steps, 'step')}: the share is smaller in a longer run."
        )
    if found.objects_since is not None:
        words.append(
            f"Since its first recording, full garbage collections took {units.duration(found.objects_ns)} longer: they "
            "visit the profiler's objects."
        )
    if found.slowdown is not None and found.slowdown >= limits.min_slowdown:
        words.append(
            f"Steps that it records take {units.times(found.slowdown)} as long as others (median); this is not part of "
            "the share."
        )
    return tuple(words)


def _call(call: ProfilerCall, account: Account) -> str:
    """Return the share of one call, e.g. ``table at train.py:9 12 %``."""
    return f"{call.name} at {place(call.where, 'an unknown line')} {units.share(call.ns / account.total_ns)}"


def _claims(found: ProfilerCalls) -> pl.Expr:
    """Select the calls, and the collections that are longer because of them."""
    claims = pl.col("part") == "profiler"
    if found.objects_since is not None:
        claims |= (pl.col("part") == "gc") & (pl.col("start") >= found.objects_since)
    return claims
