"""Copies to the GPU run while no kernel does.

What it finds
    Time, in a record of what the GPU did, during which data was copied to it and no kernel ran, and idle time in
    which such a copy was being set up: together 2 % of the recorded time or more.

Why it costs
    Copy engines work beside the kernels. A copy that nothing runs beside makes the step longer by its whole length.

How the saving is worked out
    Measured: all of that time goes when copies are hidden behind the kernels of the step before; at worst half of it.

How to fix
    Copy the next batch while the present one is computed: pin_memory=True in the DataLoader and
    .to(device, non_blocking=True), on a stream of its own where the loop waits for it. Copy less: smaller types,
    transforms on the GPU.

When it is wrong
    When there is no work to hide the copy behind, as in a loop that waits for its data: then the wait comes first.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.intervals import length
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.kernel_record import recorded, window
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

SECOND = 1e9

PAGEABLE = "Pageable ->"
"""Stands in the names of copies from such memory, where torch.profiler recorded them."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for copies that no kernel hides."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    exposed = length(gpu.exposed_h2d) / gpu.window_ns
    set_up = gpu.idle_shares.get("transfer", 0.0)
    share = exposed + set_up if exposed else 0.0
    if share < QUIET_SHARE:
        return Clear(
            f"Copies to the GPU ran alone {units.share(exposed)} of the recorded time, and being set up left it "
            f"idle {units.share(set_up)}."
        )
    return [
        Finding(
            title=f"{SHARE} of the GPU's time goes to copies from the host that no kernel runs beside.",
            share=share,
            saving=without(share),
            evidence=(f"Seen in {window(gpu)}.", _copies(gpu)),
            advice="Copy the next batch while the present one is computed: pin_memory=True, "
            ".to(device, non_blocking=True), and a prefetch on a stream of its own.",
            verdict="transfer-bound",
            experiment="pin-memory",
            claims=pl.col("part") == "transfer",
            of_window=True,
        )
    ]


def _copies(gpu: GpuActivity) -> str:
    """Return how many copies there were, how large, and how fast."""
    rows = gpu.events.table.filter(pl.col("operation") == "h2d")
    spent = int((rows["end"] - rows["start"]).sum())
    text = f"{units.counted(rows.height, 'copy', 'copies')} to the GPU took {units.duration(spent)}"
    size = int(rows["value"].sum())
    if size and spent:
        text += f" for {units.size(size)} ({units.size(size / spent * SECOND)}/s)"
    loose = rows.filter(pl.col("name").str.contains(PAGEABLE)).height
    return text + (f"; {units.count(loose)} of them from memory that is not pinned." if loose else ".")
