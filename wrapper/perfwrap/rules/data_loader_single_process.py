"""The training process makes its own batches, one after the other, and computes nothing meanwhile.

What it finds
    A DataLoader with num_workers=0 whose batches the training thread waits for during 2 % of the training
    loop or more. Loading, transforms and collation then run between the steps instead of beside them.

Why it costs
    The step waits for the batch and the batch waits for the step: the time of both adds up, on the GPU's
    side as idle time. Worker processes make the next batches while the current one is trained on.

How the saving is worked out
    Measured: what a batch takes to make (the wait itself, as nothing overlaps) and what the rest of a step takes.
    With N workers a step takes max(rest, fetch / N), but never less than the processor time of both divided by
    the cores that the run may use (affinity and cgroup quota), plus about a millisecond to receive a batch.
    What the training thread only waited for (a server, a disk) needs no core, so such workers may be more than those.
    Training on a CPU gives up a core for each worker beyond the free ones, so its rest grows. The far end of the
    range keeps half of the gain when workers and training take all cores, four fifths when some stay free.

How to fix
    Pass num_workers=N to the DataLoader. N is the smallest number that is about as good as any by the model above.
    With several epochs also pass persistent_workers=True, or the workers start anew in each. When a batch takes
    less time to make than to receive, workers do not help: index whole batches out of a tensor instead, or make
    the work per sample cheaper.

When it is wrong
    When the data set cannot be pickled (spawn) or shares a connection that must not be forked. When a data
    set that keeps its samples in memory as Python objects would be copied into every worker. When the first
    epoch fills a cache that later epochs read.
"""

from __future__ import annotations

import math

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.worker_need import RECEIVE_NS, Step, best_workers, measured_step, saved
from perfwrap.rules import making
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, named

NEEDS = ("data", "steady_steps")


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for training loaders without workers."""
    own = [loader for loader in evidence.loaders(trainer) if loader.training and loader.workers == 0]
    exposed = [loader for loader in own if loader.share >= QUIET_SHARE]
    steps = [(loader, measured_step(evidence, trainer, loader)) for loader in exposed]
    found = [_finding(evidence, trainer, loader, step) for loader, step in steps if step is not None]
    if found:
        return found
    if not own:
        return Clear("No training batches come from a DataLoader without worker processes.")
    largest = units.share(max(loader.share for loader in own))
    return Clear(f"Making batches in the training process takes {largest} of the loop.")


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step) -> Finding:
    """Return the finding about one loader."""
    workers = best_workers(step)
    where = named("the DataLoader", loader.created)
    words = [
        f"Each step waits {units.duration(step.fetch_ns)} for its batch and takes "
        f"{units.duration(step.rest_ns)} for all else; {units.counted(loader.batches, 'batch', 'batches')} seen.",
        f"{_dataset(loader)} is read with num_workers=0, so nothing is computed meanwhile.",
        *making.split(loader),
        *making.sampled(evidence, trainer, loader),
    ]
    if step.cores is not None:
        words.append(f"The run may use {units.counted(round(step.cores), 'core')}.")
    dearest = making.dearest(evidence, trainer, loader)
    mostly = f", mostly in {dearest}" if dearest else ""
    return Finding(
        title=f"{SHARE} of the training loop goes into making batches in the training process itself, by "
        f"{where}{mostly}.",
        share=loader.share,
        saving=_saving(step, workers),
        evidence=tuple(words),
        advice=_advice(loader, where, step, workers, dearest),
        verdict="data-bound",
        location=locate(loader.created),
        experiment=f"workers={workers}" if workers else None,
        confidence="inferred",
        claims=making.waits(loader),
    )


def _saving(step: Step, workers: int) -> tuple[float, float]:
    """Return the step-time ratios with so many workers, best and worst."""
    if not workers:
        return (1.0 - step.fetch_ns / step.now_ns, 1.0)
    return saved(step, step.with_workers(workers), workers)


def _dataset(loader: LoaderUse) -> str:
    """Return what is read, as the subject of a sentence."""
    name = "" if loader.dataset is None else f" {loader.dataset.rpartition('.')[2]}"
    size = "" if loader.dataset_length is None else f" ({units.counted(loader.dataset_length, 'sample')})"
    return f"The data set{name}{size}"


def _advice(loader: LoaderUse, where: str, step: Step, workers: int, dearest: str) -> str:
    """Return what to change, with the user's own numbers; ``dearest`` is what most of making a batch goes into."""
    cheaper = f" What can be spared in {dearest} is gained, too." if dearest else ""
    if not workers and step.fetch_ns > 2 * RECEIVE_NS:
        return (
            "Make a sample cheaper to load: there is no core to spare, so worker processes would only take "
            f"turns with the training. Work on whole batches at once, or prepare the data before the training.{cheaper}"
        )
    if not workers:
        return (
            f"A batch takes {units.duration(step.fetch_ns)}: worker processes would cost about as much again "
            "for sending it. Index whole batches out of a tensor, or give the data set a __getitems__ that does."
        )
    persistent = ", persistent_workers=True" if loader.epochs > 1 else ""
    verb = "worker then makes" if workers == 1 else "workers then make"
    threads = max(1, math.floor(step.cores) - workers) if step.cores is not None else step.threads
    once = " Make it once, before the epochs." if loader.made_again and persistent else ""
    fewer = f" Leave them cores: call torch.set_num_threads({threads})." if threads < step.threads else ""
    return (
        f"Pass num_workers={workers}{persistent} to {where}: {units.count(workers)} {verb} the next batches "
        f"beside the training.{once}{fewer}{cheaper}"
    )
