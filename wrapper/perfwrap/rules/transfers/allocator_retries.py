"""The loop allocates and frees GPU memory again and again, and the GPU is idle meanwhile.

What it finds
    GPU idle time, in a record of its kernels, while the host was in calls that allocate or free memory (cudaMalloc,
    cudaFree, cudaHostAlloc, hipFree and similar): at least 2 % of the recorded time. Without such a record, PyTorch's
    own count of failed allocations in the steady loop after which it freed its cache and retried (num_alloc_retries):
    at least two.

Why it costs
    PyTorch's caching allocator asks the driver only until it has what a step needs. Calls in steady steps mean that it
    is disabled, that memory is nearly full so that it frees and asks again, or that sizes change all the time. cudaFree
    and hipFree also wait for all work of the GPU.

How the gain is estimated
    Measured: the idle time inside such calls. At worst half of it, because waits for the GPU may move elsewhere.

How to fix
    Enable the caching allocator (unset PYTORCH_NO_CUDA_MEMORY_CACHING), set
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, remove empty_cache() from the loop, reduce peak memory (smaller
    batch, activation checkpointing), keep sizes constant.

When it is wrong
    In a record of the first steps, where the allocator fills for the first time.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.kernels.host_activity import ALLOCATION
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.loop.cache_calls import find_cache_calls
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import window, with_blame
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option, Scope
from perfwrap.rules.needs import why_missing
from perfwrap.timeline.lookup import samples_of

NEEDS = ("trainer",)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_calls: int = 10
    """Fewer calls are the allocator filling up, however long each took."""
    max_emptied_per_step: float = 0.1
    """Calls of torch.cuda.empty_cache() per step from which they are the cause, which another rule reports."""
    max_named: int = 3
    """How many kinds of calls are named."""
    min_retries: int = 2
    """One retry may be the first validation, or the longest batch so far."""


RETRIES = "alloc_retries_count"
"""The recorder's series of num_alloc_retries, per GPU."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for idle time inside calls that allocate or free."""
    retries = _retries(evidence, trainer)
    if retries >= limits.min_retries and evidence.get(why_missing, "kernels") is not None:
        return [_retried(retries)]
    gpu = with_blame(evidence, trainer)
    if isinstance(gpu, NotChecked):
        missing = evidence.get(why_missing, "kernels")
        return [_retried(retries)] if retries >= limits.min_retries else NotChecked(missing or gpu.why)
    step = evidence.get(find_ordinary_step, trainer)
    share = step.idle.get("allocation", 0.0) if step else 0.0
    calls = _calls(evidence, trainer, gpu)
    count = int(calls["len"].sum())
    if share < limits.min_reported_share or count < limits.min_calls:
        if retries >= limits.min_retries:
            return [_retried(retries)]
        return Clear(
            f"{units.counted(count, 'call')} to allocate or free left the GPU idle {units.share(share)} of the "
            "recorded time."
        )
    emptied = evidence.get(find_cache_calls, trainer)
    if emptied.per_step >= limits.max_emptied_per_step:
        return Clear(
            f"The GPU is idle {units.share(share)} of the time while memory is allocated and freed, because the loop "
            "calls torch.cuda.empty_cache() (see empty_cache_in_step)."
        )
    named = [
        f"{units.counted(number, f'call of {name}', f'calls of {name}')} ({units.duration(spent)})"
        for name, number, spent in calls.head(limits.max_named).iter_rows()
    ]
    return [
        Finding(
            title=f"The GPU is idle {SHARE} of the time while memory is allocated and freed.",
            share=share,
            evidence=(f"In {window(gpu)}: {', '.join(named)}.",),
            options=(
                Option(
                    "Do not allocate in the loop: remove empty_cache() and unset PYTORCH_NO_CUDA_MEMORY_CACHING.",
                    without(share),
                    f"{units.share(share)} of the GPU's time is idle meanwhile",
                    "no-empty-cache",
                    "If the GPU memory is nearly full, reduce the peak. Other programs can use a pool "
                    "(cudaMallocAsync).",
                ),
                Option(
                    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
                    without(share),
                    experiment="expandable-segments",
                ),
            ),
            verdict="memory-bound",
            scope=Scope.WINDOW,
        )
    ]


def _retried(retries: int) -> Finding:
    """Return the finding from PyTorch's own count, which says nothing about time."""
    return Finding(
        title=f"PyTorch ran out of GPU memory, freed its cache and retried {units.counted(retries, 'time')} in the "
        "steady loop.",
        share=0.0,
        evidence=(
            "Each retry waits for all work of the GPU and frees memory that the next step needs again.",
        ),
        options=(
            Option("Reduce peak memory a little: a smaller batch, or activation checkpointing.", (1.0, 1.0)),
            Option(
                "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
                (1.0, 1.0),
                experiment="expandable-segments",
            ),
        ),
        health=True,
    )


def _retries(evidence: Evidence, trainer: Trainer) -> int:
    """Return how often PyTorch's allocator retried in the steady loop, on the GPU of the host with most retries."""
    account = evidence.get(find_account, trainer)
    tracks = evidence.timeline.tracks
    gpus = tracks.filter(pl.col("kind") == "gpu", pl.col("host") == trainer.host)["name"].to_list()
    found = [0]
    for name in gpus:
        rows = samples_of(evidence.timeline, name, RETRIES, trainer.host)
        before = rows.filter(pl.col("time") < account.start)["value"].tail(1)
        inside = rows.filter(pl.col("time").is_between(account.start, account.end))["value"]
        if inside.len():
            begun = float(before[0]) if before.len() else float(inside[0])
            found.append(round(float(inside[-1]) - begun))
    return max(found)


def _calls(evidence: Evidence, trainer: Trainer, gpu: GpuActivity) -> pl.DataFrame:
    """Return name, number and time of the calls while the GPU was recorded, longest first."""
    tracks = evidence.timeline.tracks
    threads = tracks.filter(pl.col("kind") == "thread", pl.col("parent") == trainer.process)["id"]
    start, end = int(gpu.events.windows[0][0]), int(gpu.events.windows[1][-1])
    spans = evidence.timeline.spans.filter(
        pl.col("track").is_in(threads.implode()),
        pl.col("start").is_between(start, end),
        pl.col("operation").str.contains(ALLOCATION),
    )
    calls = spans.group_by("operation").agg(pl.len(), pl.col("duration").sum())
    return calls.sort("duration", "operation", descending=[True, False])
