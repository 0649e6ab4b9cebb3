"""The findings about sections and lines of the program that grow, for the rule about slower steps."""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.account.what_if import without_growth
from perfwrap.measures.loop.growing_lines import GrowingLine
from perfwrap.measures.loop.growing_sections import GrowingSection
from perfwrap.measures.loop.stacks import HotFunction
from perfwrap.rules.loop._gaps import gap_lines, gap_location
from perfwrap.rules.model import SHARE, Finding, Location, Option, locate, named, place
from perfwrap.rules.stack_samples import main_function, quote, quote_library, where

CAUSE = "a list, tensor, table or file that grows"
FIX = "limit it, write only what is new, keep a running value instead of all values, or find entries without a scan."


def section_finding(found: GrowingSection) -> Finding:
    """Return the finding about a section that takes longer each time."""
    hottest = main_function(found.sampled)
    (first_step, first_ns), (last_step, last_ns) = found.first, found.last
    what, location = _named(found, hottest)
    words = [
        f"{units.counted(found.count, 'time')} recorded in the steady loop; the model's training did not slow down "
        "as much.",
        *quote(found.sampled, "there in the second half of the loop"),
    ]
    if found.is_linear:
        twice = units.duration(2 * last_ns - first_ns)
        words.append(f"If this continues, it takes {twice} after twice as many steps.")
    return Finding(
        title=f"{what} takes longer each time, from {units.duration(first_ns)} at step {units.count(first_step)} to "
        f"{units.duration(last_ns)} at step {units.count(last_step)}, which costs {SHARE} of the training loop so far: "
        "it works on something that grows.",
        share=found.share,
        evidence=tuple(words),
        options=(
            Option(
                f"Look for {CAUSE}, at {place(location, 'this code')}: {FIX}",
                without_growth(found.share, first_ns, last_ns),
            ),
        ),
        verdict="checkpoint/validation-bound" if found.kind == "save" else "python-bound",
        location=location,
        confidence="inferred",
        claims=found.claims,
    )


def _named(found: GrowingSection, hottest: HotFunction | None) -> tuple[str, Location | None]:
    """Return what grows, and where it is."""
    if found.kind == "save":
        return f"torch.save at {place(found.where, '')}", locate(found.where)
    if hottest is not None:
        return where(hottest), locate(hottest.line)
    if found.gap is not None:
        return f"The program's own code {gap_lines(found.gap)}", gap_location(found.gap)
    return named("The program's own code in or after the validation", found.where), locate(found.where)


def line_finding(found: GrowingLine) -> Finding:
    """Return the finding about a line that has more and more samples."""
    at = place(found.line, "")
    hot = HotFunction(found.line, found.samples, found.samples, found.library)
    words = [
        f"{units.count(found.samples)} samples of the steady loop passed this line (by py-spy). Their number grows "
        "relative to the samples of the model's training, whose time is constant.",
        *quote_library(hot),
    ]
    if found.is_linear:
        later = units.duration(2 * found.last_ns - found.first_ns)
        words.append(f"If this continues, it takes {later} per step after twice as many steps.")
    return Finding(
        title=f"{where(hot)} takes longer and longer, from {units.duration(found.first_ns)} per step (mean) at the "
        f"start of the steady loop to {units.duration(found.last_ns)} at its end, which costs {SHARE} of the training "
        "loop so far: it works on something that grows.",
        share=found.share,
        evidence=tuple(words),
        options=(
            Option(
                f"Look for {CAUSE}, at {at}: {FIX}",
                without_growth(found.share, found.first_ns, found.last_ns),
            ),
        ),
        verdict="python-bound",
        location=locate(found.line),
        confidence="inferred",
        claims=found.claims,
    )
