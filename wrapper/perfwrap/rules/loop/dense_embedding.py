"""The optimizer updates all rows of large embeddings, although a step reads few of them.

What it finds
    An Adam, AdamW, Adagrad or SGD on a CPU whose tensors are mostly large embeddings without sparse=True, if at most
    10 % of their rows had a gradient and the work on the other rows takes at least 5 % of the training loop. A
    parameter of the program's own class counts as one from 1,000 rows on: programs read rows of it by an index.

Why it costs
    The gradient of an embedding is a table as large as the embedding, zero except for the rows that the batch used. The
    optimizer reads and writes all of it several times, together with its moments; zeroing and filling it also costs
    time in the backward pass.

How the gain is estimated
    Measured: the time of the optimizer step, and the rows with a gradient at the optimizer's first step. An optimizer
    takes the same time per element for all large tensors. At best the work on rows without a gradient disappears, plus
    up to six tenths, because nearby code also gets faster. With sparse=True and 0.2 to 5 % of the rows, a step took 1
    to 23 % of its previous time with Adam, 2 to 28 % with Adagrad and 4 to 53 % with SGD (60,000 rows of 16 and 100,000
    of 64; torch 2.13, one thread); with 10 % of the rows 24 to 58 %. Savings in the backward pass are not counted.

How to fix
    Create the embedding with sparse=True, and give its weight to torch.optim.SparseAdam, separate from the rest of the
    model. Adagrad accepts such gradients, and so does SGD without momentum and weight decay. Of a parameter, read the
    rows by torch.nn.functional.embedding with sparse=True instead of an index.

When it is wrong
    SparseAdam does not update the moments of a row in steps that do not read it, and has no weight decay: it is another
    optimizer, usually as good for embeddings, but you must test it. When the first step reads far fewer rows than later
    ones. On a GPU this is not checked, because the host would have to wait.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.account.what_if import NOTHING, without, without_measured
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts, torch_version
from perfwrap.measures.loop.optimizers import FIRST_FUSED_ON_CPU, Embeddings, OptimizerUse, find_optimizers
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option, locate, place

NEEDS = ("steady_steps", "options")

KINDS = {
    "torch.optim.adam.Adam": "SparseAdam",
    "torch.optim.adamw.AdamW": "SparseAdam",
    "torch.optim.adagrad.Adagrad": "",
    "torch.optim.sgd.SGD": "",
}
"""torch's optimizers and their replacement for sparse gradients; empty if they accept them."""

OF_PARAMETER = (
    "A parameter that is indexed needs torch.nn.functional.embedding(ids, table, sparse=True) instead."
)
"""How to get sparse gradients of a table that is in no module of torch."""


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    minor_share: float = MINOR_SHARE
    max_rows_share: float = 0.10
    """Share of the rows up to which sparse updates are known to be faster (measured, see above)."""
    sparse_row_cost: float = 6.0
    sparse_row_cost_sgd: float = 11.0
    """Cost of a row with sparse gradients over its cost without (measured, see above)."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for optimizers that update rows which no step used."""
    if trains_on_gpu(evidence, trainer):
        return NotChecked("Embedding rows with gradients are recorded on a CPU only.")
    uses = [
        use
        for use in evidence.get(find_optimizers, trainer)
        if use.kind in KINDS and use.share >= limits.minor_share
    ]
    if not uses:
        return Clear("No optimizer that updates all rows takes much of the loop.")
    known = [use for use in uses if use.elements]
    if not known:
        return NotChecked(
            "The tensors of the optimizers are missing in this recording; record again with this version."
        )
    can_fuse = torch_version(evidence.get(find_facts, trainer.process)) >= FIRST_FUSED_ON_CPU
    found = [
        _finding(use, seen, share, limits, can_fuse)
        for use in known
        if (seen := use.embeddings) is not None
        and not use.fused
        and seen.touched <= limits.max_rows_share
        and (share := _wasted(use, seen)) >= limits.minor_share
    ]
    return found or Clear("No optimizer spends much time on embedding rows without a gradient.")


def _wasted(use: OptimizerUse, seen: Embeddings) -> float:
    """Return the share of the loop in which it updates rows without a gradient."""
    return use.share * seen.elements / (use.elements or seen.elements) * (1.0 - seen.touched)


def _finding(use: OptimizerUse, seen: Embeddings, share: float, limits: Limits, can_fuse: bool) -> Finding:
    """Return the finding about one optimizer."""
    kind = use.kind.rpartition(".")[2]
    best, worst = without_measured(share)
    left = min(1.0, (limits.sparse_row_cost_sgd if kind == "SGD" else limits.sparse_row_cost) * seen.touched)
    return Finding(
        title=f"{SHARE} of the training loop is {kind}.step() at {place(use.where, 'one line')} updating embedding "
        "rows that the step did not use.",
        share=share,
        evidence=(
            f"{units.share(seen.touched)} of {units.count(seen.rows)} embedding rows had a gradient at its first "
            f"step, but it updates all of them: {units.duration(use.ns_per_step)} per step.",
            f"These embeddings are {units.share(seen.elements / (use.elements or seen.elements))} of its elements.",
        ),
        options=_options(kind, KINDS[use.kind], seen, share, (best, worst + left * (1.0 - worst)), can_fuse),
        verdict="compute-bound",
        location=locate(use.where),
        confidence="inferred",
        claims=(pl.col("operation") == "optimizer")
        & (pl.col("name") == use.name)
        & (pl.col("part") == "optimizer"),
    )


def _options(
    kind: str, instead: str, seen: Embeddings, share: float, saving: tuple[float, float], can_fuse: bool
) -> tuple[Option, ...]:
    """Return the ways to update fewer rows, or all of them faster."""
    basis = f"{units.share(seen.touched)} of {units.count(seen.rows)} rows used"
    if not instead:
        condition = ", without momentum and weight decay" if kind == "SGD" else ""
        edit = (
            f"Create these embeddings with sparse=True: {kind} then updates only the rows that a step "
            f"used{condition}."
        )
        return (Option(edit, saving, basis, details=OF_PARAMETER),)
    sparse = Option(
        f"Create these embeddings with sparse=True and give their weights to torch.optim.{instead}, the rest to {kind} "
        "as before.",
        saving,
        basis,
        details=f"It updates only the rows that a step used (and has no weight decay). {OF_PARAMETER}",
    )
    fused = Option(
        f"Pass fused=True to {kind}, if all rows must change in each step.",
        without(share, NOTHING),
        "all rows in one pass",
        "fused-optimizer",
    )
    return (sparse, fused) if can_fuse else (sparse,)
