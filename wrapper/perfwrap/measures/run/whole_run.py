"""How the time of a whole run divides, from the launch of the command to its exit."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import contain
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_events import thread_spans
from perfwrap.measures.account.tiling import NO_OWNER, tile
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.ranks.concurrent_loops import find_concurrent_groups
from perfwrap.measures.ranks.restarts import find_restarts
from perfwrap.measures.run.imports import STANDARD_LIBRARY, timed_samples
from perfwrap.measures.run.start_up import life_of, started
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

LAUNCH, IMPORTS, SETUP, FIRST_BATCH, COMPILING = "launch", "imports", "setup", "first batch", "compiling"
WARM_UP, LOOP, VALIDATION, CHECKPOINTS = "warm-up", "steady loop", "validation", "checkpoints"
BETWEEN, AFTER, EXIT = "between trainings", "after the loop", "exit"

PARTS = (
    LAUNCH,
    IMPORTS,
    SETUP,
    FIRST_BATCH,
    COMPILING,
    WARM_UP,
    LOOP,
    VALIDATION,
    CHECKPOINTS,
    BETWEEN,
    AFTER,
    EXIT,
)
"""The exclusive parts of a run, in display order. ``launch`` is the time before the process of the trainer starts."""
START = (LAUNCH, IMPORTS, SETUP, FIRST_BATCH)
"""The parts before the loop."""
INSIDE = (WARM_UP, LOOP, VALIDATION, CHECKPOINTS, COMPILING)
"""The parts of the loop; compiling also happens before it."""

OWNED = {
    "import": IMPORTS,
    "compile": COMPILING,
    "save": CHECKPOINTS,
    "load": CHECKPOINTS,
    "data": FIRST_BATCH,
    "data_end": FIRST_BATCH,
    "loader_start": FIRST_BATCH,
}
"""The part of each operation that has one of its own; waits for data only until the first step ends."""
UNAVOIDABLE = ("torch", STANDARD_LIBRARY)
MAX_PLACES = 2
MIN_PLACE_SHARE = 0.05
"""Share of the run from which a place outside the loop is named."""
OUTSIDE_SHARE = 0.5
"""Share of the run outside the training loop from which the run is bound by that."""
MIN_OUTSIDE_NS = 5_000_000_000
"""Time outside the loop that the program itself spends, from which that matters; a short test run is mostly imports."""


class Place(Struct, frozen=True):
    """Time outside the loop at one line, or in the import of one package."""

    part: str
    where: Line | None
    package: str
    """The imported package; empty if nothing is imported."""
    ns: int


class WholeRun(Struct, frozen=True):
    """The parts of a run, in nanoseconds; they sum to its length."""

    parts: dict[str, int]
    """Every one of PARTS, in this order."""
    places: tuple[Place, ...] = ()
    """The costliest places outside the loop, most time first; empty without samples."""
    imports: tuple[tuple[str, int], ...] = ()
    """Time of each imported package, most first; empty without samples."""
    compiling_in_loop_ns: int = 0
    """The part of the compiling that happened in the steady loop; the account of the loop has it too."""
    slow_warm_up_ns: int = 0
    """How much longer the warm-up steps took than as many steady ones, without waits for data after the first step:
    kernels are loaded and tuned in them."""

    @property
    def total_ns(self) -> int:
        """The length of the run."""
        return sum(self.parts.values())

    @property
    def outside_ns(self) -> int:
        """The time outside the training loop."""
        return sum(ns for part, ns in self.parts.items() if part not in INSIDE)

    @property
    def start_compiling_ns(self) -> int:
        """The time of compiling before the steady loop, and after it."""
        return self.parts[COMPILING] - self.compiling_in_loop_ns

    @property
    def own_outside_ns(self) -> int:
        """``outside`` without the interpreter, torch's import and the exit."""
        own = sum(self.parts[part] for part in (SETUP, FIRST_BATCH, BETWEEN, AFTER))
        own += self.start_compiling_ns + self.slow_warm_up_ns
        return own + sum(ns for package, ns in self.imports if package not in UNAVOIDABLE)

    @property
    def outside(self) -> dict[str, int]:
        """The parts outside the training loop, compiling before and after the steady loop, and slow warm-up steps."""
        outside = {part: ns for part, ns in self.parts.items() if part not in INSIDE}
        return {**outside, COMPILING: self.start_compiling_ns, WARM_UP: self.slow_warm_up_ns}

    @property
    def start_ns(self) -> int:
        """The time before the loop, of compiling and of slow warm-up steps."""
        before = sum(self.parts[part] for part in START)
        return before + self.start_compiling_ns + self.slow_warm_up_ns

    @property
    def is_bound_outside(self) -> bool:
        """Whether most of the run is outside the training loop, and enough of it is the program's own."""
        mostly = sum(self.outside.values()) >= OUTSIDE_SHARE * self.total_ns
        return mostly and self.own_outside_ns >= MIN_OUTSIDE_NS

    @property
    def is_bound_by_start(self) -> bool:
        """Whether most of the run is outside the training loop, and at least half of that is the start."""
        return self.is_bound_outside and self.start_ns >= sum(self.outside.values()) / 2

    @property
    def is_bound_before_steps(self) -> bool:
        """Whether the start alone, without slow warm-up steps, is at least half of a run's time outside the loop."""
        return (
            self.is_bound_by_start and self.start_ns - self.slow_warm_up_ns >= sum(self.outside.values()) / 2
        )

    def share_of(self, *parts: str) -> float:
        """Return the share of some parts of the run."""
        return sum(self.parts[part] for part in parts) / max(1, self.total_ns)


