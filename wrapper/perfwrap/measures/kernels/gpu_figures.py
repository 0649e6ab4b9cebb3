"""The figures of one GPU's recorded activity as plain numbers, for reports."""

from __future__ import annotations

from msgspec import Struct

from perfwrap.measures.account.intervals import length
from perfwrap.measures.kernels.gpu_activity import GpuActivity, KernelClass
from perfwrap.measures.kernels.launches import Launches
from perfwrap.measures.kernels.matrix_work import MatrixWork
from perfwrap.measures.kernels.ordinary_step import OrdinaryStep


class GpuFigures(Struct, frozen=True):
    """One GPU in the windows in which its work was recorded; GpuActivity explains each number.

    ``idle`` maps causes to their share of the windows, largest first. ``step_ns`` and ``steps`` are for the steps that
    the program or a profiler marked, None and 0 without marks.
    """

    device: str
    host: str
    source: str
    kernels: int
    copies: int
    memsets: int
    window_ns: int
    busy_share: float
    kernels_busy_share: float
    collective_ns: int
    collective_exposed_ns: int
    h2d_exposed_ns: int
    copies_exposed_ns: int
    overlap_ns: int
    idle: dict[str, float]
    inferred_data_share: float
    launches: Launches
    classes: tuple[KernelClass, ...]
    steps: int
    step_ns: float | None
    steps_busy_share: float | None
    critical_path: dict[str, float] | None
    """Shares of the window; see CriticalPath."""
    critical_path_host: dict[str, float] | None
    """The host's activity in its part of the path, also as shares of the window."""
    flops: float | None = None
    """FLOPs of the matrix operations with recorded shapes."""
    mfu: float | None = None
    """See MatrixWork."""
    why_no_mfu: str = ""
    loop_busy_share: float | None = None
    """The part of ordinary steps of the training loop in which anything ran; None if these were not timed."""
    profiler_added_ns: float = 0.0
    """How much longer the profiler made a recorded step."""


def gpu_figures(
    gpu: GpuActivity, work: MatrixWork | None = None, step: OrdinaryStep | None = None
) -> GpuFigures:
    """Return the figures of one GPU, with its matrix work if shapes were recorded, and its part of ordinary steps."""
    window = gpu.window_ns
    inferred = gpu.idle.filter("inferred")
    path = gpu.critical_path
    return GpuFigures(
        device=gpu.device,
        host=gpu.host,
        source=gpu.events.source,
        kernels=gpu.count("kernel"),
        copies=gpu.count("copy"),
        memsets=gpu.count("memset"),
        window_ns=window,
        busy_share=gpu.busy_share,
        kernels_busy_share=gpu.kernels_busy_ns / window if window else 0.0,
        collective_ns=gpu.collective_ns,
        collective_exposed_ns=length(gpu.exposed_collectives),
        h2d_exposed_ns=length(gpu.exposed_h2d),
        copies_exposed_ns=length(gpu.exposed_copies),
        overlap_ns=gpu.overlap_ns,
        idle=gpu.idle_shares,
        inferred_data_share=int((inferred["end"] - inferred["start"]).sum()) / window if window else 0.0,
        launches=gpu.launches,
        classes=gpu.classes,
        steps=gpu.steps.table.height,
        step_ns=gpu.steps.median_period_ns,
        steps_busy_share=gpu.steps.busy_share,
        critical_path=None if path is None else _shares(path.parts, window),
        critical_path_host=None if path is None else _shares(path.host, window),
        flops=work.flops if work else None,
        mfu=work.mfu if work else None,
        why_no_mfu=work.why_no_mfu if work else "",
        loop_busy_share=step.busy_share if step and step.recorded_ns else None,
        profiler_added_ns=step.added_ns if step else 0.0,
    )


def _shares(parts: dict[str, int], window: int) -> dict[str, float]:
    """Return each part's share of the window."""
    return {part: took / window for part, took in parts.items()}
