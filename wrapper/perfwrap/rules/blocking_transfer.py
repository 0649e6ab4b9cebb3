"""Copies from pinned memory make the host wait, though they need not.

What it finds
    Lines that copy to the GPU from pinned memory without non_blocking=True and keep the host for 2 % of the training
    loop or more, while the GPU has time left.

Why it costs
    The memory is pinned, so the copy could go on behind the host's back. Without non_blocking=True the host waits until
    the copy is done, and for all that was launched on that stream before it.

How the saving is worked out
    Inferred: from nothing to the smaller of the host's measured time in the copy and the GPU's idle share.

How to fix
    .to(device, non_blocking=True), or .cuda(non_blocking=True), at that line.

When it is wrong
    When the program overwrites the batch on the host right after the copy: then it must wait.
"""

from __future__ import annotations

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers import TransferLine
from perfwrap.measures.what_if import saving
from perfwrap.rules.copies import PINNED_SHARE, amount, costly_copies, inside
from perfwrap.rules.model import SHARE, Answer, Finding, locate, place

NEEDS = ("transfers", "steady_steps", "copies")

FAST_SHARE = 0.5
"""Share of a line's calls with non_blocking from which it counts as one that does not wait."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for copies that wait."""
    lines = costly_copies(evidence, trainer, _waits, "Copies from pinned memory that wait")
    if not isinstance(lines, list):
        return lines
    step_ns = mean_step_ns(evidence, trainer)
    return [_finding(line, share, step_ns) for line, share in lines]


def _waits(line: TransferLine) -> bool:
    """Say whether a line waits for what could go on behind it."""
    return line.pinned >= PINNED_SHARE and line.non_blocking < FAST_SHARE


def _finding(line: TransferLine, share: float, step_ns: float) -> Finding:
    """Return the finding about one line."""
    where = place(line.where, "one line")
    return Finding(
        title=f"{line.name} at {where} waits for its copy from pinned memory, and costs up to {SHARE} of the training "
        "loop.",
        share=share,
        saving=saving(step_ns, 0.0, share * step_ns),
        evidence=(amount(line),),
        advice=f"Add non_blocking=True to {line.name} at {where}.",
        verdict="transfer-bound",
        location=locate(line.where),
        experiment="non-blocking",
        confidence="inferred",
        claims=inside(line.where, line.name),
    )
