"""Making batches waits for a disk or a network file system.

What it finds
    A DataLoader that the training waits for during at least 2 % of the loop, whose batches are made by processes that
    spend at least 40 % of their time, excluding waits for a CPU core, waiting for a disk or a network file system.

Why it costs
    A process that waits for a read does nothing else. Many small random reads are the slowest way to use a disk, and a
    dataset that is larger than the memory is read again in every epoch.

How the gain is estimated
    Measured ten times per second: whether the process waits for a disk (state D). At best that part of making a batch
    disappears; a step then takes what its rest, its workers and the cores allow. At worst half of that gain remains.
    Reads of memory-mapped files count; requests to a server through a socket do not.

How to fix
    Copy the data to a local disk. Read larger pieces: shards of many samples (WebDataset, Arrow, Parquet) instead of
    one file or seek per sample. Keep in memory what fits, so that the page cache serves later epochs. Until then, more
    workers can wait in parallel.

When it is wrong
    In the first epoch of a dataset that fits in memory: later epochs read it from the page cache.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.worker_need import Step, measured_step
from perfwrap.measures.data_loading.worker_states import MakingStates, find_making_states
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_host_facts
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.data_loading import _fixes as fixes
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    locate,
    named,
)

NEEDS = ("data", "steady_steps", "host")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_disk_share: float = 0.4
    min_disk_share_of_all: float = 0.05
    """Waits for disks over these plus the CPU time used: random reads of 4 KiB reach 0.7 on an otherwise idle machine.
    And over all the time of making batches, below which a few samples may be chance."""
    min_gain_share: float = 0.5
    """Minimum part of the gain: a faster disk also takes time."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for training DataLoaders whose batches wait for disks."""
    loaders = [loader for loader in evidence.get(find_loaders, trainer) if loader.training]
    late = [loader for loader in loaders if loader.share >= limits.min_reported_share]
    if not late:
        return Clear("The training does not wait for batches.")
    known = [(loader, evidence.get(find_making_states, trainer, loader)) for loader in late]
    seen = [(loader, states) for loader, states in known if states is not None]
    if not seen:
        return NotChecked("Process states were not recorded for the processes that make batches.")
    found = [
        _finding(evidence, trainer, loader, states, step, limits)
        for loader, states in seen
        if _is_bound(states, limits) and (step := measured_step(evidence, trainer, loader)) is not None
    ]
    most = units.share(max(states.disk_share for _, states in seen))
    return found or Clear(f"Waits for disks take {most} of making batches.")


def _is_bound(states: MakingStates, limits: Limits) -> bool:
    """Return whether waits for disks dominate making a batch, apart from CPU use by other processes."""
    own = states.disk_share + states.wanting_share - states.cpu_starvation
    return (
        states.disk_share >= limits.min_disk_share_of_all and states.disk_share >= limits.min_disk_share * own
    )


def _finding(
    evidence: Evidence, trainer: Trainer, loader: LoaderUse, states: MakingStates, step: Step, limits: Limits
) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    faster = step.cheaper(states.disk_share, cpu=False)
    ratio = min(1.0, faster.range_with(step.workers)[0] / step.now_ns)
    words = [
        f"The processes that make batches wait for a disk {units.share(states.disk_share)} of that time "
        f"and use a core {units.share(states.wanting_share - states.cpu_starvation)}.",
        *making.split(loader),
    ]
    if states.read_bytes_per_s:
        words.append(f"They read {units.size(states.read_bytes_per_s)} per second from storage.")
    words += [f"Files were open on {mount}." for mount in _mounts(evidence, trainer)]
    line = None if loader.making is None else loader.making.getitem_line
    return Finding(
        title=f"{SHARE} of the training loop waits for batches of {where}, which wait for a disk.",
        share=loader.share,
        evidence=tuple(words),
        options=(
            Option(
                "Read fewer, larger pieces (shards of many samples, in order).",
                (ratio, 1.0 - limits.min_gain_share * (1.0 - ratio)),
                f"{units.share(states.disk_share)} of making a batch waits for a disk",
                fixes.CEILING,
                "Or keep the data on a local disk or in memory.",
            ),
            *(fixes.more_workers(loader, step) if step.workers else fixes.first_workers(loader, step)),
            *fixes.caches(evidence, trainer, loader, step),
        ),
        verdict="data-bound",
        location=locate(line or loader.created),
        claims=making.waits(loader),
    )


def _mounts(evidence: Evidence, trainer: Trainer) -> list[str]:
    """Return the network file systems from which files were read."""
    facts = evidence.get(find_host_facts, trainer.host)
    read = {key.partition("/")[2]: value for key, value in facts.items() if key.startswith("reads/")}
    return sorted(f"{mount}, {kind}" for mount, kind in read.items() if "network" in kind)
