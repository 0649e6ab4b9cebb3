"""The figures of the live view of a run at one moment, ready to draw."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

import numpy as np
import polars as pl
from msgspec import Struct, field

from perfwrap.diagnosis.model import Verdict
from perfwrap.journal_format import SPANS
from perfwrap.live.devices import GpuNow, ProcessNow, gpus_now, processes_now
from perfwrap.live.run_so_far import LineNow, RunSoFar, divide_run, find_costly_lines, loop_end
from perfwrap.live.state import State
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.parts import PARTS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.gpu.gpu_state import find_gpus
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.ranks.concurrent_loops import find_concurrent_trainers
from perfwrap.measures.steps.phases import EVALUATED, TRAINED
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.timeline.coverage import RECORDER
from perfwrap.timeline.model import Timeline

MAX_TREND = 240
"""Maximum number of points of the trend: more than a terminal has columns."""

ANCHORS = (("optimizer", "OPTIMIZER"), ("backward", "BACKWARD"), ("batches", "DATA"), ("forward", "FORWARD"))
"""The operations that end steps, the most reliable first, and the kind of their records."""


class Counted(Protocol):
    """Counts of a run beyond its timeline: of records that were not kept."""

    def counted_before(self, pid: int | None) -> Counter[int]:
        """Return how many spans of each kind a process had before the kept records."""

    def loaders(self, pid: int | None) -> dict[str, tuple[int, int, int | None]]:
        """Return for each loader its iterations, and the batches of the current and the previous one."""


class Progress(Struct, frozen=True):
    """Progress of the trainer that represents the run; None where unknown.

    ``estimated``: steps before the recent part were counted by their optimizer steps (or what else ends them).
    """

    steps: int = 0
    estimated: bool = False
    epoch: int | None = None
    batch: int | None = None
    batches: int | None = None
    """Batches of the previous epoch."""


class View(Struct, frozen=True):
    """The figures at one moment; ``recent_steps`` is None while they are of the whole run so far.

    ``account`` is in nanoseconds, summed over all trainers; ``trend`` has the step times in order, each the median
    of neighbouring steps.
    """

    progress: Progress = Progress()
    recent_steps: int | None = None
    steady_steps: int = 0
    median_ns: float | None = None
    p99_ns: float | None = None
    samples_per_s: float | None = None
    trend: tuple[float, ...] = ()
    account: dict[str, int] = field(default_factory=dict)
    run_so_far: RunSoFar | None = None
    """How the whole run divides so far; None if unknown."""
    lines: tuple[LineNow, ...] = ()
    """The costliest lines of the training loop of the main trainer, in the recent part."""
    trainers: tuple[tuple[str, int, float | None], ...] = ()
    """Name, steps (in the recent part) and median step time of each trainer."""
    gpus: tuple[GpuNow, ...] = ()
    processes: tuple[ProcessNow, ...] = ()
    problems: tuple[str, ...] = ()


class Scene(Struct, frozen=True):
    """All that is drawn: the run, its state, its elapsed time, the view, and the last verdict."""

    run: dict[str, Any]
    state: State
    elapsed_ns: int
    view: View = View()
    verdict: Verdict | None = None
    stall: str | None = None
    """The current stall."""


def look(
    evidence: Evidence, run: Counted, whole: bool, over: bool = False, earlier: RunSoFar | None = None
) -> View:
    """Return the view of a timeline that contains the whole run so far or only its recent part.

    ``earlier`` is how the run divided while the timeline was whole. If the run is ``over``, the figures of GPUs are
    means over the steady loop, and there are no processes.
    """
    timeline, main = evidence.timeline, evidence.get(find_main_trainer)
    shared: dict[str, Any] = {
        "gpus": tuple(GpuNow(gpu, None) for gpu in evidence.get(find_gpus)) if over else gpus_now(timeline),
        "processes": () if over else processes_now(timeline, evidence.get(find_trainers)),
        "problems": problems(timeline),
    }
    if main is None:
        return View(**shared)
    steps = evidence.get(find_steps, main)
    rates = [
        evidence.get(find_steps, trainer).samples_per_s for trainer in evidence.get(find_concurrent_trainers)
    ]
    known = [rate for rate in rates if rate is not None]
    accounts = [evidence.get(find_account, trainer) for trainer in evidence.get(find_trainers)]
    if whole:
        so_far = divide_run(evidence, main, over)
    else:
        so_far = earlier.until(loop_end(evidence, main)) if earlier is not None else None
    return View(
        progress=_progress(evidence, main, run, whole),
        recent_steps=None if whole else steps.count,
        steady_steps=steps.steady,
        median_ns=steps.median_ns,
        p99_ns=steps.p99_ns,
        samples_per_s=sum(known) if len(known) == len(rates) else None,
        trend=trend(steps),
        account={part: sum(account.ns[part] for account in accounts) for part in PARTS},
        run_so_far=so_far,
        lines=find_costly_lines(evidence, main),
        trainers=tuple(_trainer(evidence, trainer) for trainer in evidence.get(find_trainers)),
        **shared,
    )


def trend(steps: Steps, most: int = MAX_TREND) -> tuple[float, ...]:
    """Return the durations of the steady steps in order; if there are too many, medians of neighbouring steps."""
    durations = steps.table.filter("steady")["duration"].to_numpy()
    pieces = np.array_split(durations, min(most, durations.size)) if durations.size else []
    return tuple(float(np.median(piece)) for piece in pieces)


def problems(timeline: Timeline) -> tuple[str, ...]:
    """Return what was not recorded or was lost, in sentences: warnings first, then notes of the coverage."""
    processes = dict(timeline.tracks.select("id", pl.struct("pid", "role")).iter_rows())
    found = list(timeline.warnings)
    rows = timeline.coverage.select("what", "track", "note").drop_nulls("note").unique(maintain_order=True)
    together: dict[tuple[str, str], list[int]] = {}
    for what, track, note in rows.iter_rows():
        process = processes.get(track) or {}
        # Workers usually end by os._exit, and the warnings have what the journals lost.
        if what != "journal" and process.get("role") != "worker":
            together.setdefault((what, note), []).append(process.get("pid") or 0)
    for (what, note), members in together.items():
        if what != RECORDER:
            found.append(f"{what}: {note}")
        else:
            who = f"process {members[0]}" if len(members) == 1 else f"{len(members)} processes"
            found.append(f"{who}: {note}")
    return tuple(dict.fromkeys(found))


def _trainer(evidence: Evidence, trainer: Trainer) -> tuple[str, int, float | None]:
    """Return name, steps and median step time of one trainer."""
    steps = evidence.get(find_steps, trainer)
    return trainer.name, steps.count, steps.median_ns


def _progress(evidence: Evidence, main: Trainer, run: Counted, whole: bool) -> Progress:
    """Return the progress of a trainer; steps before the timeline are counted by the operations that end them."""
    steps = evidence.get(find_steps, main)
    before = Counter[int]() if whole else run.counted_before(main.pid)
    earlier = 0
    for name, kind in ANCHORS:
        anchors = getattr(steps.events, name)
        if len(anchors):
            detailed = int(steps.table["detailed"].sum())
            earlier = round(before[SPANS[kind]] * detailed / len(anchors))
            break
    return Progress(steps.count + earlier, earlier > 0, *_epoch(evidence, main, run))


def _epoch(evidence: Evidence, main: Trainer, run: Counted) -> tuple[int | None, int | None, int | None]:
    """Return the epoch, its batches, and those of the previous epoch; None without a loader."""
    steps = evidence.get(find_steps, main)
    trained = steps.events.loader.key[steps.phases.use == TRAINED]
    if not trained.size:
        return None, None, None
    name = steps.events.names[int(trained[-1])]
    loaders, facts = run.loaders(main.pid), evidence.get(find_facts, main.process)
    if name not in loaders:
        return None, None, None
    started, batch, batches = loaders[name]
    if started != 1:
        return started or None, batch, batches
    # A loader that is created for each epoch has a new name each time, but the same line.
    place = facts.get(f"{name}/created")
    same = [other for other in loaders if place and facts.get(f"{other}/created") == place] or [name]
    evaluated = {
        steps.events.names[key] for key in steps.events.loader.key[steps.phases.use == EVALUATED].tolist()
    }
    if evaluated & set(same) or any(loaders[other][0] != 1 for other in same):
        return None, batch, None
    whole = [loaders[other][1] for other in same if other != name]
    return len(same), batch, max(whole, default=None)
