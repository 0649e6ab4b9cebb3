"""The training process makes its own batches, one after the other, and computes nothing meanwhile.

What it finds
    A DataLoader with num_workers=0 whose batches the training thread waits for during 2 % of the training
    loop or more. Loading, transforms and collation then run between the steps instead of beside them.

Why it costs
    The step waits for the batch and the batch waits for the step: the time of both adds up, on the GPU's
    side as idle time. Worker processes make the next batches while the current one is trained on.

How the saving is worked out
    Measured: what a batch takes to make (the wait itself, as nothing overlaps) and what the rest of a step
    takes. With N workers a step takes max(rest, fetch / N), but never less than the processor time of both
    divided by the cores that the run may use (affinity and cgroup quota): on a machine whose cores already
    compute, workers take cores away from the training. Receiving a batch from a worker costs some time too.
    The far end of the range keeps half of that gain when workers and training must share cores, four fifths
    when they need not.

How to fix
    Pass num_workers=N to the DataLoader. N is the smallest number that makes batches as fast as the rest of
    the step uses them, bounded by the usable cores. With several epochs also pass persistent_workers=True,
    or the workers start anew in each. When a batch takes less time to make than to receive, workers do not
    help: index whole batches out of a tensor instead, or make the work per sample cheaper.

When it is wrong
    When the data set cannot be pickled (spawn) or shares a connection that must not be forked. When a data
    set that keeps its samples in memory as Python objects would be copied into every worker. When the first
    epoch fills a cache that later epochs read.
"""

from __future__ import annotations

import math

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.loop import mean_step_ns, trains_on_gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import Limit, saving
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, named

NEEDS = ("data", "steady_steps")
VERDICT = "data-bound"

RECEIVE_NS = 500_000
"""What receiving a small batch from a worker costs the training thread: queue, unpickling, mapping shared
memory. 0.4 to 0.6 ms more than making it out of tensors here took, with torch 2.13 on two cores (minima)."""

KEPT_WITH_FREE_CORES, KEPT_WITH_SHARED_CORES = 0.8, 0.5
"""The least share of the modelled gain that is promised; held against the mended twins of the workloads."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for training loaders without workers."""
    own = [loader for loader in evidence.loaders(trainer) if loader.training and loader.workers == 0]
    found = [
        _finding(evidence, trainer, loader)
        for loader in own
        if loader.share >= QUIET_SHARE and loader.batches
    ]
    if found:
        return found
    if not own:
        return Clear("No training batches come from a DataLoader without worker processes.")
    largest = units.share(max(loader.share for loader in own))
    return Clear(f"Making batches in the training process takes {largest} of the loop.")


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Finding:
    """Return the finding about one loader."""
    step_ns = mean_step_ns(evidence, trainer)
    wait_ns = loader.share * step_ns
    rest = units.duration(step_ns - wait_ns)
    cores = evidence.processors(trainer.host).usable
    workers = _workers(wait_ns, step_ns - wait_ns, cores, trains_on_gpu(evidence, trainer))
    where = named("the DataLoader", loader.created)
    words = [
        f"Each step waits {units.duration(wait_ns)} for its batch and takes {rest} for all else; "
        f"{units.counted(loader.batches, 'batch', 'batches')} seen.",
        f"{_dataset(loader)} is read with num_workers=0, so nothing is computed meanwhile.",
    ]
    if cores is not None:
        words.append(f"The run may use {units.counted(round(cores), 'core')}.")
    return Finding(
        title=f"{SHARE} of the training loop goes into making batches in the training "
        f"process itself, by {where}.",
        share=loader.share,
        saving=_saving(evidence, trainer, wait_ns, step_ns, workers),
        evidence=tuple(words),
        advice=_advice(loader, where, wait_ns, workers),
        location=locate(loader.created),
        experiment=f"workers={workers}" if _worthwhile(wait_ns, workers) else None,
        confidence="inferred",
        claims=(pl.col("part") == "data") & (pl.col("name") == loader.name),
    )


def _workers(wait_ns: float, rest_ns: float, cores: float | None, on_gpu: bool) -> int:
    """Return how many workers keep up with the rest of the step, bounded by the cores; 0 on a single core."""
    needed = max(1, math.ceil(wait_ns / max(rest_ns, 1.0)))
    if cores is None:
        return needed
    free = math.floor(cores) - 1
    # Training on a CPU wants its cores too: leave it half of them.
    return min(needed, free if on_gpu else max(min(free, 1), math.floor(cores / 2)))


def _worthwhile(wait_ns: float, workers: int) -> bool:
    """Say whether workers can pay: there is a core for one, and a batch takes longer to make than to
    receive."""
    return workers >= 1 and wait_ns > 2 * RECEIVE_NS


def _saving(
    evidence: Evidence, trainer: Trainer, wait_ns: float, step_ns: float, workers: int
) -> tuple[float, float]:
    """Return the step-time ratios with so many workers, best and worst."""
    if not _worthwhile(wait_ns, workers):
        return (1.0 - wait_ns / step_ns, 1.0)
    processors = evidence.processors(trainer.host)
    limits = [Limit("workers", wait_ns / workers)]
    shared = False
    if processors.usable and processors.tree_busy:
        limits.append(Limit("cores", step_ns * min(1.0, processors.tree_busy / processors.usable)))
        shared = processors.tree_busy + workers > processors.usable
    elif processors.usable and not trains_on_gpu(evidence, trainer):
        shared = workers + 1 >= processors.usable
    best, _ = saving(step_ns, wait_ns - RECEIVE_NS, wait_ns - RECEIVE_NS, limits)
    kept = KEPT_WITH_SHARED_CORES if shared else KEPT_WITH_FREE_CORES
    return (best, 1.0 - kept * (1.0 - best))


def _dataset(loader: LoaderUse) -> str:
    """Return what is read, as the subject of a sentence."""
    name = (loader.dataset or "data set").rpartition(".")[2]
    size = "" if loader.dataset_length is None else f" ({units.counted(loader.dataset_length, 'sample')})"
    return f"The {name}{size}"


def _advice(loader: LoaderUse, where: str, wait_ns: float, workers: int) -> str:
    """Return what to change, with the user's own numbers."""
    if workers < 1:
        return (
            "Make a sample cheaper to load: with a single usable core, worker processes would only take "
            "turns with the training. Work on whole batches at once, or prepare the data before the "
            "training."
        )
    if not _worthwhile(wait_ns, workers):
        return (
            f"A batch takes {units.duration(wait_ns)}: worker processes would cost about as much again for "
            "sending it. Index whole batches out of a tensor, or give the data set a __getitems__ that "
            "does."
        )
    persistent = ", persistent_workers=True" if loader.epochs > 1 else ""
    verb = "worker then makes" if workers == 1 else "workers then make"
    return (
        f"Pass num_workers={workers}{persistent} to {where}: {units.count(workers)} {verb} the next batches "
        "beside the training."
    )
