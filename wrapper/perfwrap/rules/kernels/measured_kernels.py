"""What limits the kernels that ncu measured, where nothing else was recorded.

What it finds
    In a table of Nsight Compute: whether compute, memory bandwidth, both or neither (latency) limit the kernels, by
    their time, and how close the longest kernel comes to that limit.

Why it costs
    A kernel at its limit becomes faster only with less work or fewer bytes; one far from both limits waits, for example
    for memory or because it is too small for the GPU.

How the gain is estimated
    No gain is claimed: the table does not show how much of a step these kernels take.

How to fix
    Memory-bound: fuse it with its neighbors, use 16-bit types. Compute-bound: tensor cores, lower precision. Latency-
    bound: larger sizes, more blocks, fewer registers per thread.

When it is wrong
    When the measured launches are not those that take most time: by default ncu measures every launch, with ``-c`` only
    the first ones, which often fill random numbers or copy weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.roofline import roofline
from perfwrap.rules.kernel_record import short
from perfwrap.rules.model import SHARE, Answer, Finding, NotChecked, Option, Scope
from perfwrap.rules.recordings import NO_RECORDING, is_imported, leave_training

NEEDS = ("trainer",)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    max_named: int = 4
    """How many kernels are named."""
    few_launches: int = 1
    """Measured launches up to which the kernel may be another one than the one that matters."""


WORDS = {
    "compute": "compute",
    "memory": "memory bandwidth",
    "balanced": "compute and memory bandwidth equally",
    "latency": "latency, with neither compute nor memory busy",
}
VERDICT_OF = {
    "compute": "compute-bound",
    "balanced": "compute-bound",
    "memory": "memory-bound",
    "latency": "latency-bound",
}
STALLS = {
    "long_scoreboard": "memory",
    "short_scoreboard": "shared memory",
    "math_pipe_throttle": "a busy arithmetic unit",
    "barrier": "other warps of the block",
    "wait": "a fixed latency",
    "no_instruction": "instructions",
    "lg_throttle": "the queue of memory instructions",
    "drain": "their writes to memory",
    "membar": "a memory barrier",
    "imc_miss": "constants",
    "branch_resolving": "a branch",
    "tex_throttle": "the queue of texture instructions",
    "mio_throttle": "the queue of shared-memory instructions",
}
"""What warps wait for, by ncu's names of stalls; others are shown as they are."""


check = leave_training


def check_run(evidence: Evidence, limits: Limits) -> Answer:
    """Look at the kernels of ncu's table."""
    if not is_imported(evidence):
        return NO_RECORDING
    rows = [row for row in evidence.get(roofline).iter_rows(named=True) if row["bound"] is not None]
    if not rows:
        return NotChecked("Needs a table of ncu with the section SpeedOfLight.")
    times: dict[str, int] = {}
    for row in rows:
        times[row["bound"]] = times.get(row["bound"], 0) + max(1, row["duration_ns"])
    bound = max(times, key=lambda each: times[each])
    own = [row for row in rows if row["bound"] == bound]
    share = times[bound] / sum(times.values())
    launches = sum(row["launches"] for row in rows)
    few = (
        ("Only one launch was measured. The first kernel of a program is rarely the one that matters.",)
        if launches <= limits.few_launches
        else ()
    )
    return [
        Finding(
            title=f"{SHARE} of the measured kernel time is limited by {WORDS[bound]}; the longest kernel, "
            f"{short(own[0]['kernel'])}, reaches {units.share(_reached(own[0]))} of the peak.",
            share=share,
            evidence=(*(_figures(row) for row in rows[: limits.max_named]), *few),
            options=_options(own),
            verdict=VERDICT_OF[bound],
            scope=Scope.RECORDING,
            informational=True,
        )
    ]


def _reached(row: Mapping[str, Any]) -> float:
    """Return the larger share of the two peaks."""
    return float(max(row["compute_share"], row["memory_share"]))


def _figures(row: Mapping[str, Any]) -> str:
    """Return the figures of one kernel."""
    stall = row["stall"]
    waits = f"; its warps wait most for {STALLS.get(stall, stall)}" if stall else ""
    return (
        f"{short(row['kernel'])}: {units.duration(row['duration_ns'])} in "
        f"{units.counted(row['launches'], 'launch', 'launches')}, {units.share(row['compute_share'])} of peak compute, "
        f"{units.share(row['memory_share'])} of peak memory, limited by {WORDS[row['bound']]}{waits}."
    )


def _options(rows: Sequence[Mapping[str, Any]]) -> tuple[Option, ...]:
    """Return what makes kernels with that limit faster."""
    nothing, name = (1.0, 1.0), short(rows[0]["kernel"])
    bound = rows[0]["bound"]
    if bound == "memory":
        return (
            Option(f"Fuse {name} with its neighbors, so that its data is read and written once.", nothing),
            Option("Move fewer bytes: 16-bit types.", nothing),
        )
    if bound == "latency":
        return (
            Option(f"Give {name} larger sizes or more blocks, or fuse it with other kernels.", nothing),
            Option("Launch it in a CUDA graph, if it is short.", nothing),
        )
    tensor = () if rows[0]["uses_tensor_cores"] else (Option("Use tensor cores: bfloat16 or TF32.", nothing),)
    return (*tensor, Option(f"Compute less in {name}.", nothing))
