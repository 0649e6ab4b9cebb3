"""The program asks the driver for GPU memory again and again, and the GPU is idle meanwhile.

What it finds
    Idle time of the GPU, in a record of its kernels, during which the host was in calls that allocate or free memory
    (cudaMalloc, cudaFree, cudaHostAlloc, hipFree and the like): 2 % of the recorded time or more.

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
from perfwrap.rules.kernel_record import window, with_blame
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

LEAST_CALLS = 10
"""Fewer calls are the allocator filling up, however long each took."""

NAMED = 3
"""Calls that are named."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for idle time inside of calls that allocate or free."""
    gpu = with_blame(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    share = gpu.idle_shares.get("allocation", 0.0)
    calls = _calls(evidence, trainer, gpu)
    count = int(calls["len"].sum())
    if share < QUIET_SHARE or count < LEAST_CALLS:
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
            saving=(1.0 - share, 1.0 - share / 2),
            evidence=(f"Seen in {window(gpu)}: {', '.join(named)}.",),
            advice="Let PyTorch keep its memory: no PYTORCH_NO_CUDA_MEMORY_CACHING, no empty_cache() in the loop, "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; if the card is nearly full, lower the peak.",
            verdict="memory-bound",
            of_window=True,
        )
    ]


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
