"""The training thread writes logs, progress bars or tables.

What it finds
    Lines between the phases of the step that print, write, flush, log or draw a progress bar and that have at least 2 %
    of the loop in call stack samples.

Why it costs
    Formatting and writing run on the thread that feeds the model. A flush to a terminal or a network disk, or fsync,
    waits for the other side; a file that is rewritten each time gets slower during the run.

How the gain is estimated
    The time between two recorded events is measured. How much of it is writing is estimated from the samples in it, and
    from the text of the lines; or, if that is more, from py-spy's samples of the whole loop. At best all of it is saved
    and the rest gets faster, at worst 75 %; half where py-spy's samples show that the line runs rarely already.

How to fix
    Log every N steps, buffer lines and flush rarely, append instead of rewriting, write from another thread.

When it is wrong
    When a line that writes also computes something (print(evaluate(...))): the samples cannot separate these. The
    recorder's own sampler sees lines that release the GIL, as writing does, more often than others; py-spy does not.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import HALF, MOST, best_without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.logged_gaps import LoggedGap, LoggedSamples, find_logged_gaps, find_logged_samples
from perfwrap.measures.loop.rare_visits import RareVisits, visits_of_lines
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place
from perfwrap.rules.stack_samples import quote_visits

NEEDS = ("steady_steps", "stacks", "phases")

IMAGES = ("savefig", "imsave", "imwrite", "add_figure", "add_image", "add_images", "log_image")
"""Calls that draw or encode an image."""


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_writing_share: float = 0.5
    """Share of a code section's samples that must be on lines that write."""
    min_saved_share: float = MOST
    """Minimum share of the writing that is saved by logging every 50 steps."""
    max_calls: int = 4
    """How many calls are named."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for code sections that mostly write."""
    gaps = [
        gap
        for gap in evidence.get(find_logged_gaps, trainer)
        if gap.logged >= limits.min_writing_share * gap.sampled
    ]
    share = sum(gap.share for gap in gaps)
    everywhere = evidence.get(find_logged_samples, trainer)
    if everywhere and everywhere.share <= share:
        everywhere = None
    share = everywhere.share if everywhere else share
    if share < limits.min_reported_share:
        return Clear(f"Writing logs takes {units.share(share)} of the loop (from call stack samples).")
    step_ns = mean_step_ns(evidence, trainer)
    where = everywhere.where if everywhere else gaps[0].where
    calls = (
        everywhere.calls if everywhere else tuple(dict.fromkeys(call for gap in gaps for call in gap.calls))
    )
    visits = visits_of_lines(evidence, trainer, frozenset([(where.file, where.line)]))
    return [
        Finding(
            title=f"{SHARE} of the training loop {_what(calls)}, mostly at {place(where, '')}.",
            share=share,
            evidence=(
                *(
                    (_words_everywhere(everywhere, limits),)
                    if everywhere
                    else (_words(gap, limits) for gap in gaps)
                ),
                *(quote_visits(place(where, ""), visits) if visits else ()),
            ),
            options=_options(", ".join(calls[: limits.max_calls]), share, step_ns, visits, limits),
            verdict="python-bound",
            location=locate(where),
            confidence="inferred",
            claims=reduce(or_, (gap.gap.segments for gap in gaps)) if gaps else None,
        )
    ]


def _what(calls: tuple[str, ...]) -> str:
    """Return what the call with most samples does."""
    return "saves images" if calls[0].rpartition(".")[2] in IMAGES else "writes logs"


def _options(
    calls: str, share: float, step_ns: float, visits: RareVisits | None, limits: Limits
) -> tuple[Option, ...]:
    """Return the ways to write less."""
    if visits is not None:
        often = (
            f"less often than once in {units.number(visits.every_steps)} steps, or"
            if visits.count > 1
            else ""
        )
        edit = f"Call {calls} {often} in another process.".replace("  ", " ")
        basis = f"{units.duration(visits.each_ns)} each time"
        return (Option(edit, (best_without(share), 1.0 - HALF * share), basis),)
    saved = (best_without(share), 1.0 - limits.min_saved_share * share)
    return (
        Option(
            f"Call {calls} only every 50 steps or so.", saved, f"{units.duration(share * step_ns)} per step"
        ),
        Option("Collect the values and write them once per epoch.", saved),
    )


def _words_everywhere(found: LoggedSamples, limits: Limits) -> str:
    """Return what was sampled in the whole loop."""
    return (
        f"{units.count(found.count)} of {units.count(found.sampled)} samples of the training thread (by py-spy) are on "
        f"lines that call {', '.join(found.calls[: limits.max_calls])}."
    )


def _words(gap: LoggedGap, limits: Limits) -> str:
    """Return what was measured and sampled in one code section."""
    who = "py-spy" if gap.outside else "the recorder"
    calls = ", ".join(gap.calls[: limits.max_calls])
    return (
        f"{units.duration(gap.gap.per_step_ns)} per step in the program's own code; {units.count(gap.logged)} of "
        f"{units.count(gap.sampled)} samples there (by {who}) are on lines that call {calls}."
    )
