"""Batches wait for a disk: whoever makes them stands still in reads.

What it finds
    A DataLoader that the training waits for during 2 % of the loop or more, whose batches are made by processes that
    wait for a disk or a network file system for at least two fifths of the time that they do not just wait for a core.

Why it costs
    A process that waits for a read does nothing else. Many small reads at random places are the slowest way to use
    any disk, and a data set that is larger than the memory is read anew in each epoch.

How the saving is worked out
    Measured ten times a second: whether the process waited for a disk (state D). At best that part of making a batch
    goes: then a step takes what its rest, its workers and the cores allow. At worst half of that gain is left. Reads
    of memory that a file is mapped into count; a server that is asked through a socket does not.

How to fix
    Copy the data to a local disk. Read larger pieces: shards of many samples (WebDataset, Arrow, Parquet) instead of a
    file or a seek per sample. Keep what fits in memory, so that the page cache serves later epochs. Until then more
    workers have their waits at the same time.

When it is wrong
    In the first epoch of a data set that fits in memory: later ones find it in the page cache.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.worker_need import Step, best_workers, measured_step
from perfwrap.measures.worker_states import MakingStates
from perfwrap.rules import making
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, named

NEEDS = ("data", "steady_steps", "host")

LEAST_SHARE, LEAST_OF_ALL = 0.4, 0.05
"""Waits for disks over these and the processor time used: two fifths; reads of 4 KiB at random places reach 0.7 where
nobody else wants the cores. And over all the time of making batches, below which a few looks may be chance."""

KEPT = 0.5
"""The least part of the gain that is promised: a faster disk takes its time, too."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for training loaders whose batches wait for disks."""
    loaders = [loader for loader in evidence.loaders(trainer) if loader.training]
    late = [loader for loader in loaders if loader.share >= QUIET_SHARE]
    if not late:
        return Clear("The training does not wait for batches.")
    known = [(loader, evidence.making_states(trainer, loader)) for loader in late]
    seen = [(loader, states) for loader, states in known if states is not None]
    if not seen:
        return NotChecked("The states of the processes that make batches were not watched.")
    found = [
        _finding(evidence, trainer, loader, states, step)
        for loader, states in seen
        if _is_bound(states) and (step := measured_step(evidence, trainer, loader)) is not None
    ]
    most = units.share(max(states.disk_share for _, states in seen))
    return found or Clear(f"Waits for disks take {most} of making batches.")


def _is_bound(states: MakingStates) -> bool:
    """Say whether waits for disks are most of what making a batch takes when no neighbour takes the cores."""
    own = states.disk_share + states.wanting_share - states.denied_share
    return states.disk_share >= LEAST_OF_ALL and states.disk_share >= LEAST_SHARE * own


def _finding(
    evidence: Evidence, trainer: Trainer, loader: LoaderUse, states: MakingStates, step: Step
) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    faster = step.cheaper(states.disk_share, cpu=False)
    best = faster.rest_ns + faster.fetch_ns if not step.workers else faster.with_workers(step.workers)
    ratio = min(1.0, best / step.now_ns)
    words = [
        f"The processes that make batches wait for a disk {units.share(states.disk_share)} of the time of making them, "
        f"and use a core for {units.share(states.wanting_share - states.denied_share)}.",
        *making.split(loader),
    ]
    if states.read_bytes_per_s:
        words.append(f"They read {units.size(states.read_bytes_per_s)} per second from storage.")
    words += [f"Files were open on {mount}." for mount in _mounts(evidence, trainer)]
    line = None if loader.making is None else loader.making.getitem_line
    return Finding(
        title=f"{SHARE} of the training loop is spent waiting for batches of {where}, which wait for a disk.",
        share=loader.share,
        saving=(ratio, 1.0 - KEPT * (1.0 - ratio)),
        evidence=tuple(words),
        advice=_advice(step),
        verdict="data-bound",
        location=locate(line or loader.created),
        experiment="cached-batch",
        claims=making.waits(loader),
    )


def _mounts(evidence: Evidence, trainer: Trainer) -> list[str]:
    """Return the file systems that are not local from which files were read."""
    facts = evidence.host_facts(trainer.host)
    read = {key.partition("/")[2]: value for key, value in facts.items() if key.startswith("reads/")}
    return sorted(f"{mount}, {kind}" for mount, kind in read.items() if "network" in kind)


def _advice(step: Step) -> str:
    """Return what to change."""
    workers = best_workers(step)
    meanwhile = (
        f" Until then num_workers={workers} has more of these waits at the same time."
        if workers > step.workers
        else ""
    )
    return (
        "Read fewer and larger pieces, or keep the data on a local disk or in memory: many samples in one shard, read "
        f"in order.{meanwhile}"
    )
