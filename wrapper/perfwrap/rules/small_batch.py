"""The work of a step is too small to fill the GPU, and its memory is mostly free.

What it finds
    A GPU on which kernels ran in half of the samples or more while its multiprocessors worked for less than half of the
    time (as GPUs from Hopper on tell) and less than half of its memory was used. Where only kernels were recorded: a
    median kernel of less than 10 microseconds with that much free memory, told as a note.

Why it costs
    A kernel takes a few microseconds even if it does nothing, and small ones leave most multiprocessors empty. A larger
    batch does more in nearly the same time.

How the saving is worked out
    Inferred: the time in which kernels ran and multiprocessors did not work; at worst half of it.

How to fix
    A larger batch (double it until memory is full or time per sample falls no more), with the learning rate adapted;
    else torch.compile or CUDA graphs, or several jobs on one GPU.

When it is wrong
    Where the batch is small because training needs it so. Memory that is used counts what the caching allocator holds.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu import Gpu
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.kernel_record import recorded, window
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("steady_steps", "gpu")

RUNNING = 0.5
"""Share of the samples in which kernels must have run: an idle GPU waits for something else."""
EMPTY_UNITS = 0.5
"""Share of the time below which multiprocessors count as mostly empty."""
FREE_MEMORY = 0.5
"""Of the card; a batch of twice the size fits into as much."""
TINY_KERNEL_NS = 10 * units.MICROSECOND
"""The catalogue's figure; launching one takes about as long."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for a GPU that has room for more."""
    gpus = evidence.own_gpus(trainer)
    if not gpus:
        return NotChecked("None of the GPUs that were watched is known to belong to this trainer.")
    free = [gpu for gpu in gpus if (_free(gpu) or 0.0) >= FREE_MEMORY]
    if not free:
        return Clear("Half of the GPU's memory or more is used, or how much is not known.")
    told = [gpu for gpu in free if "sm" in gpu.activity and gpu.utilization is not None]
    if not told:
        return _by_kernels(evidence, trainer, free[0])
    empty = [gpu for gpu in told if _room(gpu) > 0]
    if not empty:
        return Clear(
            f"{told[0].name}'s multiprocessors worked {units.share(told[0].activity['sm'])} of the time."
        )
    gpu = max(empty, key=_room)
    share = _room(gpu)
    return [
        _finding(
            evidence,
            trainer,
            gpu,
            share / 2,
            without(share),
            f"Kernels ran {units.share(gpu.utilization)} of the time on {gpu.name}, but its multiprocessors worked "
            f"only {units.share(gpu.activity['sm'])}.",
        )
    ]


def _by_kernels(evidence: Evidence, trainer: Trainer, gpu: Gpu) -> Answer:
    """Judge by the median kernel where the units tell nothing."""
    activity = recorded(evidence, trainer)
    if not isinstance(activity, GpuActivity):
        return NotChecked(
            "How full the multiprocessors are is told by NVIDIA's GPUs from Hopper on, and no kernels were recorded."
        )
    median = activity.launches.kernel_ns
    if median is None or median >= TINY_KERNEL_NS:
        return Clear(f"The median kernel takes {units.duration(median)}.")
    text = f"The median kernel takes {units.duration(median)} in {window(activity)}: most of the GPU is empty then."
    return [_finding(evidence, trainer, gpu, 0.0, (1.0, 1.0), text)]


def _finding(
    evidence: Evidence, trainer: Trainer, gpu: Gpu, share: float, saving: tuple[float, float], text: str
) -> Finding:
    """Return the finding."""
    facts = evidence.facts(trainer.process).items()
    sizes = [value for key, value in facts if key.endswith("/batch_size") and value.isdigit()]
    batch = (f"A DataLoader's batch size is {sizes[0]}.",) if sizes else ()
    return Finding(
        title=f"The steps are too small for {gpu.name}: {units.share(_free(gpu))} of its memory is free.",
        share=share,
        saving=saving,
        evidence=(text, *batch),
        advice="Try a batch of twice the size and look at samples per second, until memory is full; adapt the learning "
        "rate. Or launch less: torch.compile, CUDA graphs.",
        experiment="batch-size=max",
        confidence="inferred",
    )


def _room(gpu: Gpu) -> float:
    """Return the share of the time in which kernels ran but multiprocessors did not work; 0 where it is little."""
    running, working = gpu.utilization or 0.0, gpu.activity["sm"]
    return running - working if running >= RUNNING and working < EMPTY_UNITS else 0.0


def _free(gpu: Gpu) -> float | None:
    """Return the free share of a GPU's memory, None where it is not known."""
    if not gpu.memory_total_bytes or gpu.memory_used_bytes is None:
        return None
    return max(0.0, 1.0 - gpu.memory_used_bytes / gpu.memory_total_bytes)
