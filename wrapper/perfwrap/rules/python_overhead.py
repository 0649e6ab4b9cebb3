"""The training thread is in the program's own code between the phases of the step.

What it finds
    Stretches of the loop in which no batch is waited for and no module, backward pass or optimizer runs,
    named by the line of the recorded event before and the line of the next one, that take 5 % of the
    training loop or more.

Why it costs
    Python runs one line after the other on one core. On a GPU nothing new is launched meanwhile.

How the saving is worked out
    The time is measured, what it is spent on is not: besides Python itself it may hold tensor operations
    that are called outside of any module, a loss function for instance. At best all of it goes, and up to three tenths
    more, as what stands beside it runs faster then. At worst nine tenths go, half where many short stretches are told
    together, or none where its lines call such operations and nobody sampled how long they take. Where the GPU's
    kernels were recorded, only the time counts in which the GPU was idle for it: what it hides costs nothing.

How to fix
    Replace loops over samples by tensor operations. Do bookkeeping every N steps instead of each step. When
    the stretch makes the batches, put that code into a Dataset and let DataLoader workers run it beside the
    training.

When it is wrong
    When the stretch holds the loss function or other tensor work of the model. A stretch from the forward to
    the backward pass is therefore reported only from 15 % on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.python_gaps import PythonGap
from perfwrap.measures.stacks import Sampled
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import NOTHING, without, without_measured
from perfwrap.rules.gaps import gap_lines, gap_location
from perfwrap.rules.kernel_record import recorded
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, locate, place
from perfwrap.rules.sampled import main_function, quote, where

NEEDS = ("phases", "steady_steps", "syncs", "transfers")

LARGE_SHARE = 0.05
"""Share of the loop from which a stretch is reported: some Python between the phases is natural, and the
healthy workloads hold up to 4 % of it."""

LARGE_LOSS_SHARE = 0.15
"""The same for a stretch from forward to backward, where the loss function runs."""

SCATTERED_SHARE = 0.20
"""Share of the loop from which many short stretches are reported together: none of them stands out, all of
them make the loop what the scale of severity calls critical."""

SHORT_STEP_NS = units.MILLISECOND
"""Below this a step is so short that calling Python and torch costs as much as the work: a call of a torch
function from Python takes some microseconds, and a step makes dozens."""

MOST_CALLS = 3
"""So many operations on tensors are named."""

NAMES = {
    "data": "the batch",
    "data_end": "the end of the epoch",
    "loader_start": "the start of the loader",
    "zero_grad": "zero_grad",
    "optimizer": "the optimizer step",
    "scaler_step": "the scaler's step",
    "forward": "the forward pass",
    "backward": "the backward pass",
    "sync": "reading a value",
    "save": "torch.save",
    "load": "torch.load",
    "gc": "a collection",
}
"""What the recorded events are called in a sentence."""


@dataclass(frozen=True)
class Stretch:
    """The gaps between the same two lines, most time first: on a line of several calls there are several."""

    gaps: tuple[PythonGap, ...]

    @property
    def longest(self) -> PythonGap:
        """The gap with most of the time."""
        return self.gaps[0]

    @property
    def share(self) -> float:
        """Their share of the account, together."""
        return sum(gap.share for gap in self.gaps)

    @property
    def per_step_ns(self) -> float:
        """Their time per step, together."""
        return sum(gap.per_step_ns for gap in self.gaps)

    @property
    def holds_loss(self) -> bool:
        """Whether the loss function is likely to run in it."""
        gap = self.longest
        return gap.after_operation == "forward" and gap.before_operation in ("backward", "zero_grad")

    @property
    def is_large(self) -> bool:
        """Whether it is worth a finding."""
        return self.share >= (LARGE_LOSS_SHARE if self.holds_loss else LARGE_SHARE)


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for long stretches of the program's own code, or for very many short ones."""
    stretches = _stretches([gap for gap in evidence.python_gaps(trainer) if _is_placed(gap)])
    step_ns = mean_step_ns(evidence, trainer)
    large = [stretch for stretch in stretches if stretch.is_large]
    found = [
        _finding(
            stretch,
            step_ns,
            evidence.sampled_gap(trainer, stretch.longest, len(large) == 1),
            evidence.tensor_calls(trainer, stretch.longest),
        )
        for stretch in large
    ]
    idle = _gpu_idle(evidence, trainer)
    if idle is not None and idle < LARGE_SHARE:
        return Clear(
            f"The GPU was idle for the program's own Python {units.share(idle)} of the recorded time."
        )
    if found:
        return found if idle is None else [_limited(finding, idle) for finding in found]
    scattered = [stretch for stretch in stretches if not stretch.holds_loss]
    if sum(stretch.share for stretch in scattered) >= SCATTERED_SHARE:
        return [_scattered(scattered)]
    total = evidence.account(trainer).shares["python"]
    return Clear(
        f"The program's own code between the phases takes {units.share(total)} of the loop, no stretch much."
    )


