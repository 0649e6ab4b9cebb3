"""The memory of the training process or of its DataLoader workers keeps growing.

What it finds
    Anonymous memory of the process, or of all its workers, that grows by at least 64 MiB and 10 % during the training
    loop and is still growing at its end.

Why it costs
    Eventually the machine swaps, or the kernel kills the run.

How the gain is estimated
    It costs no time until memory runs out, so no share is claimed; the finding says when that will be.

How to fix
    Keep numbers instead of tensors (loss.item(), output.detach()): a tensor with a graph keeps all activations of its
    step. Do not keep growing lists in datasets: each worker has its own copy. If the memory of workers grows although
    nothing is added, Python's reference counts cause copies of shared objects: keep many small objects in one numpy
    array or tensor.

When it is wrong
    When a cache fills on purpose and is not full at the end of the run. If the forward pass also gets slower, larger
    inputs may be the reason: the finding is minor then.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.kept_graphs import find_kept_graphs
from perfwrap.measures.health.memory import (
    ProcessGrowth,
    free_memory,
    is_sampled,
    process_growth,
    worker_growth,
)
from perfwrap.measures.loop.slowing import forward_growth
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.health import _kept_graphs as kept
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, Severity, locate, place

NEEDS = ("trainer", "steps", "recorder")


HOUR_S = 3_600


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_bytes: int = 64 << 20
    """Allocators keep tens of MiB after a while, but no more."""
    min_share: float = 0.10
    """Share of the memory at the start of the loop."""
    soon_ns: int = 24 * 3_600_000_000_000
    """If memory will run out within a day, the finding is major: long trainings take days."""
    min_slowdown: float = 1.25
    """Slowdown of the forward pass from which larger inputs may be the reason."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the memory of the process and of its workers during the loop."""
    account, timeline = evidence.get(find_account, trainer), evidence.timeline
    # What a dataflow window holds is perfwrap's own memory; it may grow until the last one has ended.
    windows = [each for each in timeline.operation_windows if each.process == trainer.process]
    start = max([account.start, *(each.opened + each.ends[-1] for each in windows if each.ends)])
    end = account.end
    if not is_sampled(timeline, trainer.process, start, end):
        return NotChecked("Memory of the process was not recorded long enough; train longer.")
    main = process_growth(timeline, trainer, start, end)
    workers = worker_growth(timeline, trainer, start, end)
    found = [
        *_findings(evidence, trainer, main, workers=False, limits=limits),
        *_findings(evidence, trainer, workers, workers=True, limits=limits),
    ]
    if found:
        return found
    grown = main.growth.total if main else 0.0
    return Clear(f"Memory of the process grows by {units.size(grown)} in the training loop.")


def _findings(
    evidence: Evidence, trainer: Trainer, found: ProcessGrowth | None, workers: bool, limits: Limits
) -> Iterable[Finding]:
    """Yield the finding about the process or its workers, if any."""
    if found is None or found.growth.total < max(limits.min_bytes, limits.min_share * found.growth.first):
        return
    growth = found.growth
    graphs = () if workers else evidence.get(find_kept_graphs, trainer)
    line = _dataset_line(evidence, trainer) if workers else graphs[0].where if graphs else None
    left = free_memory(evidence.timeline, trainer.host)
    lasts_ns = None if left is None else left / growth.per_s * 1e9
    work = 1.0 if workers or graphs else evidence.get(forward_growth, trainer)
    who = f"{units.counted(found.processes, 'DataLoader worker')}" if workers else "the training process"
    yield Finding(
        title=f"The memory of {who} grows by {units.size(growth.per_s * HOUR_S)} per hour"
        + (f": graphs made at {place(line, '')} are kept." if graphs and line else "."),
        share=0.0,
        evidence=(
            f"From {units.size(growth.first)} to {units.size(growth.first + growth.total)} within the training loop.",
            *kept.words(graphs),
            *_outlook(left, lasts_ns),
            *_with_work(work, limits),
        ),
        options=(Option(_advice(found, workers, kept.advice(graphs) if graphs else "", line), (1.0, 1.0)),),
        location=locate(line),
        health=True,
        min_severity="minor" if work >= limits.min_slowdown else _severity(lasts_ns, limits),
    )


def _severity(lasts_ns: float | None, limits: Limits) -> Severity:
    """Return the severity, by how long memory will last."""
    return "minor" if lasts_ns is not None and lasts_ns > limits.soon_ns else "major"


def _outlook(left: float | None, lasts_ns: float | None) -> tuple[str, ...]:
    """Return how long memory will last at this rate."""
    if left is None or lasts_ns is None:
        return ()
    return (f"At this rate the free {units.size(left)} last for {units.duration(lasts_ns)}.",)


def _with_work(work: float, limits: Limits) -> tuple[str, ...]:
    """Return that the forward pass gets slower, if it does."""
    if work < limits.min_slowdown:
        return ()
    return (
        f"The forward pass takes {units.times(work)} as long at the end as at the start, so larger inputs may be the "
        "only reason.",
    )


def _dataset_line(evidence: Evidence, trainer: Trainer) -> Line | None:
    """Return where the dataset makes a sample, for the loader with workers that is waited for most."""
    loaders = [one for one in evidence.get(find_loaders, trainer) if one.workers and one.making is not None]
    return loaders[0].making.getitem_line if loaders and loaders[0].making else None


def _advice(found: ProcessGrowth, workers: bool, graph: str, line: Line | None) -> str:
    """Return what to change."""
    if graph:
        return graph
    if not workers:
        return (
            "Look for what the loop adds to in each step: lists and dictionaries of results, caches, hooks "
            "(tracemalloc shows the lines whose Python objects remain)."
        )
    dataset = f"the dataset ({place(line, '')})" if line else "the dataset"
    if found.copied:
        return (
            f"Keep the lists of small objects in {dataset} in one numpy array or tensor: nothing is added, but changes "
            "of reference counts copy pages that are shared with the parent."
        )
    return f"Look for what {dataset} keeps of each sample in a worker: a list or a cache without a limit."
