"""The prefetched batches may not fit into /dev/shm.

What it finds
    DataLoaders with workers whose batches (workers x prefetch_factor x bytes per batch) need at least 80 % of the free
    space in /dev/shm at the start of the run.

Why it costs
    Workers send tensors through shared memory. When it is full, a worker dies with a bus error ("DataLoader worker
    is killed by signal: Bus error"), often hours into a run. Containers have 64 MiB by default.

How the gain is estimated
    No time is saved: the fix keeps the run alive. The bytes per batch are the median output of the collate function.

How to fix
    Start the container with --shm-size=8g (Docker) or an emptyDir with medium: Memory at /dev/shm (Kubernetes). Or use
    fewer workers, a smaller prefetch_factor, or smaller types (uint8 images that the GPU converts).

When it is wrong
    When batches are not tensors: they go through a pipe. With the file_system sharing strategy on another mount.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_host_facts
from perfwrap.measures.host.processors import find_processors
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, locate, named

NEEDS = ("data", "steady_steps", "host")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    full_share: float = 0.8
    """Share of the free shared memory from which batches may not fit: other processes use it too."""
    default_prefetch: int = 2
    """The default prefetch_factor of torch."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Compare the size of the prefetched batches with /dev/shm."""
    loaders = [loader for loader in evidence.get(find_loaders, trainer) if loader.workers]
    if not loaders:
        return Clear("No DataLoader has workers.")
    facts = evidence.get(find_host_facts, trainer.host)
    free = facts.get("shm_free_bytes") or facts.get("shm_total_bytes")
    needs = [(loader, _need(loader, limits)) for loader in loaders]
    known = [(loader, need) for loader, need in needs if need is not None]
    if not known or free is None or not free.isdecimal():
        return NotChecked("The size of /dev/shm or of a batch is unknown.")
    trainers = max(1, evidence.get(find_processors, trainer).trainers)
    whole = trainers * sum(need for _, need in known)
    words = f"Prefetched batches take up to {units.size(whole)} of {units.size(int(free))} in /dev/shm"
    if whole < limits.full_share * int(free):
        return Clear(f"{words}.")
    largest = max(known, key=lambda pair: pair[1])[0]
    return [_finding(largest, words, whole, trainers, limits)]


def _need(loader: LoaderUse, limits: Limits) -> float | None:
    """Return the bytes of the batches that a loader may prefetch; None if the size of a batch is unknown."""
    if loader.making is None or loader.making.batch_bytes is None:
        return None
    return (
        loader.making.batch_bytes
        * (loader.workers or 0)
        * (loader.prefetch_factor or limits.default_prefetch)
    )


def _finding(loader: LoaderUse, words: str, whole: float, trainers: int, limits: Limits) -> Finding:
    """Return the finding, at the loader that needs the most."""
    where = named("the DataLoader", loader.created)
    made = loader.making
    each = (
        f" in each of {units.counted(trainers, 'training process', 'training processes')}"
        if trainers > 1
        else ""
    )
    return Finding(
        title=f"{words}: workers of {where} may be killed by a bus error.",
        share=0.0,
        evidence=(
            f"num_workers={loader.workers}, prefetch_factor={loader.prefetch_factor or limits.default_prefetch} and "
            f"{units.size(made.batch_bytes if made else None)} per batch{each}.",
        ),
        options=(
            Option(
                f"Give the container more shared memory (docker run --shm-size={_gibibytes(whole)}g).",
                (1.0, 1.0),
            ),
            Option(f"Pass fewer num_workers or a smaller prefetch_factor to {where}.", (1.0, 1.0)),
        ),
        location=locate(loader.created),
        health=True,
    )


def _gibibytes(need: float) -> int:
    """Return twice the need in whole GiB, to leave room for others."""
    return max(1, -(-int(2 * need) // (1 << 30)))