def find_whole_run(evidence: Evidence) -> WholeRun | None:
    """Return the parts of the run of the main trainer's process.

    None if the start, the end or the steps of the command were not recorded, and if several processes trained one after
    the other.
    """
    trainer = evidence.get(find_main_trainer)
    return None if trainer is None else evidence.get(find_whole_run_of, trainer)


def find_whole_run_of(evidence: Evidence, trainer: Trainer) -> WholeRun | None:
    """Return the parts of the run as seen by one trainer."""
    timeline = evidence.timeline
    begin, end = timeline.run.get("start"), timeline.run.get("end")
    if not isinstance(begin, dict) or not isinstance(end, dict):
        return None
    if timeline.run.get("attached") or "imported" in timeline.run or evidence.get(find_restarts):
        return None
    steps = evidence.get(find_steps, trainer)
    if not steps.count or len(evidence.get(find_concurrent_groups)) != 1:
        return None
    edges = _edges(timeline, trainer, steps, begin["monotonic_ns"], end["monotonic_ns"])
    if edges != sorted(edges):
        return None
    return _divided(timeline, trainer, steps, edges)


def _edges(timeline: Timeline, trainer: Trainer, steps: Steps, begin: int, end: int) -> list[int]:
    """Return launch, process start, first step, steady loop, end of the loop, end of the recorder, and exit."""
    seen, ended = life_of(timeline, trainer)
    born = max(begin, min(started(timeline, trainer) or seen, seen))
    first = int(steps.table["start"][0])
    steady = min(max(steps.warm_up_end, first), steps.loop_end)
    return [begin, born, first, steady, steps.loop_end, min(max(ended, steps.loop_end), end), end]


