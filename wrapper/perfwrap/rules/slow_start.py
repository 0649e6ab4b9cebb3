"""Much time passes before the first step is done.

What it finds
    Five seconds or more until the end of the first step, the import of torch and the start of Python not
    counted, when that is a tenth of the whole run or more.

Why it costs
    It is paid for every start: each try, each restart after a failure, each rank.

How the saving is worked out
    It is a share of the whole run, not of a step, and a longer run dilutes it; so it is never worse than
    minor, and no saving per step is claimed.

How to fix
    Look at the largest part: prepare data once and store it, load it lazily, start fewer workers, keep
    compiled graphs in a cache.

When it is wrong
    When the run was cut short to try something: the same start before hours of training is nothing.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.start_up import StartUp
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("steps", "start_up")

LONG_NS = 5 * units.SECOND
"""Own start-up time from which it is felt; the import of torch alone takes one to three seconds."""

LARGE_SHARE = 0.10
"""Share of the run below which a start is not worth a word."""

ALLOCATIONS = "device_allocs_count"
"""The recorder's series of how often the allocator asked the driver, for each GPU."""
MANY_ALLOCATIONS = 10
"""Fewer calls are not worth a word."""

NOT_OWN = ("interpreter", "import torch")
"""Parts that the program cannot do much about."""

NAMES = {
    "interpreter": "starting Python",
    "import torch": "importing torch",
    "loader start": "starting the loader",
    "first batch": "the first batch",
    "first forward": "the first forward pass",
    "first backward": "the first backward pass",
    "first optimizer": "the first optimizer step",
    "load": "loading files with torch.load",
    "sync": "reading values",
    "rest": "the program's own code (imports, data set, model)",
}
"""What the parts are called in a sentence."""

FIXES = {
    "loader start": "Start fewer workers, or make the data set cheaper to copy into them.",
    "first batch": "Let the data set open its files lazily, and start with workers already alive.",
    "first forward": "Compiling and autotuning belong to the first forward pass: keep their caches between "
    "runs.",
    "validation": "Validate after the first epoch instead of before it.",
    "load": "Load only what is needed, memory-mapped (torch.load(..., mmap=True)).",
}
"""What to do about the largest part."""

OTHER_FIX = "Prepare once what is the same in each run and store it, or load it when it is first needed."


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at what passed before the first step was done."""
    start = evidence.start_up(trainer)
    if start is None:
        return NotChecked("No step was found, so there is no start to measure.")
    own_ns = start.total_ns - sum(start.parts.get(part, 0) for part in NOT_OWN)
    share = start.run_share * own_ns / max(1, start.total_ns)
    if own_ns < LONG_NS or share < LARGE_SHARE:
        return Clear(
            f"The first step was done after {units.duration(start.total_ns)}, "
            f"{units.share(start.run_share)} of the run."
        )
    part = max((part for part in start.parts if part not in NOT_OWN), key=lambda part: start.parts[part])
    return [
        Finding(
            title=f"{units.duration(start.total_ns)} pass before the first step is done, "
            f"{units.duration(start.parts[part])} of them in {NAMES.get(part, part)}.",
            share=share,
            saving=(1.0, 1.0),
            evidence=(*_words(start, bool(evidence.restarts)), *_cold_allocator(evidence, trainer)),
            advice=FIXES.get(part, OTHER_FIX),
            of_run=True,
        )
    ]


def _cold_allocator(evidence: Evidence, trainer: Trainer) -> tuple[str, ...]:
    """Return that PyTorch's allocator filled in the warm-up and was still afterwards, which is as it should be."""
    account = evidence.account(trainer)
    tracks = evidence.timeline.tracks
    for name in tracks.filter(pl.col("kind") == "gpu", pl.col("host") == trainer.host)["name"].to_list():
        rows = evidence.series(name, ALLOCATIONS, trainer.host)
        before = rows.filter(pl.col("time") < account.start)["value"]
        if before.len() and int(before[-1]) >= MANY_ALLOCATIONS and rows["value"][-1] == before[-1]:
            return (
                f"PyTorch asked the driver for GPU memory {units.counted(int(before[-1]), 'time')} until the steady "
                "loop and never in it: its allocator's cold start, which is no fault.",
            )
    return ()


def _words(start: StartUp, is_restarted: bool) -> tuple[str, ...]:
    """Return the parts that matter, and the warm-up; a run whose ranks were started anew is longer than any of them."""
    large = sorted(start.parts.items(), key=lambda item: -item[1])[:4]
    parts = ", ".join(f"{NAMES.get(part, part)} {units.duration(ns)}" for part, ns in large if ns > 0)
    whole = "this start of the ranks" if is_restarted else "the whole run"
    words = [f"That is {units.share(start.run_share)} of {whole}: {parts}."]
    if start.warm_up_excess_ns > 0 and start.warm_up_steps:
        words.append(
            f"{units.counted(start.warm_up_steps, 'warm-up step')} then took "
            f"{units.duration(start.warm_up_excess_ns)} more than as many usual ones."
        )
    return tuple(words)
