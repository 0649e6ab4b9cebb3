"""The recording of one run: its measured steps, the state of the changes, its loss; or why there are none."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
from msgspec import Struct, field
from numpy.typing import NDArray

from perfwrap import units
from perfwrap.errors import PerfwrapError
from perfwrap.experiments.edits import Site
from perfwrap.experiments.runner import Ended
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.steps import find_steps
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

Status = Literal[
    "measured", "refused", "unused", "out of memory", "crashed", "hung", "no steps", "interrupted"
]

MIN_STEPS = 5
"""With fewer steady steps, the step time is unknown."""

BETWEEN_SITES, BETWEEN_FIELDS = "\x1e", "\x1f"
OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemory|can't allocate memory|Cannot allocate memory|MemoryError", re.I
)
"""The messages of CUDA's allocator, the CPU's, the system and Python."""
PEAK_MEMORY = "peak_allocated_bytes"


class Made(Struct, frozen=True):
    """The state of one change: applied, refused or unused, and where it was made."""

    status: str
    reason: str = ""
    sites: tuple[Site, ...] = ()


class Steps(Struct, frozen=True):
    """The measured steps: their numbers in the program's loop, how long each took, and its samples (0: unknown)."""

    number: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    samples: NDArray[np.int64]

    def between(self, first: int, last: int) -> Steps:
        """Return the steps with these numbers."""
        inside = (self.number >= first) & (self.number <= last)
        return Steps(self.number[inside], self.duration_ns[inside], self.samples[inside])


NO_STEPS = Steps(*(np.empty(0, dtype=np.int64) for _ in range(3)))


class Reading(Struct, frozen=True):
    """The recording of one run; ``reason`` says why it was not measured."""

    status: Status
    reason: str = ""
    steps: Steps = NO_STEPS
    made: Mapping[str, Made] = field(default_factory=dict)
    loss: float | None = None
    """The loss of the last measured step."""
    first_step: int | None = None
    last_step: int | None = None
    """As the recorder counts them, from 1."""
    end: str = ""
    skipped_writes: int = 0
    peak_bytes: float | None = None
    batch_size: int | None = None
    dataset_length: int | None = None
    epoch_steps: int | None = None
    """The steps of one epoch of the training loader; None if unknown."""


def read_timeline(folder: RunFolder) -> Timeline | None:
    """Return the recording; None if it cannot be read."""
    try:
        return run_journals.read(folder)
    except PerfwrapError:
        return None


def read(ended: Ended, changes: tuple[str, ...], timeline: Timeline | None) -> Reading:
    """Return the recording of a run that has ended."""
    if timeline is None:
        return Reading(*_failure(ended, 0, None))
    evidence = Evidence(timeline)
    facts = _facts(timeline, evidence)
    made = {change: _made(facts, change) for change in changes}
    steps = _measured(evidence, facts)
    status, reason = _status(ended, made, steps, facts, timeline)
    main = evidence.get(find_main_trainer)
    loaders = (
        [loader for loader in evidence.get(find_loaders, main) if loader.training] if main is not None else []
    )
    return Reading(
        status=status,
        reason=reason,
        steps=steps,
        made=made,
        loss=_number(facts.get("trial/loss")),
        first_step=_whole(facts.get("trial/first_step")),
        last_step=_whole(facts.get("trial/last_step")),
        end=facts.get("trial/end", ""),
        skipped_writes=_whole(facts.get("trial/skipped_writes")) or 0,
        peak_bytes=_peak(timeline),
        batch_size=loaders[0].batch_size if loaders else None,
        dataset_length=loaders[0].dataset_length if loaders else None,
        epoch_steps=_epoch_steps(steps, loaders[0], facts) if loaders else None,
    )


def _epoch_steps(steps: Steps, loader: LoaderUse, facts: Mapping[str, str]) -> int | None:
    """Return the steps of an epoch of the loader, some of which may take several batches."""
    batches = _whole(facts.get(f"{loader.name}/epoch_batches"))
    samples = float(np.median(steps.samples)) if steps.samples.size else 0.0
    if not batches or not samples:
        return batches
    return math.ceil(batches * min(1.0, (loader.batch_size or samples) / samples))


def _facts(timeline: Timeline, evidence: Evidence) -> dict[str, str]:
    """Return the facts of the trainer's process; of all processes if none trained."""
    main = evidence.get(find_main_trainer)
    if main is not None:
        return facts_of(timeline, main.process)
    return dict(zip(timeline.facts["key"].to_list(), timeline.facts["value"].to_list(), strict=True))


