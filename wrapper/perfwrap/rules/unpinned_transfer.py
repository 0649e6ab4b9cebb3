"""Batches are copied to the GPU from memory that is not pinned.

What it finds
    Lines that copy to the GPU from pageable memory and keep the host for 2 % of the training loop or more, while the
    GPU has time left.

Why it costs
    The driver copies pageable memory into a pinned buffer of its own first, piece by piece, and the host waits for it,
    whatever non_blocking says. From pinned memory the copy goes two to three times as fast, and beside everything else.

How the saving is worked out
    Inferred: from nothing to the smaller of the host's measured time in the copy and the GPU's idle share.

How to fix
    pin_memory=True in the DataLoader, and .to(device, non_blocking=True). Tensors made by hand: tensor.pin_memory()
    in a worker or thread, not in the step.

When it is wrong
    When the machine is short of memory: pinned memory cannot be swapped. When the tensors are made anew in the step, to
    pin them there costs as much as it saves.
"""

from __future__ import annotations

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers import TransferLine
from perfwrap.measures.what_if import saving
from perfwrap.rules.copies import PINNED_SHARE, amount, costly_copies, inside
from perfwrap.rules.model import SHARE, Answer, Finding, locate, named, place

NEEDS = ("transfers", "steady_steps", "copies")


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for copies from pageable memory."""
    lines = costly_copies(
        evidence, trainer, lambda line: line.pinned < PINNED_SHARE, "Copies from pageable memory"
    )
    if not isinstance(lines, list):
        return lines
    step_ns, advice = mean_step_ns(evidence, trainer), _advice(evidence, trainer)
    return [_finding(line, share, step_ns, advice) for line, share in lines]


def _advice(evidence: Evidence, trainer: Trainer) -> str:
    """Return what to change, with the loader that makes the batches."""
    loose = [use for use in evidence.loaders(trainer) if use.training and use.pin_memory is False]
    if loose:
        return f"Give {named('the DataLoader', loose[0].created)} pin_memory=True, and copy with non_blocking=True."
    return "Have the batch in pinned memory before the step begins, and copy it with non_blocking=True."


def _finding(line: TransferLine, share: float, step_ns: float, advice: str) -> Finding:
    """Return the finding about one line."""
    return Finding(
        title=f"{line.name} at {place(line.where, 'one line')} copies to the GPU from memory that is not pinned, "
        f"and costs up to {SHARE} of the training loop.",
        share=share,
        saving=saving(step_ns, 0.0, share * step_ns),
        evidence=(amount(line),),
        advice=advice,
        verdict="transfer-bound",
        location=locate(line.where),
        experiment="pin-memory",
        confidence="inferred",
        claims=inside(line.where, line.name),
    )
