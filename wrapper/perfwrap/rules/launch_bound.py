"""The GPU is idle while the host launches its work.

What it finds
    Idle time of the GPU, in a record of its kernels, during which the host was launching (in the framework's functions
    or in the driver): 2 % of the recorded time or more.

Why it costs
    Each kernel takes the host some 5 to 50 microseconds of Python, dispatch and driver. Where kernels are shorter than
    that the GPU finishes each before the next one is there, and a faster GPU changes nothing.

How the saving is worked out
    Inferred: at best all of that idle time goes, as with a CUDA graph that launches a whole step at once, at worst half
    of it.

How to fix
    torch.compile, best with mode="reduce-overhead" (CUDA graphs), where shapes do not change; fused or foreach
    optimizers; a larger batch, so that each kernel has more to do.

When it is wrong
    A profiler that records each function slows the host by up to a half and makes this share larger than it is
    without. In a record of the first steps the host loads kernels, which it does once only.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.kernel_marks import of_kernels
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import window, with_blame
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

TINY_KERNEL_NS = 10 * units.MICROSECOND
"""The catalogue's figure for kernels that are too small."""
MANY_TINY = 0.5
"""Of the kernels, from which it is said."""

LEAST_REMOVED = 0.5
"""Of the idle time, what goes at worst: compiled steps still launch, but one kernel for several."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for idle time during which the host was launching."""
    gpu = with_blame(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    share = gpu.idle_shares.get("dispatch", 0.0)
    if share < QUIET_SHARE:
        return Clear(f"The GPU waited for launches {units.share(share)} of the recorded time.")
    return [
        Finding(
            title=f"The GPU is idle {SHARE} of the time while the host launches its kernels one by one.",
            share=share,
            saving=(1.0 - share, 1.0 - share * LEAST_REMOVED),
            evidence=(f"Seen in {window(gpu)}.", *_figures(gpu)),
            advice='Try torch.compile(model, mode="reduce-overhead"), which launches whole graphs at once; then a '
            "fused optimizer and a larger batch.",
            verdict="launch-bound",
            experiment="compile=reduce-overhead",
            confidence="inferred",
            of_window=True,
        )
    ]


def _figures(gpu: GpuActivity) -> list[str]:
    """Return what tells that the host cannot keep up."""
    launches = gpu.launches
    texts = []
    if launches.kernel_ns is not None and launches.short_share is not None:
        texts.append(
            f"The median kernel takes {units.duration(launches.kernel_ns)} and the call that launches it "
            f"{units.duration(launches.call_ns)} of the host; {units.share(launches.short_share)} of the kernels "
            "are shorter than their call."
        )
    steps = gpu.steps.table
    if steps.height:
        per_step = float(steps["kernels"].sum()) / steps.height
        texts.append(f"{units.number(per_step, 3)} kernels are launched per step.")
    tiny = of_kernels(gpu).select((pl.col("ns") < TINY_KERNEL_NS).mean()).item()
    if tiny is not None and tiny >= MANY_TINY:
        texts.append(
            f"{units.share(tiny)} of the kernels take less than {units.duration(TINY_KERNEL_NS)}, about what launching "
            "one takes."
        )
    if launches.run_ahead_ns is not None:
        texts.append(
            f"Half of the kernels begin within {units.duration(launches.run_ahead_ns)} of their launch: the host is "
            "seldom further ahead than that."
        )
    return texts
