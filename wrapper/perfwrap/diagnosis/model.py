"""The dataclasses of a diagnosis, and re-exports of their field types for reports, which do not import measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from perfwrap.diagnosis.prices import Cost as Cost
from perfwrap.diagnosis.would_not_help import Unhelpful as Unhelpful
from perfwrap.measures.account.parts import NO_PHASES as NO_PHASES
from perfwrap.measures.account.parts import UNKNOWN as UNKNOWN
from perfwrap.measures.dataflow.line_account import LineAccount as LineAccount
from perfwrap.measures.dataflow.line_account import LineCost as LineCost
from perfwrap.measures.dataflow.line_account import ModuleCost as ModuleCost
from perfwrap.measures.gpu.gpu_state import Gpu as Gpu
from perfwrap.measures.health.gpu_memory import GpuMemory as GpuMemory
from perfwrap.measures.host.cores_taken import OtherPrograms as OtherPrograms
from perfwrap.measures.host.processors import Processors
from perfwrap.measures.kernels.gpu_figures import GpuFigures as GpuFigures
from perfwrap.measures.kernels.phase_idle import PhaseIdle as PhaseIdle
from perfwrap.measures.ranks.fleet import Fleet as Fleet
from perfwrap.measures.ranks.rank_skew import RankSkew as RankSkew
from perfwrap.measures.ranks.rank_skew import Skew as Skew
from perfwrap.measures.recorder.own_cost import OwnCost
from perfwrap.measures.run.energy import Energy as Energy
from perfwrap.measures.run.overview import Overview as Overview
from perfwrap.measures.run.overview import TrainerOverview as TrainerOverview
from perfwrap.measures.run.whole_run import IMPORTS as IMPORTS
from perfwrap.measures.run.whole_run import INSIDE as INSIDE
from perfwrap.measures.run.whole_run import LOOP as LOOP
from perfwrap.measures.run.whole_run import Place as Place
from perfwrap.measures.run.whole_run import WholeRun as WholeRun
from perfwrap.measures.steps.step_blocks import StepBlocks as StepBlocks
from perfwrap.rules.model import Finding, Outcome

Certainty = Literal["measured", "inferred", "none"]


@dataclass(frozen=True)
class Verdict:
    """What limits the run, in one sentence; ``share`` is None when there is no verdict."""

    id: str
    share: float | None
    sentence: str
    confidence: Certainty


@dataclass(frozen=True)
class StepFigures:
    """The steps of the main training thread; samples per second are the sum of all that trained at the same time."""

    count: int = 0
    steady: int = 0
    median_ns: float | None = None
    p99_ns: float | None = None
    samples_per_s: float | None = None
    anchor: str = ""
    """What ends a step, in words."""
    trainer: str = ""
    """The name of that trainer."""


@dataclass(frozen=True)
class RankFigures:
    """The figures of one training thread, to compare it with the others."""

    name: str
    rank: int | None
    host: str
    pid: int | None
    steps: int
    steady: int
    median_ns: float | None
    start: int = 1
    """Which start of its rank this is, from 1."""
    group: int = 1
    """Training threads with the same number worked at the same time; higher numbers came later."""
    account: dict[str, int] = field(default_factory=dict)
    """Nanoseconds of each part of its training loop; empty without a steady loop."""
    waiting: dict[str, int] = field(default_factory=dict)
    """Nanoseconds of these parts that were waits for other ranks, where known."""
    cores: str = ""
    """The cores that its training thread may use, e.g. ``0-3``; empty if unknown."""
    skew: RankSkew | None = None
    """Its delays at the synchronization points of the ranks; None if unknown or if it belongs to another start."""


@dataclass(frozen=True)
class Diagnosis:
    """What limits a run.

    ``findings`` are sorted by cost, those on the whole run last, ``outcomes`` in the order of RULES. ``account`` has
    the nanoseconds of each part of the training loop, summed over all training threads; it has only UNKNOWN if an
    imported file does not contain the parts, and is empty without a steady loop.
    ``gpus`` are those that a monitor or the recorder sampled, with means over that loop. ``run`` is the manifest.
    """

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    would_not_help: tuple[Unhelpful, ...] = ()
    """Popular advice that would bring little here, the most popular first."""
    outcomes: tuple[Outcome, ...] = ()
    account: dict[str, int] = field(default_factory=dict)
    steps: StepFigures = StepFigures()
    ranks: tuple[RankFigures, ...] = ()
    skew: Skew | None = None
    """The delays between ranks that work together; None if unknown."""
    processes: dict[str, int] = field(default_factory=dict)
    """How many processes the run had, by role; see measures.process_roles."""
    warnings: tuple[str, ...] = ()
    perfwrap_cost: OwnCost | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_activity: tuple[GpuFigures, ...] = ()
    """The GPUs whose kernels were recorded."""
    phase_idle: PhaseIdle | None = None
    """Why the GPU of the main training thread was idle between the phases of its steps; None if they were not timed."""
    energy: Energy | None = None
    """The energy of the run and of a step; None if it was not measured."""
    cost: Cost | None = None
    """What the run costs, if the user gave a price."""
    gpu_memory: tuple[GpuMemory, ...] = ()
    """What occupied each GPU's memory when an imported snapshot was taken."""
    kernels: tuple[dict[str, Any], ...] = ()
    """The kernels that ncu measured, longest first; keys as the columns of ``measures.roofline``."""
    run: dict[str, Any] = field(default_factory=dict)
    windows: tuple[str, ...] = ()
    """What torch.profiler captured of each training thread, or why it did not."""
    step_blocks: StepBlocks = StepBlocks()
    """How the step time of the main training thread changed during the run."""
    conditions: dict[str, str] = field(default_factory=dict)
    """The conditions of the run; see measures.conditions."""
    whole_run: WholeRun | None = None
    """How the time of the whole run divides; None if unknown."""
    line_account: LineAccount | None = None
    """The step by lines of the program, if a dataflow window was recorded."""
    processors: Processors | None = None
    """The CPU load on the machine of the main training thread."""
    other_programs: OtherPrograms | None = None
    """What other programs used of its cores; None if they took none away, or if unknown."""
    claimed: Mapping[int, pl.DataFrame] = field(default_factory=dict, compare=False, repr=False)
    """The intervals that findings claim, by the track of the training thread, with the columns of CLAIMED."""
    step_tables: Mapping[int, pl.DataFrame] = field(default_factory=dict, compare=False, repr=False)
    """The steps of each training thread by its track, with the columns of ``measures.steps``."""
    fleet: Fleet | None = None
    """All ranks of a run of which only some were analyzed in full; ``ranks`` has only those."""
    overview: Overview | None = field(default=None, compare=False, repr=False)
    """The data for an overview chart of the whole run; only if requested."""

    @property
    def all_ranks(self) -> tuple[RankFigures, ...]:
        """Every training thread of the run."""
        if self.fleet is None:
            return self.ranks
        known = (rank.summary for rank in self.fleet.ranks)
        return tuple(
            RankFigures(one.name, one.rank, one.host, one.pid, one.steps, one.steady, one.median_ns)
            for one in known
        )