def _divided(timeline: Timeline, trainer: Trainer, steps: Steps, edges: list[int]) -> WholeRun:
    """Return the parts between the edges, and the places of the time outside the loop."""
    begin, born, first, steady, loop_end, ended, end = edges
    spans = thread_spans(timeline, trainer).filter(pl.col("operation").is_in(list(OWNED)))
    is_wait = pl.col("operation").is_in(["data", "data_end", "loader_start"])
    first_end = int(steps.table["end"][0])
    loads = (pl.col("operation") == "load") & (pl.col("start") < first)
    spans = spans.filter(~is_wait | (pl.col("start") < first_end), ~loads)
    samples = _within_parts(timed_samples(timeline, trainer.thread), edges)
    imports = samples.filter(pl.col("package").is_not_null())
    gaps, phases = steps.gaps, steps.phases
    more = [*edges, *phases.start, *phases.end, *gaps[0], *gaps[1]]
    more += [*samples["start"], *samples["end"]]
    start = spans["start"].to_numpy()
    cuts = np.array(more, dtype=np.int64)
    tiling = tile(start, start + spans["duration"].to_numpy(), begin, end, cuts)
    moments = tiling.cuts[:-1]
    place = np.searchsorted(np.array(edges[1:-1]), moments, side="right")
    part = np.array([LAUNCH, SETUP, WARM_UP, LOOP, AFTER, EXIT], dtype=object)[place]
    part[contain(gaps, moments) & (part != EXIT)] = BETWEEN
    importing = contain((imports["start"].to_numpy(), imports["end"].to_numpy()), moments)
    # Before the first sample or recorded event, the interpreter starts.
    known = min([*samples["start"].to_list()[:1], life_of(timeline, trainer)[0], first])
    importing |= (moments >= born) & (moments < known)
    part[importing & np.isin(part, (SETUP, WARM_UP, BETWEEN, AFTER))] = IMPORTS
    names = np.array([*[OWNED[operation] for operation in spans["operation"].to_list()], ""], dtype=object)
    owner = names[tiling.owner]
    part = np.where(tiling.owner != NO_OWNER, owner, part)
    part[phases.contain(moments) & (part != COMPILING) & (part != LAUNCH)] = VALIDATION
    lengths = np.diff(tiling.cuts)
    parts = {name: int(lengths[part == name].sum()) for name in PARTS}
    pieces = pl.DataFrame(
        {"start": moments, "part": part.tolist(), "ns": lengths}, schema_overrides={"part": pl.String}
    )
    placed = _placed(pieces, samples)
    again = lengths[(part == COMPILING) & (moments >= steady) & (moments < loop_end)]
    waits = thread_spans(timeline, trainer).filter(is_wait, pl.col("start").is_between(first_end, steady))
    slow = max(0, parts[WARM_UP] - int(waits["duration"].sum()) - _ordinary_warm_up_ns(steps))
    return WholeRun(parts, _places(placed, sum(parts.values())), _packages(placed), int(again.sum()), slow)


def _ordinary_warm_up_ns(steps: Steps) -> int:
    """Return the time that the warm-up steps would take as steady ones, and that of those which perfwrap captured."""
    warm_up = steps.table.filter(pl.col("index") < steps.warm_up_steps)
    captured = warm_up.filter("windowed")["duration"]
    if steps.median_ns is None:
        return steps.loop_end
    return int(float(captured.sum()) + steps.median_ns * (warm_up.height - captured.len()))


def _within_parts(samples: pl.DataFrame, edges: list[int]) -> pl.DataFrame:
    """Return the samples, none longer than until the next edge: the next part is spent elsewhere."""
    following = np.searchsorted(np.array(edges), samples["start"].to_numpy(), side="right")
    until = np.array([*edges, np.iinfo(np.int64).max])[following]
    return samples.with_columns(pl.min_horizontal("end", pl.Series(until)).alias("end"))


def _placed(pieces: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Return the pieces with the sample that covers them; those without one are left out."""
    joined = pieces.sort("start").join_asof(samples.sort("start"), on="start", strategy="backward")
    return joined.filter(pl.col("start") < pl.col("end"))


def _places(placed: pl.DataFrame, total: int) -> tuple[Place, ...]:
    """Return the costliest places outside the loop."""
    outside = placed.filter(
        ~pl.col("part").is_in(INSIDE), pl.col("file").is_not_null() | pl.col("package").is_not_null()
    )
    is_import = pl.col("part") == IMPORTS
    package = pl.when(is_import).then("package").fill_null("")
    key = outside.with_columns(
        package.alias("package"), *(pl.when(package == "").then(name) for name in ("file", "line"))
    )
    found = (
        key.group_by("part", "package", "file", "line")
        .agg(pl.col("ns").sum(), pl.col("function").first())
        .filter(pl.col("ns") >= MIN_PLACE_SHARE * total)
        .sort("ns", "part", descending=[True, False])
    )
    return tuple(_place(row) for row in found.head(MAX_PLACES).iter_rows(named=True))


def _place(row: dict[str, Any]) -> Place:
    where = line_of(row["file"], row["line"], row["function"])
    return Place(row["part"], where, row["package"], int(row["ns"]))


def _packages(placed: pl.DataFrame) -> tuple[tuple[str, int], ...]:
    """Return the import time of each package, most first."""
    found = placed.filter(pl.col("part") == IMPORTS, pl.col("package").is_not_null())
    sums = found.group_by("package").agg(pl.col("ns").sum()).sort("ns", "package", descending=[True, False])
    return tuple((row["package"], int(row["ns"])) for row in sums.iter_rows(named=True))
