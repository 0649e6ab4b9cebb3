"""Batches are made in the training process, so loading and training never overlap.

What it finds
    A DataLoader with num_workers=0 whose batches the training thread waits for during at least 2 % of the training
    loop. Loading, transforms and collation run between the steps instead of in parallel with them.

Why it costs
    The step waits for the batch, and the batch waits for the step, so both times add up; the GPU is idle meanwhile.
    Worker processes make the next batches while the current one is used.

How the gain is estimated
    Measured: the time to make each batch (the wait itself, because nothing overlaps), the rest of each step, and how
    much of both needs a core. The loop is simulated with workers on the cores that it may use (CPU affinity and cgroup
    quota), shared with other ranks, which get the same workers, and with other programs. Sending and receiving a batch
    costs CPU time, which was measured once. The range has the best and the worst of what the run cannot know: whether
    other programs yield cores, how much two busy cores slow each other down (measured after the run if the machine is
    idle then), how long a worker's Python lock delays its batches (up to 5 ms), whether what the batches wait for
    serves several workers at once, and whether fewer threads make the training slower; and of both halves of the loop.
    The other options: at best all of the time of the function that takes most of making a batch disappears, three
    quarters at least of what py-spy sees it look up in pandas; a cache of items that never change removes all of their
    time but in the first epoch.

How to fix
    Pass num_workers=N to the DataLoader, where N is the smallest number that is about as good as any in the simulation;
    also prefetch_factor, if batches take so different times that the default queue runs empty. Workers are advised only
    if the whole range is a gain of at least 3 %, and never so many that they need more cores than there are; where it
    may be a gain or nothing, one worker is named as something to try. With several epochs, also pass
    persistent_workers=True; otherwise the workers restart in every epoch. If a batch takes less time to make than to
    receive, workers do not help: index whole batches out of a tensor, or make each sample cheaper. On few cores a
    cheaper dataset, or a cache if the items never change, may gain more than workers. A daemonic process may have no
    workers.

When it is wrong
    When the dataset cannot be pickled (spawn) or shares a connection that must not be forked. When a dataset of Python
    objects in memory would be copied into every worker. When the first epoch fills a cache that later epochs read.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.worker_need import Step, measured_step
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.data_loading import _caching as caching
from perfwrap.rules.data_loading import _fixes as fixes
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, named

NEEDS = ("data", "steady_steps")


UNCHANGED = "default_convert"
"""The collate function of a loader that joins no samples: its dataset returns whole batches."""
WHOLE_ALREADY = "Prepare the batches before the training, if they fit in memory."


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    receive_ns: int = 900_000
    """Receiving a small batch from a worker on two busy cores (torch 2.13), for the advice if workers do not help."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for training DataLoaders without workers."""
    own = [
        loader for loader in evidence.get(find_loaders, trainer) if loader.training and loader.workers == 0
    ]
    exposed = [loader for loader in own if loader.share >= limits.min_reported_share]
    steps = [(loader, measured_step(evidence, trainer, loader)) for loader in exposed]
    found = [_finding(evidence, trainer, loader, step, limits) for loader, step in steps if step is not None]
    if found:
        return found
    if not own:
        return Clear("No training batches come from a DataLoader without workers.")
    largest = units.share(max(loader.share for loader in own))
    return Clear(f"Making batches in the training process takes {largest} of the loop.")


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step, limits: Limits) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    words = [
        f"A step waits {units.duration(step.fetch_ns)} for its batch, and the rest of the step takes "
        f"{units.duration(step.rest_ns)} ({units.counted(loader.batches, 'batch', 'batches')} recorded).",
        f"{_dataset(loader)} is read with num_workers=0, so loading and training do not overlap.",
        *making.split(loader),
        *making.sampled(evidence, trainer, loader),
        *caching.sentences(evidence, trainer, loader),
    ]
    if step.cores is not None:
        words.append(f"The run may use {units.counted(round(step.cores), 'core')}.")
    if step.crowded:
        words.append(making.OTHER_PROGRAMS)
    main_cost = making.main_part(evidence, trainer, loader)
    mostly = f", mostly in {main_cost.words}" if main_cost else ""
    options = _options(evidence, trainer, loader, step, limits)
    return Finding(
        title=f"{SHARE} of the training loop waits for batches that the training process makes itself "
        f"({where}{mostly}).",
        share=loader.share,
        evidence=tuple(words),
        options=options,
        verdict="data-bound",
        location=locate(loader.created),
        confidence="inferred",
        max_severity="note" if options[0].edit == WHOLE_ALREADY else "critical",
        claims=making.waits(loader),
    )


def _dataset(loader: LoaderUse) -> str:
    """Return the dataset as the subject of a sentence."""
    name = "" if loader.dataset is None else f" {loader.dataset.rpartition('.')[2]}"
    size = "" if loader.dataset_length is None else f" ({units.counted(loader.dataset_length, 'sample')})"
    return f"The dataset{name}{size}"


def _options(
    evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step, limits: Limits
) -> tuple[Option, ...]:
    """Return the ways to wait less; at least one."""
    options = (
        *fixes.first_workers(loader, step),
        *fixes.caches(evidence, trainer, loader, step),
        *fixes.cheaper(evidence, trainer, loader, step),
    )
    tried = fixes.uncertain_worker(loader, step)
    options = options or (_without_workers(loader, step, limits),)
    best = min(option.ratio for option in options)
    return (*options, *(option for option in tried if option.ratio >= best))


def _without_workers(loader: LoaderUse, step: Step, limits: Limits) -> Option:
    """Return what is left where workers do not help and no function is known that takes most of the time."""
    if step.fetch_ns > 2 * limits.receive_ns:
        edit = "Make batches cheaper to load: work on whole tensors, or prepare the data before the training."
        why = fixes.no_workers(loader, step)
    elif loader.making is not None and (loader.making.collate or "").endswith(UNCHANGED):
        edit, why = (
            WHOLE_ALREADY,
            "The loader already gets each batch with one call, and workers would not help.",
        )
    else:
        edit = "Index whole batches out of a tensor, or add __getitems__ to the dataset."
        made = units.duration(step.fetch_ns)
        gain = "may gain nothing" if fixes.may_help(loader, step) else "would not help"
        why = f"Workers {gain}: a batch takes {made} to make and about as long to send."
    return Option(edit, (1.0 - step.fetch_ns / step.now_ns, 1.0), "", fixes.CEILING, why)
