"""What the rules that need a record of GPU kernels share."""

from __future__ import annotations

from collections.abc import Sequence

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.own_gpus import find_own_gpus
from perfwrap.measures.kernels.gpu_activity import GpuActivity, gpu_of
from perfwrap.measures.kernels.idle_places import IdlePlace
from perfwrap.measures.kernels.matrix_work import find_matrix_work
from perfwrap.measures.kernels.ordinary_step import OrdinaryStep, find_ordinary_step
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Clear, NotChecked

MIN_KERNELS = 50
"""Fewer kernels are too few to judge a loop: one step of a small network has some hundred."""

MAX_NAME_LENGTH = 60

NAMELESS = ("(anonymous namespace)::", "<unnamed>::", "unnamed>::")
"""How compilers and profilers write anonymous namespaces."""

TERA = 1e12

MIN_ADDED_SHARE = 0.02
"""Share of a recorded step from which the time that the profiler added is mentioned."""

MAX_KINDS = 3
MIN_KIND_SHARE = 0.05
"""Share of the kernels' time from which a kind is named, of at most MAX_KINDS."""
KIND_WORDS = {
    "gemm": "matrix products",
    "conv": "convolutions",
    "reduction": "reductions",
    "copy": "copies within the GPU",
    "collective": "collectives",
}
"""Words for kinds of kernels; the others are shown as they are."""

MIN_OP_SHARE = 0.25
"""Share of the idle time from which a function of the framework is named."""
PLACE_WORDS = {
    "range": "the range {name}",
    "function": "the function {name}",
    "call": "{name}",
    "system": "the system call {name}",
    "op": "{name}",
}
"""Words for what the host was in, by its kind."""

HOST_BOUND_SHARE = 0.30
"""Share of the loop in which the GPU waits for launches from which the host decides how long a step takes."""

LIMIT_SHARE = 0.60
"""Share of the peak below which ncu calls neither compute nor memory the limit (SpeedOfLight.py)."""


def recorded(evidence: Evidence, trainer: Trainer) -> GpuActivity | NotChecked:
    """Return the activity of the trainer's GPU, or why it is unknown."""
    gpu = evidence.get(gpu_of, trainer)
    if gpu is None or not gpu.window_ns:
        return NotChecked("Kernels of this training thread's GPU were not recorded.")
    kernels = gpu.count("kernel")
    if kernels < MIN_KERNELS:
        return NotChecked(
            f"Needs {MIN_KERNELS} kernels; only {units.counted(kernels, 'kernel')} recorded on this GPU."
        )
    return gpu


def limiting(evidence: Evidence, trainer: Trainer) -> GpuActivity | Clear | NotChecked:
    """Return the activity of a GPU whose kernels limit the loop, or why faster kernels would not help.

    Only where the recorder timed ordinary steps: in the recorded ones, a profiler makes all launches slower. A GPU that
    is busy for longer than it waits for launches may be limited by its kernels in one phase of each step.
    """
    gpu = recorded(evidence, trainer)
    step = evidence.get(find_ordinary_step, trainer)
    if isinstance(gpu, NotChecked) or step is None or not step.recorded_ns:
        return gpu
    if step.idle.get("dispatch", 0.0) < max(HOST_BOUND_SHARE, step.busy_share):
        return gpu
    return Clear(
        f"The GPU waits for launches {units.share(step.idle['dispatch'])} of the time, so that faster kernels would "
        "hardly make a step shorter."
    )


def with_blame(evidence: Evidence, trainer: Trainer) -> GpuActivity | NotChecked:
    """Return the same, if the GPU's idle time can be compared with the activity of the host."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, GpuActivity) and gpu.events.clock_is_off:
        return NotChecked("The clocks of host and GPU do not match in this recording.")
    return gpu


def loop_share(evidence: Evidence, trainer: Trainer, gpu: GpuActivity, ns: float) -> float:
    """Return the share of the training loop of what takes the GPU so long in the recorded window."""
    step = evidence.get(find_ordinary_step, trainer)
    return min(1.0, ns / gpu.window_ns * (step.window_share if step else 1.0))


def window(gpu: GpuActivity) -> str:
    """Return the time that the shares refer to, e.g. ``1.2 s of gpu/0's time, with 3 marked steps``."""
    steps = gpu.steps.table.height
    marked = f", with {units.counted(steps, 'marked step')}" if steps else ""
    return f"{units.duration(gpu.window_ns)} of {gpu.device}'s time{marked}"


