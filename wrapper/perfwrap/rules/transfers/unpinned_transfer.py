"""Batches are copied to the GPU from memory that is not pinned.

What it finds
    Lines that copy to the GPU from pageable memory and take at least 2 % of the training loop on the host while the GPU
    has idle time.

Why it costs
    The driver first copies pageable memory into its own pinned buffer, piece by piece, and the host waits for that even
    with non_blocking=True. From pinned memory the copy is two to three times as fast and overlaps with other work.

How the gain is estimated
    Estimated: from zero to the smaller of the host's measured time in the copy and the GPU's idle share.

How to fix
    pin_memory=True in the DataLoader, and .to(device, non_blocking=True). For tensors made by hand: tensor.pin_memory()
    in a worker or thread, not in the step.

When it is wrong
    When the machine is short of memory: pinned memory cannot be swapped. If the tensors are created in the step,
    pinning them there costs as much as it saves.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers.transfers import TransferLine
from perfwrap.rules.model import SHARE, Answer, Finding, Option, locate, named, place
from perfwrap.rules.transfers._copies import NON_BLOCKING_SHARE, PINNED_SHARE, amount, costly_copies, inside

NEEDS = ("transfers", "steady_steps", "copies")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    pinned_share: float = PINNED_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for copies from pageable memory."""
    lines = costly_copies(
        evidence, trainer, lambda line: line.pinned < limits.pinned_share, "Copies from pageable memory"
    )
    if not isinstance(lines, list):
        return lines
    step_ns = mean_step_ns(evidence, trainer)
    loaders = [use for use in evidence.get(find_loaders, trainer) if use.training]
    return [_finding(line, share, step_ns, loaders) for line, share in lines]


def _advice(line: TransferLine, unpinned: LoaderUse | None) -> str:
    """Return what to change, with the DataLoader that makes the batches."""
    copy = "" if line.non_blocking >= NON_BLOCKING_SHARE else ", and copy with non_blocking=True"
    if unpinned is not None:
        return f"Pass pin_memory=True to {named('the DataLoader', unpinned.created)}{copy}."
    return f"Pin the batch before the step starts{copy}."


def _finding(line: TransferLine, share: float, step_ns: float, loaders: Sequence[LoaderUse]) -> Finding:
    """Return the finding about one line."""
    unpinned = next((use for use in loaders if use.pin_memory is False), None)
    return Finding(
        title=f"{line.name} at {place(line.where, 'one line')} copies to the GPU from memory that is not pinned, "
        f"which costs up to {SHARE} of the training loop.",
        share=share,
        evidence=(amount(line),),
        options=(
            Option(
                _advice(line, unpinned),
                saving(step_ns, 0.0, share * step_ns),
                f"{units.share(share)} of the loop copies from pageable memory",
                None if loaders and unpinned is None else "pin-memory",
            ),
        ),
        verdict="transfer-bound",
        location=locate(line.where),
        confidence="inferred",
        claims=inside(line.where, line.name),
    )
