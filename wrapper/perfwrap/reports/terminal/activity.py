"""What each GPU did, for a terminal: busy, idle and why, what is exposed, and which kernels ran."""

from __future__ import annotations

from perfwrap import units
from perfwrap.diagnosis.model import GpuFigures, PhaseIdle
from perfwrap.reports.terminal.page import Page

MAX_GPUS = 8
"""GPUs that are shown."""

TERA = 1e12

MAX_PARTS = 4
"""Causes and classes that are named."""

MIN_SHARE = 0.005
"""Smaller shares are not named."""

WORDS = {
    "data": "waiting for data",
    "sync": "refilling after a sync",
    "transfer": "in calls that copy",
    "dispatch": "launching",
    "python": "Python",
    "queued": "between queued kernels",
    "between_steps": "between steps",
    "host": "host work that was not recorded",
    "waiting": "host blocked in the system",
    "unknown": "unknown cause",
}
"""Words for causes; the others are shown as they are."""

PATH_WORDS = {"host": "the host", "launch": "from launch to kernel start", "queued": "between queued kernels"}
"""Words for parts of the critical path; the others are shown as they are."""

HOST_WORDS = {**WORDS, "sync": "in blocking calls", "host": "not recorded"}
"""Words for the host's part of the critical path."""


MIN_DIFFERENCE = 0.03
"""How far a GPU's share in the loop must differ from that in the record, so that both are shown."""


def draw_gpus(gpus: tuple[GpuFigures, ...], page: Page) -> None:
    """Draw the figures of each GPU."""
    page.paragraph("GPU activity (from recorded kernels)", style="bold")
    for gpu in gpus[:MAX_GPUS]:
        share = gpu.busy_share if gpu.loop_busy_share is None else gpu.loop_busy_share
        bar = page.bar(share, page.width - 37)
        busy = f"{units.share(share):>7} busy  "
        page.line((f"{gpu.device:<12}", ""), (busy, ""), (bar, "cyan"), indent=2)
        for name, text in _lines(gpu):
            page.paragraph(text, indent=4, hanging=f"{name}: ")
    if len(gpus) > MAX_GPUS:
        page.line((f"and {units.counted(len(gpus) - MAX_GPUS, 'more GPU')}", "dim"), indent=2)


def draw_phase_idle(idle: PhaseIdle, page: Page) -> None:
    """Draw why the GPU was idle between phases."""
    page.paragraph(
        f"GPU idle between phases (from events, {units.counted(idle.steps, 'step')})", style="bold"
    )
    share = 1 - idle.busy_ns / idle.duration_ns
    causes = _listed({WORDS.get(cause, cause): value for cause, value in idle.shares.items()})
    page.paragraph(f"{units.share(share)} of the time" + (f": {causes}" if causes else ""), indent=2)
    page.paragraph("Gaps inside forward, backward and optimizer are not among it.", style="dim", indent=2)


def _lines(gpu: GpuFigures) -> list[tuple[str, str]]:
    """Return the lines about a GPU, each with its name."""
    launches = gpu.launches
    work = (
        f"{units.counted(gpu.kernels, 'kernel')}, {units.counted(gpu.copies, 'copy', 'copies')} in "
        f"{units.duration(gpu.window_ns)}"
    )
    if launches.kernel_ns is not None and launches.call_ns is not None:
        work += (
            f"; the median kernel {units.duration(launches.kernel_ns)}, its launch "
            f"{units.duration(launches.call_ns)} of host time"
        )
    lines = [("Work", work)]
    if gpu.loop_busy_share is not None and abs(gpu.loop_busy_share - gpu.busy_share) >= MIN_DIFFERENCE:
        lines.append(("Recorded", recorded(gpu)))
    words = dict(WORDS)
    if gpu.inferred_data_share:
        words["data"] += " (estimated)"
    idle = _listed({words.get(blame, blame): share for blame, share in gpu.idle.items()})
    if idle:
        lines.append(("Idle", idle))
    exposed = {
        "copies": gpu.copies_exposed_ns / gpu.window_ns,
        "collectives": gpu.collective_exposed_ns / gpu.window_ns,
    }
    if _listed(exposed):
        lines.append(("Exposed", _listed(exposed)))
    if gpu.critical_path is not None:
        lines.append(("Critical path", critical_path(gpu)))
    if gpu.flops is not None:
        mfu = f"MFU {units.share(gpu.mfu)}" if gpu.mfu is not None else f"no MFU: {gpu.why_no_mfu}"
        lines.append(("FLOPs", f"{units.number(gpu.flops / TERA)} TFLOP in matrix operations; {mfu}"))
    total = sum(kind.duration_ns for kind in gpu.classes)
    if total:
        shares = {kind.name: kind.duration_ns / total for kind in gpu.classes}
        lines.append(("Kernels", _listed(shares)))
    return lines


def recorded(gpu: GpuFigures) -> str:
    """Return how busy the GPU was while its kernels were recorded, where that differs from the whole loop."""
    slower = f", with steps {units.duration(gpu.profiler_added_ns)} longer" if gpu.profiler_added_ns else ""
    return f"{units.share(gpu.busy_share)} busy while torch.profiler ran{slower}; the shares below are of that time"


def critical_path(gpu: GpuFigures) -> str:
    """Return the parts of the critical path, the host's part with its details."""
    shares = gpu.critical_path or {}
    host = {HOST_WORDS.get(blame, blame): share for blame, share in (gpu.critical_path_host or {}).items()}
    words = _listed({PATH_WORDS.get(part, part): share for part, share in shares.items()})
    spent = _listed(host)
    name = f"{PATH_WORDS['host']} {units.share(shares.get('host', 0.0))}"
    return words.replace(name, f"{name} ({spent})", 1) if spent else words


def _listed(shares: dict[str, float]) -> str:
    """Return the largest shares in words; empty if all are small."""
    known = sorted(((name, share) for name, share in shares.items() if share >= MIN_SHARE), key=_by_share)
    return ", ".join(f"{name} {units.share(share)}" for name, share in known[:MAX_PARTS])


def _by_share(part: tuple[str, float]) -> float:
    """Return the sort key for the largest share first."""
    return -part[1]