def _made(facts: Mapping[str, str], change: str) -> Made:
    """Return the state of a change, which may be recorded by its name alone or with its value."""
    name = change.partition("=")[0]
    known = next((key for key in (name, change) if f"change/{key}/status" in facts), None)
    if known is None:
        return Made("unused", "the recorder did not reach the place of the change")
    return Made(
        facts[f"change/{known}/status"],
        facts.get(f"change/{known}/reason", ""),
        _sites(facts.get(f"change/{known}/sites", "")),
    )


def _sites(text: str) -> tuple[Site, ...]:
    """Return the lines where a change was made."""
    found = [site.split(BETWEEN_FIELDS) for site in text.split(BETWEEN_SITES)]
    return tuple(
        Site(parts[0], int(parts[1]), *parts[2:4])
        for parts in found
        if len(parts) > 1 and parts[1].isdecimal()
    )


def _measured(evidence: Evidence, facts: Mapping[str, str]) -> Steps:
    """Return the steps that the recorder marked as measured, or else the steady ones."""
    main = evidence.get(find_main_trainer)
    if main is None:
        return NO_STEPS
    table = evidence.get(find_steps, main).table
    begin, end = facts.get("trial/begin_ns", ""), facts.get("trial/end_ns", "")
    middle = (pl.col("start") + pl.col("end")) // 2
    known = begin.isdecimal() and end.isdecimal()
    inside = table.filter(middle.is_between(int(begin), int(end)) if known else pl.col("steady"))
    return Steps(
        inside["index"].to_numpy(), inside["duration"].to_numpy(), inside["samples"].fill_null(0).to_numpy()
    )


def _status(
    ended: Ended, made: Mapping[str, Made], steps: Steps, facts: Mapping[str, str], timeline: Timeline
) -> tuple[Status, str]:
    """Return the outcome of the run, and why."""
    if ended.how == "interrupted":
        return "interrupted", "interrupted"
    if not facts.get("trial/end") and (ended.how == "too slow" or ended.status != 0):
        return _failure(ended, steps.number.size, timeline)
    for word in ("refused", "unused"):
        for change, result in made.items():
            if result.status == word:
                return word, f"{change}: {result.reason}" if len(made) > 1 else result.reason
    if steps.number.size < MIN_STEPS:
        return _failure(ended, steps.number.size, timeline)
    return "measured", ""


def _failure(ended: Ended, steps: int, timeline: Timeline | None) -> tuple[Status, str]:
    """Return why a run has no measured steps."""
    said = ended.last_words()
    if ended.how == "interrupted":
        return "interrupted", "interrupted"
    if _ran_out_of_memory(said, timeline):
        return "out of memory", said or "the kernel killed it because memory ran out"
    reached = f"after {units.counted(steps, 'steady step')}" if steps else "before any steady step"
    if ended.how == "too slow":
        return "hung", f"stopped by perfwrap after {units.duration(ended.wall_s * 1e9)}, {reached}"
    if ended.status:
        how = f"signal {-ended.status}" if ended.status < 0 else f"exit code {ended.status}"
        return "crashed", f"{how}{f': {said}' if said else ''}"
    return "no steps", f"the program ended {reached}" + ("" if steps else "; no training loop was seen")


def _ran_out_of_memory(said: str, timeline: Timeline | None) -> bool:
    """Return whether the run ran out of memory."""
    if timeline is not None and (timeline.run.get("exit") or {}).get("oom_kill"):
        return True
    return bool(OUT_OF_MEMORY.search(said))


def _peak(timeline: Timeline) -> float | None:
    """Return the peak memory in use on a GPU; None if it was not sampled."""
    counters = timeline.tracks.filter(pl.col("kind") == "counter", pl.col("name") == PEAK_MEMORY)["id"]
    values = timeline.samples.filter(pl.col("track").is_in(counters.to_list()))["value"]
    return None if values.is_empty() else float(values.max())  # type: ignore[arg-type]


def _number(text: str | None) -> float | None:
    """Return a number as the recorder writes it; None if there is none."""
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is None or not math.isinf(value) else math.nan


def _whole(text: str | None) -> int | None:
    """Return a whole number as the recorder writes it; None if there is none."""
    return int(text) if text and text.isdecimal() else None
