"""Copies to the GPU do not overlap with kernels.

What it finds
    In a record of the GPU's activity: time of copies to the GPU without a running kernel, plus idle time while such a
    copy was prepared, together at least 2 % of the recorded time.

Why it costs
    Copy engines can work in parallel with kernels. A copy that overlaps with nothing makes the step longer.

How the gain is estimated
    Measured: all of that time if copies overlap with the kernels of the step before; at worst half of it.

How to fix
    Copy the next batch while the current one is computed: pin_memory=True in the DataLoader and
    .to(device, non_blocking=True), on a separate stream if the loop waits for it. Copy less: smaller types, transforms
    on the GPU.

When it is wrong
    When there is no work to overlap with, as in a loop that waits for its data: then reduce that wait first.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.intervals import length
from perfwrap.measures.account.what_if import without
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.transfers.transfers import TransferLine, find_transfers
from perfwrap.rules.kernel_record import loop_share, recorded, window
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option, Scope
from perfwrap.rules.transfers._copies import NON_BLOCKING_SHARE, PINNED_SHARE

NEEDS = ("trainer", "kernels")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE


SECOND = 1e9

MAX_SET_UP = 3.0
"""How many times as long as the exposed copies the GPU may be idle in calls that copy, so that they only prepare these
copies: the host copies pageable memory to a pinned buffer first, at about the speed of the link."""

PAGEABLE = "Pageable ->"
"""Part of the names of copies from pageable memory in recordings of torch.profiler."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for copies that do not overlap with kernels."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    exposed = loop_share(evidence, trainer, gpu, length(gpu.exposed_h2d))
    set_up = _set_up(evidence, trainer)
    share = exposed + (set_up if counts_idle(evidence, trainer) else 0.0)
    if share < limits.min_reported_share:
        return Clear(
            f"Copies to the GPU without a running kernel took {units.share(exposed)} of the recorded time; "
            f"preparing them left the GPU idle {units.share(set_up)}."
        )
    loaders = [loader for loader in evidence.get(find_loaders, trainer) if loader.training]
    copies = [line for line in evidence.get(find_transfers, trainer) if line.direction == "to_gpu"]
    by_hand = bool(copies) and all(line.pinned >= PINNED_SHARE for line in copies)
    is_pinned = by_hand or (bool(loaders) and all(loader.pin_memory for loader in loaders))
    return [
        Finding(
            title=f"{SHARE} of the GPU's time is copies from the host that overlap with no kernel.",
            share=share,
            evidence=(f"In {window(gpu)}.", _copies(gpu)),
            options=_options(is_pinned, copies, share),
            verdict="transfer-bound",
            claims=pl.col("part") == "transfer",
            scope=Scope.WINDOW,
        )
    ]


def counts_idle(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether this rule counts the idle time in calls that copy.

    Far more of it than the copies take is no preparation: the calls wait for something else (``gpu_waits_for_host``).
    """
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return False
    exposed = loop_share(evidence, trainer, gpu, length(gpu.exposed_h2d))
    return 0.0 < _set_up(evidence, trainer) <= MAX_SET_UP * exposed


def _set_up(evidence: Evidence, trainer: Trainer) -> float:
    """Return the share of time in which the GPU was idle while the host was in calls that copy."""
    step = evidence.get(find_ordinary_step, trainer)
    return step.idle.get("transfer", 0.0) if step else 0.0


def _options(is_pinned: bool, copies: Sequence[TransferLine], share: float) -> tuple[Option, ...]:
    """Return the ways to copy the next batch while the current one is computed, as far as they are not used yet."""
    is_fast = bool(copies) and all(line.non_blocking >= NON_BLOCKING_SHARE for line in copies)
    settings = [
        "" if is_pinned else "pin_memory=True",
        "" if is_fast else ".to(device, non_blocking=True)",
    ]
    missing = " and ".join(setting for setting in settings if setting)
    basis = f"{units.share(share)} of the GPU's time"
    ahead = Option(
        "Copy the next batch on a separate stream while the current one is computed.", without(share), basis
    )
    if not missing:
        return (ahead,)
    experiment = "pin-memory" if not is_pinned else "non-blocking" if copies else None
    return (Option(f"Use {missing}.", without(share), basis, experiment), ahead)


def _copies(gpu: GpuActivity) -> str:
    """Return the number, size and speed of the copies."""
    rows = gpu.events.table.filter(pl.col("operation") == "h2d")
    spent = int((rows["end"] - rows["start"]).sum())
    text = f"{units.counted(rows.height, 'copy', 'copies')} to the GPU took {units.duration(spent)}"
    size = int(rows["value"].sum())
    if size and spent:
        text += f" for {units.size(size)} ({units.size(size / spent * SECOND)}/s)"
    pageable = rows.filter(pl.col("name").str.contains(PAGEABLE)).height
    return text + (f"; {units.count(pageable)} of them from pageable memory." if pageable else ".")
