"""Copies from pinned memory wait because non_blocking=True is missing.

What it finds
    Lines that copy to the GPU from pinned memory without non_blocking=True and take at least 2 % of the training loop
    on the host while the GPU has idle time.

Why it costs
    The memory is pinned, so the copy could run in the background. Without non_blocking=True the host waits until the
    copy and everything launched before it on that stream is done.

How the gain is estimated
    Estimated: from zero to the smaller of the host's measured time in the copy and the GPU's idle share.

How to fix
    .to(device, non_blocking=True) or .cuda(non_blocking=True) at that line.

When it is wrong
    When the program overwrites the batch on the host right after the copy: then it must wait.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers.transfers import TransferLine
from perfwrap.rules.model import SHARE, Answer, Finding, Option, locate, place
from perfwrap.rules.transfers._copies import NON_BLOCKING_SHARE, PINNED_SHARE, amount, costly_copies, inside

NEEDS = ("transfers", "steady_steps", "copies")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    pinned_share: float = PINNED_SHARE
    non_blocking_share: float = NON_BLOCKING_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for copies that wait."""
    lines = costly_copies(
        evidence, trainer, lambda line: _waits(line, limits), "Blocking copies from pinned memory"
    )
    if not isinstance(lines, list):
        return lines
    step_ns = mean_step_ns(evidence, trainer)
    return [_finding(line, share, step_ns) for line, share in lines]


def _waits(line: TransferLine, limits: Limits) -> bool:
    """Return whether a line waits for a copy that could run in the background."""
    return line.pinned >= limits.pinned_share and line.non_blocking < limits.non_blocking_share


def _finding(line: TransferLine, share: float, step_ns: float) -> Finding:
    """Return the finding about one line."""
    where = place(line.where, "one line")
    return Finding(
        title=f"{line.name} at {where} waits for its copy from pinned memory, which costs up to {SHARE} of the "
        "training loop.",
        share=share,
        evidence=(amount(line),),
        options=(
            Option(
                f"Pass non_blocking=True to {line.name} at {where}.",
                saving(step_ns, 0.0, share * step_ns),
                experiment="non-blocking",
            ),
        ),
        verdict="transfer-bound",
        location=locate(line.where),
        confidence="inferred",
        claims=inside(line.where, line.name),
    )
