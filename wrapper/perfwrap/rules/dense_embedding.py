"""The optimizer goes over all rows of large embeddings, of which a step reads few.

What it finds
    An Adam, AdamW, Adagrad or SGD on a CPU whose tensors are mostly large embeddings without sparse=True, of whose
    rows a twentieth or less had a gradient, and whose work on the other rows takes 5 % of the training loop or more.

Why it costs
    The gradient of an embedding is a table as large as the embedding itself, zero but for the rows that the batch
    named. The optimizer reads and writes all of it, with its moments, several times; zeroing and filling it
    costs the backward pass, too.

How the saving is worked out
    The time of the step is measured, and so are the rows with a gradient, at the optimizer's first step. Per element an
    optimizer takes the same for all tensors of that size. At best the work on rows without a gradient goes,
    and up to three tenths more, as what stands beside it runs faster then. With
    sparse=True a step took, for 0.2 to 5 % of the rows, 1 to 23 % of what it took before with Adam, 2 to 28 % with
    Adagrad and 4 to 53 % with SGD (60,000 rows of 16 and 100,000 of 64; torch 2.13, one thread). What the backward
    pass gains besides is not counted.

How to fix
    Make the embedding with sparse=True, and give its weight to torch.optim.SparseAdam, apart from the rest of the
    model. Adagrad takes such gradients itself, and so does SGD without momentum and weight decay.

When it is wrong
    SparseAdam leaves the moments of a row alone in steps that do not read it, and has no weight decay: that is another
    optimizer, mostly as good for embeddings, which has to be tried. When the first step read far fewer rows than
    later ones. On a GPU nobody looks, since the host would have to wait.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import trains_on_gpu
from perfwrap.measures.optimizers import Embeddings, OptimizerUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without_measured
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, place

NEEDS = ("steady_steps", "options")

KINDS = {
    "torch.optim.adam.Adam": "SparseAdam",
    "torch.optim.adamw.AdamW": "SparseAdam",
    "torch.optim.adagrad.Adagrad": "",
    "torch.optim.sgd.SGD": "",
}
"""Torch's optimizers by what takes sparse gradients in their place: nothing where they do themselves."""

MOST_TOUCHED = 0.05
"""Share of the rows up to which sparse updates are known to be quicker: measured, see above."""

SPARSE_ROW = 6.0
SPARSE_ROW_OF_SGD = 11.0
"""What a row costs with sparse gradients over what it costs without: measured, see above."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for optimizers that work on rows which no step named."""
    if trains_on_gpu(evidence, trainer):
        return NotChecked("Which rows of an embedding have gradients is looked at on a CPU only.")
    uses = [use for use in evidence.optimizers(trainer) if use.kind in KINDS and use.share >= MINOR_SHARE]
    if not uses:
        return Clear("No optimizer of torch's that updates all rows takes much of the loop.")
    known = [use for use in uses if use.elements]
    if not known:
        return NotChecked(
            "Which tensors the optimizers update was not told: record the run again with this version."
        )
    found = [
        _finding(use, seen, share)
        for use in known
        if (seen := use.embeddings) is not None
        and not use.fused
        and seen.touched <= MOST_TOUCHED
        and (share := _wasted(use, seen)) >= MINOR_SHARE
    ]
    return found or Clear("No optimizer spends much of its time on rows of embeddings that have no gradient.")


def _wasted(use: OptimizerUse, seen: Embeddings) -> float:
    """Return the share of the loop in which it works on rows without a gradient."""
    return use.share * seen.elements / (use.elements or seen.elements) * (1.0 - seen.touched)


def _finding(use: OptimizerUse, seen: Embeddings, share: float) -> Finding:
    """Return the finding about one optimizer."""
    kind = use.kind.rpartition(".")[2]
    best, worst = without_measured(share)
    left = min(1.0, (SPARSE_ROW_OF_SGD if kind == "SGD" else SPARSE_ROW) * seen.touched)
    return Finding(
        title=f"{SHARE} of the training loop is {kind}.step() at {place(use.where, 'one line')} on rows of "
        "embeddings that the step did not read.",
        share=share,
        saving=(best, worst + left * (1.0 - worst)),
        evidence=(
            f"Of {units.count(seen.rows)} rows of embeddings {units.share(seen.touched)} had a gradient at its first "
            f"step, and it updates all of them: {units.duration(use.ns_per_step)} per step.",
            f"These embeddings are {units.share(seen.elements / (use.elements or seen.elements))} of what it updates.",
        ),
        advice=_advice(kind, KINDS[use.kind]),
        verdict="compute-bound",
        location=locate(use.where),
        confidence="inferred",
        claims=(pl.col("operation") == "optimizer")
        & (pl.col("name") == use.name)
        & (pl.col("part") == "optimizer"),
    )


def _advice(kind: str, instead: str) -> str:
    """Return what to change."""
    if instead:
        return (
            f"Make these embeddings with sparse=True and give their weights to torch.optim.{instead}, the rest to "
            f"{kind} as before: it updates only the rows that a step read (and has no weight decay). Where all rows "
            f"must change in each step, {kind}(fused=True) does it in one pass."
        )
    condition = ", without momentum and weight decay" if kind == "SGD" else ""
    return f"Make these embeddings with sparse=True: {kind} then updates only the rows that a step read{condition}."
