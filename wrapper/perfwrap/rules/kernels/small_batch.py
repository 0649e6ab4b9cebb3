"""A step has too little work to fill the GPU, and GPU memory is mostly free.

What it finds
    A GPU on which kernels run in at least half of the samples, while its multiprocessors are active less than half of
    the time (reported by GPUs from Hopper on) and less than half of its memory is used. If only kernels were recorded:
    a median kernel of less than 10 µs with that much free memory, as a note.

Why it costs
    A kernel takes a few microseconds even if it does nothing, and small kernels leave most multiprocessors idle. A
    larger batch does more work in nearly the same time.

How the gain is estimated
    Estimated: the time in which kernels run and multiprocessors are idle; at worst half of it.

How to fix
    A larger batch (double it until memory is full or the time per sample stops falling), with an adapted learning rate;
    otherwise torch.compile or CUDA graphs, or several jobs on one GPU.

When it is wrong
    When training needs a small batch. The used memory includes what the caching allocator holds.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.gpu.gpu_state import Gpu
from perfwrap.measures.gpu.own_gpus import find_own_gpus
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded, window
from perfwrap.rules.levers import find_levers
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option

NEEDS = ("steady_steps", "gpu")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_running_share: float = 0.5
    """Share of the samples in which kernels must run: an idle GPU waits for something else."""
    max_active_share: float = 0.5
    """Share of the time below which multiprocessors count as mostly idle."""
    min_free_share: float = 0.5
    """Free share of the GPU memory; a batch of twice the size fits into it."""
    tiny_kernel_ns: int = 10 * units.MICROSECOND
    """Kernels shorter than this are too small; launching one takes about as long."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for a GPU with room for a larger batch."""
    gpus = evidence.get(find_own_gpus, trainer)
    if not gpus:
        return NotChecked("None of the recorded GPUs is known to belong to this training thread.")
    if not evidence.get(find_levers, trainer).can_grow:
        return Clear("A batch holds all samples of its dataset, or the GPU memory is full.")
    free = [gpu for gpu in gpus if (_free(gpu) or 0.0) >= limits.min_free_share]
    if not free:
        return Clear("At least half of the GPU memory is used, or its use is unknown.")
    known = [gpu for gpu in free if "sm" in gpu.activity and gpu.utilization is not None]
    if not known:
        return _by_kernels(evidence, trainer, free[0], limits)
    empty = [gpu for gpu in known if _room(gpu, limits) > 0]
    if not empty:
        return Clear(
            f"{known[0].name}'s multiprocessors were active {units.share(known[0].activity['sm'])} of the time."
        )
    gpu = max(empty, key=lambda gpu: _room(gpu, limits))
    share = _room(gpu, limits)
    return [
        _finding(
            evidence,
            trainer,
            gpu,
            share / 2,
            without(share),
            f"Kernels ran {units.share(gpu.utilization)} of the time on {gpu.name}, but its multiprocessors were "
            f"active only {units.share(gpu.activity['sm'])}.",
        )
    ]


def _by_kernels(evidence: Evidence, trainer: Trainer, gpu: Gpu, limits: Limits) -> Answer:
    """Use the median kernel if the activity of the multiprocessors is unknown."""
    activity = recorded(evidence, trainer)
    if not isinstance(activity, GpuActivity):
        return NotChecked("Needs multiprocessor activity (NVIDIA GPUs from Hopper on) or recorded kernels.")
    median = activity.launches.kernel_ns
    if median is None or median >= limits.tiny_kernel_ns:
        return Clear(f"The median kernel takes {units.duration(median)}.")
    text = (
        f"The median kernel takes {units.duration(median)} in {window(activity)}, so most of the GPU is idle."
    )
    return [_finding(evidence, trainer, gpu, 0.0, (1.0, 1.0), text)]


def _finding(
    evidence: Evidence, trainer: Trainer, gpu: Gpu, share: float, saving: tuple[float, float], text: str
) -> Finding:
    """Return the finding."""
    levers = evidence.get(find_levers, trainer)
    fewer = levers.fewer_launches
    facts = evidence.get(find_facts, trainer.process).items()
    sizes = [value for key, value in facts if key.endswith("/batch_size") and value.isdecimal()]
    batch = (f"A DataLoader's batch size is {sizes[0]}.",) if sizes else ()
    return Finding(
        title=f"The steps are too small for {gpu.name}: {units.share(_free(gpu))} of its memory is free.",
        share=share,
        evidence=(text, *batch),
        options=(
            Option(
                "Double the batch size and check samples per second, until memory is full.",
                saving,
                f"{units.share(_free(gpu))} of the memory is free",
                "find-batch-size",
                "Adapt the learning rate.",
            ),
            *((Option(f"Launch fewer kernels: {fewer}.", (saving[0], 1.0)),) if fewer else ()),
        ),
        confidence="inferred",
    )


def _room(gpu: Gpu, limits: Limits) -> float:
    """Return the share of time in which kernels run but multiprocessors are idle; 0 if it is small."""
    running, working = gpu.utilization or 0.0, gpu.activity["sm"]
    is_empty = running >= limits.min_running_share and working < limits.max_active_share
    return running - working if is_empty else 0.0


def _free(gpu: Gpu) -> float | None:
    """Return the free share of a GPU's memory, None if unknown."""
    if not gpu.memory_total_bytes or gpu.memory_used_bytes is None:
        return None
    return max(0.0, 1.0 - gpu.memory_used_bytes / gpu.memory_total_bytes)
