"""The program asks the driver for GPU memory again and again, and the GPU is idle meanwhile.

What it finds
    Idle time of the GPU, in a record of its kernels, during which the host was in calls that allocate or free memory
    (cudaMalloc, cudaFree, cudaHostAlloc, hipFree and the like): 2 % of the recorded time or more. Without that,
    PyTorch's own count of the times in the steady loop that it found no memory, freed its cache and asked again
    (num_alloc_retries): two or more.

Why it costs
    PyTorch's caching allocator asks the driver only until it has what a step needs. Calls in steady steps mean that
    it is switched off, that memory is nearly full so that it frees and asks again, or that sizes change all the time.
    cudaFree and hipFree also wait for all of the GPU's work.

How the saving is worked out
    Measured: the idle time inside of such calls goes; at worst half of it, as waiting for the GPU may move elsewhere.

How to fix
    Switch the caching allocator on (PYTORCH_NO_CUDA_MEMORY_CACHING unset), set
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, remove empty_cache() from the loop, lower the peak (smaller batch,
    activation checkpointing), keep sizes alike.

When it is wrong
    In a record of the first steps, where the allocator fills for the first time.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.host_activity import ALLOCATION
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.kernel_record import window, with_blame
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer",)

LEAST_CALLS = 10
"""Fewer calls are the allocator filling up, however long each took."""

NAMED = 3
"""Calls that are named."""

LEAST_RETRIES = 2
"""One may be the first validation, or a batch that is longer than all before."""
RETRIES = "alloc_retries_count"
"""The recorder's series of num_alloc_retries, for each GPU."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for idle time inside of calls that allocate or free."""
    retries = _retries(evidence, trainer)
    if retries >= LEAST_RETRIES and evidence.missing("kernels") is not None:
        return [_retried(retries)]
    gpu = with_blame(evidence, trainer)
    if isinstance(gpu, NotChecked):
        missing = evidence.missing("kernels")
        return [_retried(retries)] if retries >= LEAST_RETRIES else NotChecked(missing or gpu.why)
    share = gpu.idle_shares.get("allocation", 0.0)
    calls = _calls(evidence, trainer, gpu)
    count = int(calls["len"].sum())
    if share < QUIET_SHARE or count < LEAST_CALLS:
        if retries >= LEAST_RETRIES:
            return [_retried(retries)]
        return Clear(
            f"{units.counted(count, 'call')} to allocate or free left the GPU idle {units.share(share)} of the "
            "recorded time."
        )
    named = [
        f"{units.counted(number, f'call of {name}', f'calls of {name}')} ({units.duration(spent)})"
        for name, number, spent in calls.head(NAMED).iter_rows()
    ]
    return [
        Finding(
            title=f"The GPU is idle {SHARE} of the time while memory is allocated and freed.",
            share=share,
            saving=without(share),
            evidence=(f"Seen in {window(gpu)}: {', '.join(named)}.",),
            advice="Keep memory instead of allocating it in the loop. PyTorch does so by itself: no "
            "PYTORCH_NO_CUDA_MEMORY_CACHING, no empty_cache() in the loop, "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; if the card is nearly full, lower the peak. Other "
            "programs take a pool (cudaMallocAsync).",
            verdict="memory-bound",
            of_window=True,
        )
    ]


def _retried(retries: int) -> Finding:
    """Return the finding by PyTorch's own count, which says nothing about time."""
    return Finding(
        title=f"PyTorch ran out of GPU memory, freed its cache and tried again {units.counted(retries, 'time')} in the "
        "steady loop.",
        share=0.0,
        saving=(1.0, 1.0),
        evidence=("Each of them waits for all of the GPU's work and frees what the next step needs again.",),
        advice="Lower the peak a little (smaller batch, activation checkpointing), or set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        health=True,
    )


def _retries(evidence: Evidence, trainer: Trainer) -> int:
    """Return how often PyTorch's allocator tried again in the steady loop, on the GPU of the host with most of it."""
    account = evidence.account(trainer)
    tracks = evidence.timeline.tracks
    gpus = tracks.filter(pl.col("kind") == "gpu", pl.col("host") == trainer.host)["name"].to_list()
    found = [0]
    for name in gpus:
        rows = evidence.series(name, RETRIES, trainer.host)
        before = rows.filter(pl.col("time") < account.start)["value"].tail(1)
        inside = rows.filter(pl.col("time").is_between(account.start, account.end))["value"]
        if inside.len():
            begun = float(before[0]) if before.len() else float(inside[0])
            found.append(round(float(inside[-1]) - begun))
    return max(found)


def _calls(evidence: Evidence, trainer: Trainer, gpu: GpuActivity) -> pl.DataFrame:
    """Return name, number and time of the calls while the GPU was watched, the most time first."""
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