def most_kernels(gpu: GpuActivity) -> str:
    """Return e.g. `` (kernels: convolutions 62 %, elementwise 20 %)``: the kinds with most of the kernels' time."""
    total = sum(kind.duration_ns for kind in gpu.classes)
    if not total:
        return ""
    named = [
        f"{KIND_WORDS.get(kind.name, kind.name)} {units.share(kind.duration_ns / total)}"
        for kind in gpu.classes[:MAX_KINDS]
        if kind.duration_ns >= MIN_KIND_SHARE * total
    ]
    return f" (kernels: {', '.join(named)})" if named else ""


def place_name(place: IdlePlace) -> str:
    """Return what the host was in, in words: ``the range sparse_data_dist``, ``cudaMemcpyAsync``."""
    name = place.name if place.kind in ("range", "function") else short(place.name)
    return PLACE_WORDS[place.kind].format(name=name.strip("# ") or name)


def inside(places: Sequence[IdlePlace], whole_ns: float, most: int) -> tuple[str, ...]:
    """Return where the host was during so much idle time, a sentence each; the framework's functions last."""
    known = [place for place in places if place.kind != "op" or place.idle_ns >= MIN_OP_SHARE * whole_ns]
    chosen = sorted(known, key=lambda place: (place.kind == "op", -place.idle_ns))[:most]
    return tuple(
        f"{units.share(min(1.0, place.idle_ns / whole_ns))} of this idle time is inside {place_name(place)}: "
        f"{units.counted(place.count, 'call')}, {units.duration(place.host_ns)} on the host."
        for place in chosen
    )


def added_by_profiler(step: OrdinaryStep | None) -> tuple[str, ...]:
    """Return how much longer the recorded steps were than the others, which the shares do not contain."""
    if step is None or step.added_ns <= MIN_ADDED_SHARE * step.recorded_ns:
        return ()
    return (
        f"torch.profiler made these steps {units.duration(step.added_ns)} longer, {units.duration(step.recorded_ns)} "
        "each; the shares are without this time.",
    )


def mfu(evidence: Evidence, gpu: GpuActivity) -> str:
    """Return a sentence with the MFU, or why it is unknown."""
    work = evidence.get(find_matrix_work, gpu)
    if work is None:
        return "FLOPs were not counted; they need tensor shapes (`perfwrap run --window-detail shapes`)."
    if work.mfu is None or work.peaks is None:
        return f"MFU unknown: {work.why_no_mfu}."
    return (
        f"MFU {units.share(work.mfu)}: {units.number(work.flops / TERA)} TFLOP of matrix work, compared with the peak "
        f"of the {work.peaks.product} in the precisions used ({work.peaks.source})."
    )


def units_at_work(evidence: Evidence, trainer: Trainer) -> tuple[str, ...]:
    """Return what the GPU's counters say about tensor cores and memory; nothing if they were not recorded."""
    known = [gpu for gpu in evidence.get(find_own_gpus, trainer) if {"tensor", "dram"} <= gpu.activity.keys()]
    if not known:
        return ()
    tensor, dram = known[0].activity["tensor"], known[0].activity["dram"]
    limit = "memory limits it" if dram >= LIMIT_SHARE and dram > tensor else ""
    limit = "tensor cores limit it" if tensor >= LIMIT_SHARE and tensor >= dram else limit
    return (
        f"{known[0].name}: tensor cores {units.share(tensor)}, memory bandwidth {units.share(dram)} of the peak; "
        f"{limit or 'neither limits it'}.",
    )


def short(name: str) -> str:
    """Return a kernel's name without its arguments, short enough for one line."""
    plain = name.removeprefix("void ")
    for nowhere in NAMELESS:
        plain = plain.replace(nowhere, "")
    return plain.split("(")[0].split("<")[0][:MAX_NAME_LENGTH] or name[:MAX_NAME_LENGTH]
