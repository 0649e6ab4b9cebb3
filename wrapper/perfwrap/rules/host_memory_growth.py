"""The memory of the training process or of its DataLoader workers grows and grows.

What it finds
    Memory of the process (that which no file backs), or of all its workers, that rises by 64 MiB or more and by a
    tenth or more during the training loop, and goes on rising to its end.

Why it costs
    Sooner or later the machine swaps, or the kernel kills the run for want of memory.

How the saving is worked out
    It costs no time until memory runs out, so no share is claimed; the finding says when that would be.

How to fix
    Keep numbers instead of tensors (loss.item(), output.detach()): a tensor with a graph keeps all activations of
    its step. In data sets keep no lists that grow: each worker has its own. Memory of workers that is copied although
    nothing is added comes from reference counts that Python writes into shared objects: keep many small objects in
    one numpy array or tensor.

When it is wrong
    When a cache fills on purpose and is not full yet at the end of the run. Where the forward pass takes longer and
    longer, too, larger inputs may be the reason: it is a minor finding then.
"""

from __future__ import annotations

from collections.abc import Iterable

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.memory import (
    ProcessGrowth,
    free_memory,
    is_sampled,
    process_growth,
    worker_growth,
)
from perfwrap.measures.trainers import Trainer
from perfwrap.rules import kept
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Severity, locate, place

NEEDS = ("trainer", "steps", "recorder")

LEAST_BYTES = 64 << 20
"""Allocators keep tens of MiB back after a while, which then stays."""
LEAST_SHARE = 0.10
"""Of the memory at the beginning of the loop."""
SOON_NS = 24 * 3_600_000_000_000
"""When memory would run out within a day of the same, the finding is a major one: long trainings take days."""
MORE_WORK = 1.25
"""When the forward pass takes so many times as long at the end, larger inputs may be all there is to it."""
HOUR_S = 3_600


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at the memory of the process and of its workers during the loop."""
    account, timeline = evidence.account(trainer), evidence.timeline
    start, end = account.start, account.end
    if not is_sampled(timeline, trainer.process, start, end):
        return NotChecked(
            "The memory of the process was not sampled for long enough: let the program run longer."
        )
    main = process_growth(timeline, trainer, start, end)
    workers = worker_growth(timeline, trainer, start, end)
    found = [
        *_findings(evidence, trainer, main, workers=False),
        *_findings(evidence, trainer, workers, workers=True),
    ]
    if found:
        return found
    grown = main.growth.total if main else 0.0
    return Clear(f"The memory of the process grows by {units.size(grown)} in the training loop.")


def _findings(
    evidence: Evidence, trainer: Trainer, found: ProcessGrowth | None, workers: bool
) -> Iterable[Finding]:
    """Yield the finding about the process or its workers, when there is one."""
    if found is None or found.growth.total < max(LEAST_BYTES, LEAST_SHARE * found.growth.first):
        return
    growth = found.growth
    graphs = () if workers else evidence.kept_graphs(trainer)
    line = _dataset_line(evidence, trainer) if workers else graphs[0].where if graphs else None
    left = free_memory(evidence.timeline, trainer.host)
    lasts_ns = None if left is None else left / growth.per_s * 1e9
    work = 1.0 if workers or graphs else evidence.forward_growth(trainer)
    who = f"{units.counted(found.processes, 'DataLoader worker')}" if workers else "the training process"
    yield Finding(
        title=f"The memory of {who} grows by {units.size(growth.per_s * HOUR_S)} per hour"
        + (f": graphs made at {place(line, '')} are kept." if graphs and line else "."),
        share=0.0,
        saving=(1.0, 1.0),
        evidence=(
            f"From {units.size(growth.first)} to {units.size(growth.first + growth.total)} within the training loop.",
            *kept.words(graphs),
            *_outlook(left, lasts_ns),
            *_with_work(work),
        ),
        advice=_advice(found, workers, kept.advice(graphs) if graphs else "", line),
        location=locate(line),
        health=True,
        at_least="minor" if work >= MORE_WORK else _severity(lasts_ns),
    )


def _severity(lasts_ns: float | None) -> Severity:
    """Return how bad it is by how long memory would last."""
    return "minor" if lasts_ns is not None and lasts_ns > SOON_NS else "major"


def _outlook(left: float | None, lasts_ns: float | None) -> tuple[str, ...]:
    """Return how long memory would last at that pace."""
    if left is None or lasts_ns is None:
        return ()
    return (f"At this pace the {units.size(left)} that were left last for {units.duration(lasts_ns)}.",)


def _with_work(work: float) -> tuple[str, ...]:
    """Return that the model has more and more to do, where it has."""
    if work < MORE_WORK:
        return ()
    return (
        f"The forward pass takes {units.times(work)} as long at the end as at the beginning: larger inputs need more "
        "memory, which may be all there is to it.",
    )


def _dataset_line(evidence: Evidence, trainer: Trainer) -> Line | None:
    """Return where the data set makes a sample, of the loader with workers that is waited for most."""
    loaders = [one for one in evidence.loaders(trainer) if one.workers and one.making is not None]
    return loaders[0].making.getitem_line if loaders and loaders[0].making else None


def _advice(found: ProcessGrowth, workers: bool, graph: str, line: Line | None) -> str:
    """Return what to change."""
    if graph:
        return graph
    if not workers:
        return (
            "Look for what the loop adds to in each step: lists and dictionaries of results, caches, hooks. "
            "tracemalloc names the lines whose Python objects stay."
        )
    data_set = f"the data set ({place(line, '')})" if line else "the data set"
    if found.copied:
        return (
            f"Nothing is added, but pages shared with the parent get copied as reference counts change in {data_set}: "
            "keep its lists of small objects in one numpy array or tensor."
        )
    return f"Look for what {data_set} keeps of each sample in a worker: a list or a cache without a limit."
