"""How busy each GPU was, with what, and why it was idle, from a record of its kernels, copies and memory sets."""

from __future__ import annotations

from functools import cached_property

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import Intervals, length, without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.critical_path import CriticalPath, find_critical_path
from perfwrap.measures.kernels.gpu_events import DeviceEvents, find_gpu_events, together
from perfwrap.measures.kernels.gpu_steps import GpuSteps, find_gpu_steps, marked_steps
from perfwrap.measures.kernels.idle_blame import find_idle, idle_ns
from perfwrap.measures.kernels.launches import Launches, find_launches, streams_overlap_ns
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

KERNEL = pl.col("category") == "kernel"


class KernelClass(Struct, frozen=True):
    """The kernels of one class on one GPU: their number, total time, and the part of it on tensor cores.

    ``tensor_ns`` and ``plain_ns`` are of kernels whose names show whether they use tensor cores.
    """

    name: str
    count: int
    duration_ns: int
    tensor_ns: int
    plain_ns: int


class GpuActivity:
    """The figures of one GPU, each computed once when first needed; times are nanoseconds.

    All are for the recorded windows, each from its first kernel, copy or memory set to the end of its last.
    Simultaneous work counts once, except in ``classes``.
    """

    def __init__(self, timeline: Timeline, events: DeviceEvents) -> None:
        self.timeline = timeline
        self.events = events
        self.host, self.device = events.host, events.device

    def count(self, category: str) -> int:
        """Return the number of events of a category: kernel, copy or memset."""
        return self.events.table.filter(pl.col("category") == category).height

    @property
    def window_ns(self) -> int:
        """The length of the windows."""
        return length(self.events.windows)

    @cached_property
    def busy_ns(self) -> int:
        """How long anything ran."""
        return length(self.events.intervals())

    @cached_property
    def kernels_busy_ns(self) -> int:
        """How long any kernel ran."""
        return length(self.events.intervals(KERNEL))

    @property
    def busy_share(self) -> float:
        """``busy_ns`` over the windows."""
        return self.busy_ns / self.window_ns if self.window_ns else 0.0

    @cached_property
    def collective_ns(self) -> int:
        """How long kernels of NCCL or RCCL ran."""
        return length(self.events.intervals(pl.col("nccl")))

    @cached_property
    def exposed_collectives(self) -> Intervals:
        """When kernels of NCCL or RCCL ran and no other kernel."""
        return self._alone(pl.col("nccl"), KERNEL & ~pl.col("nccl"))

    @cached_property
    def exposed_h2d(self) -> Intervals:
        """When copies to the GPU ran and no kernel."""
        return self._alone(pl.col("operation") == "h2d", KERNEL)

    @cached_property
    def exposed_copies(self) -> Intervals:
        """When copies of any direction ran and no kernel."""
        return self._alone(pl.col("category") == "copy", KERNEL)

    @cached_property
    def overlap_ns(self) -> int:
        """How long at least two streams were at work at once."""
        return streams_overlap_ns(self.events)

    @cached_property
    def idle(self) -> pl.DataFrame:
        """Pieces of the idle time with their cause: columns start, end, blame, inferred."""
        return find_idle(self.timeline, self.events)

    @cached_property
    def idle_shares(self) -> dict[str, float]:
        """The share of the windows of each cause, largest first; with ``busy_share`` they add up to 1."""
        return {blame: value / self.window_ns for blame, value in idle_ns(self.idle).items()}

    @cached_property
    def launches(self) -> Launches:
        """The cost of launches, and how far the host runs ahead."""
        return find_launches(self.events)

    @cached_property
    def classes(self) -> tuple[KernelClass, ...]:
        """The kinds of kernels, most time first."""
        duration = pl.col("end") - pl.col("start")
        rows = (
            self.events.table.filter(KERNEL)
            .group_by("class")
            .agg(
                pl.len(),
                duration.sum().alias("ns"),
                duration.filter(pl.col("tensor")).sum().alias("tensor"),
                duration.filter(~pl.col("tensor")).sum().alias("plain"),
            )
            .sort("ns", "class", descending=[True, False])
        )
        return tuple(KernelClass(*row) for row in rows.iter_rows())

    @cached_property
    def processes(self) -> list[int]:
        """The tracks of the processes that used the GPU, most events first."""
        counts = (
            self.events.table["process"].value_counts().sort("count", "process", descending=[True, False])
        )
        return counts["process"].to_list()

    @cached_property
    def steps(self) -> GpuSteps:
        """The GPU's activity in each step that its process marked."""
        marked = marked_steps(self.timeline, self.processes[0])
        return find_gpu_steps(marked, self.events, self.exposed_collectives, self.exposed_h2d)

    @cached_property
    def critical_path(self) -> CriticalPath | None:
        """The chain that decided the length of the window; None if uncertain."""
        return find_critical_path(self.timeline, self.events)

    def _alone(self, condition: pl.Expr, others: pl.Expr) -> Intervals:
        """Return when rows of the condition ran and none of the others."""
        return without(self.events.intervals(condition), self.events.intervals(others))


def find_gpu_activity(evidence: Evidence) -> tuple[GpuActivity, ...]:
    """Return the activity of each GPU whose kernels, copies or memory sets were recorded; by host and number."""
    return tuple(GpuActivity(evidence.timeline, events) for events in find_gpu_events(evidence.timeline))


def gpu_of(evidence: Evidence, trainer: Trainer) -> GpuActivity | None:
    """Return the recorded activity of the GPU that did most work for the trainer; None if no kernels were recorded."""
    own = [gpu for gpu in evidence.get(find_gpu_activity) if trainer.process in gpu.processes]
    return max(own, key=lambda gpu: gpu.kernels_busy_ns, default=None)


def busiest_gpu(evidence: Evidence) -> GpuActivity | None:
    """Return the recorded GPU whose kernels took most time; None if none was recorded."""
    found = [gpu for gpu in evidence.get(find_gpu_activity) if gpu.window_ns]
    return max(found, key=lambda gpu: gpu.kernels_busy_ns, default=None)


def find_whole_activity(timeline: Timeline) -> GpuActivity | None:
    """Return the activity of all GPUs as if they were one; None if no GPU was recorded."""
    devices = find_gpu_events(timeline)
    return GpuActivity(timeline, together(devices)) if devices else None