def _is_placed(gap: PythonGap) -> bool:
    """Say whether it is known where a stretch was.

    What rests of the probes took longer than detail explains may be anything, other programs on the machine too.
    """
    return bool(gap.after or gap.after_operation or gap.before_operation)


def _gpu_idle(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return the share of the time in which the GPU was idle for Python, at most; None where nobody recorded that."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return None
    return 1.0 - gpu.busy_share if gpu.events.clock_is_off else gpu.idle_shares.get("python", 0.0)


def _limited(finding: Finding, idle: float) -> Finding:
    """Return the finding with no more than the share in which the GPU was idle."""
    share = min(finding.share, idle)
    return replace(finding, share=share, saving=without(share))


def _stretches(gaps: Sequence[PythonGap]) -> list[Stretch]:
    """Return the gaps by the lines around them, most time first."""
    groups: dict[tuple[Line | None, int | None], list[PythonGap]] = {}
    for gap in gaps:
        groups.setdefault((gap.after, gap.until_line), []).append(gap)
    return sorted((Stretch(tuple(group)) for group in groups.values()), key=lambda stretch: -stretch.share)


def _finding(
    stretch: Stretch, step_ns: float, sampled: Sampled | None, tensor_calls: tuple[str, ...]
) -> Finding:
    """Return the finding about one stretch, what was ``sampled`` there, and what it calls that computes on tensors."""
    gap, lines, share = stretch.longest, gap_lines(stretch.longest), stretch.share
    hottest = main_function(sampled)
    most = f", most of it in {where(hottest)}" if hottest else ""
    mostly = "mostly " if len(stretch.gaps) > 1 else ""
    words = [
        f"{units.duration(stretch.per_step_ns)} per step, {mostly}{_surroundings(gap)}; "
        f"{units.counted(gap.count, 'time')} in the steady loop."
    ]
    words += quote(sampled, "there")
    if tensor_calls and sampled is None:
        words.append(
            f"These lines call {', '.join(tensor_calls[:MOST_CALLS])}, whose work is in that time; "
            "`perfwrap run --py-spy` tells it from Python."
        )
    if step_ns < SHORT_STEP_NS:
        words.append(
            f"A whole step takes {units.duration(step_ns)}: at that length every call of Python and of torch "
            "shows, and perfwrap's own probes do, too."
        )
    return Finding(
        title=f"{SHARE} of the training loop is the program's own code {lines}{most}.",
        share=share,
        saving=without(share, NOTHING) if tensor_calls and sampled is None else without_measured(share),
        evidence=tuple(words),
        advice=_advice(stretch, f"in {where(hottest)}" if hottest else lines, step_ns),
        verdict="python-bound",
        location=locate(hottest.line) if hottest else gap_location(gap),
        confidence="inferred",
        claims=_claims([stretch]),
    )


def _surroundings(gap: PythonGap) -> str:
    """Return between which events the gap lies, as far as they were recorded."""
    before = NAMES.get(gap.after_operation, gap.after_operation)
    after = NAMES.get(gap.before_operation, gap.before_operation)
    if before and after:
        return f"between {before} and {after}"
    return f"after {before}" if before else f"before {after}"


def _scattered(stretches: Sequence[Stretch]) -> Finding:
    """Return the finding about many short stretches, which stand in order of their time."""
    share = sum(stretch.share for stretch in stretches)
    step_ns = sum(stretch.per_step_ns for stretch in stretches)
    largest = ", ".join(place(stretch.longest.after, "an unknown line") for stretch in stretches[:3])
    number = units.counted(len(stretches), "short stretch", "short stretches")
    return Finding(
        title=f"{SHARE} of the training loop is the program's own code, in {number}.",
        share=share,
        saving=without(share),
        evidence=(f"{units.duration(step_ns)} per step in all; the longest stretches are after {largest}.",),
        advice="Do more per call: read values together instead of one by one, and work on whole batches.",
        verdict="python-bound",
        location=gap_location(stretches[0].longest),
        confidence="inferred",
        claims=_claims(stretches),
    )


def _advice(stretch: Stretch, lines: str, step_ns: float) -> str:
    """Return what to change."""
    if step_ns < SHORT_STEP_NS:
        return "Do more in each step: a larger batch, or torch.compile over the whole step."
    if stretch.holds_loss:
        return (
            f"Look at the code {lines}: the loss function runs there. Replace loops over samples or values by tensor "
            "operations; if it is made of many small ones, write it with few for the whole batch, or compile it."
        )
    if stretch.longest.before_operation == "forward":
        return (
            f"Look at the code {lines}: if it makes the next batch, let DataLoader workers make it beside "
            "the training; if it keeps books, do that every N steps."
        )
    return (
        f"Look at the code {lines}: replace loops over samples by tensor operations, and keep books every N "
        "steps."
    )


def _claims(stretches: Sequence[Stretch]) -> pl.Expr:
    """Return the segments of the account in these stretches."""
    return reduce(or_, (gap.segments for stretch in stretches for gap in stretch.gaps))
