"""What rules read: every shared figure of one timeline, worked out once and kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import polars as pl

from perfwrap.measures.account import Account, find_account
from perfwrap.measures.attached import Attached, find_attached
from perfwrap.measures.batch_flow import BatchFlow, find_batch_flow
from perfwrap.measures.call_sites import CallSite, find_call_sites
from perfwrap.measures.checkpoints import CheckpointLine, find_checkpoints
from perfwrap.measures.compilations import Compilations, find_compilations
from perfwrap.measures.exchange_gap import exchange_gap_ns
from perfwrap.measures.first_epoch import FirstEpoch, find_first_epoch
from perfwrap.measures.garbage import Garbage, find_garbage
from perfwrap.measures.gpu import Gpu, find_gpus
from perfwrap.measures.gpu_activity import GpuActivity, find_gpu_activity
from perfwrap.measures.gpu_memory import GpuMemory, find_gpu_memory
from perfwrap.measures.gpu_work import GpuWork, find_gpu_work
from perfwrap.measures.kept_graphs import KeptGraphs, find_kept_graphs
from perfwrap.measures.lines import Line
from perfwrap.measures.loaders import LoaderUse, find_loaders
from perfwrap.measures.logged_gaps import ALONE_SHARE, LoggedGap, find_logged_gaps
from perfwrap.measures.loop import trains_on_gpu
from perfwrap.measures.matrix_work import MatrixWork, find_matrix_work
from perfwrap.measures.meetings import Meetings, find_meetings
from perfwrap.measures.memory import Allocator, find_allocator
from perfwrap.measures.missing import NEEDS
from perfwrap.measures.optimizers import OptimizerUse, find_optimizers
from perfwrap.measures.own_cost import OwnCost, find_own_cost
from perfwrap.measures.own_gpus import gpu_samples, own_gpus
from perfwrap.measures.phase_balance import PhaseBalance, find_phase_balance
from perfwrap.measures.processors import Processors, Trained, find_processors
from perfwrap.measures.python_gaps import PythonGap, find_python_gaps
from perfwrap.measures.rank_differences import RankDifference, find_rank_differences
from perfwrap.measures.rank_skew import Skew, find_skew
from perfwrap.measures.restarts import Restart, find_restarts
from perfwrap.measures.roofline import roofline
from perfwrap.measures.round_trips import RoundTrip, find_round_trips
from perfwrap.measures.scalers import ScalerLine, find_scalers
from perfwrap.measures.settings_in_force import share_switched_on
from perfwrap.measures.slow_steps import SlowSteps, find_slow_steps
from perfwrap.measures.slowing import Slowing, find_slowing, forward_growth
from perfwrap.measures.source_calls import file_calls, tensor_calls
from perfwrap.measures.spread_models import SpreadModel, find_spread_models
from perfwrap.measures.stacks import Sampled, sampled_computing, sampled_gap, sampled_making
from perfwrap.measures.start_up import StartUp, find_start_up
from perfwrap.measures.steps import Steps, find_steps
from perfwrap.measures.stragglers import Straggler, find_straggler
from perfwrap.measures.syncs import SyncLine, find_syncs
from perfwrap.measures.trainers import Trainer, find_trainers, training_processes
from perfwrap.measures.transfers import TransferLine, find_transfers
from perfwrap.measures.turns import find_turns, ranks_together
from perfwrap.measures.validation import Validation, find_validation
from perfwrap.measures.worker_states import (
    MakingStates,
    WorkerState,
    denied_share,
    find_worker_states,
    making_states,
    training_thread_states,
)
from perfwrap.timeline.lookup import facts_of, host_facts, mean_over, samples_of
from perfwrap.timeline.model import Timeline

Figure = TypeVar("Figure")


class Evidence:
    """Cached access to the measures of one timeline.

    Everything is worked out at the first question and is the same object afterwards. All figures of a
    trainer are of its steady loop (the account), unless the measure says otherwise; times are nanoseconds,
    shares are of the account's whole length. Where nobody watched, a figure is None or an empty tuple,
    never 0.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._kept: dict[tuple[str, object], object] = {}

    @cached_property
    def trainers(self) -> tuple[Trainer, ...]:
        """The training threads, by rank; empty when nothing trained."""
        return find_trainers(self.timeline)

    @cached_property
    def training(self) -> frozenset[int]:
        """The processes of all training threads, also of those beyond the ones that are looked at."""
        return training_processes(self.timeline)

    @cached_property
    def main(self) -> Trainer | None:
        """The trainer that stands for the run: the lowest rank, or else the one with the most steps.

        Of a rank that was started anew it is the start that made the most steps.
        """
        able = self.trainers
        if able and able[0].rank is not None:
            able = tuple(trainer for trainer in able if trainer.rank == able[0].rank)
        if len(able) == 1:
            return able[0]
        return max(able, key=lambda trainer: self.steps(trainer).count, default=None)

    @cached_property
    def together(self) -> tuple[Trainer, ...]:
        """The ranks at work at the same time as the main one, itself included; empty outside of a job."""
        return ranks_together(self._loops, self.main)

    @cached_property
    def turns(self) -> tuple[tuple[Trainer, ...], ...]:
        """The trainers in the order in which they were at work, those of one turn at the same time."""
        return find_turns(self._loops, self.together)

    @cached_property
    def at_once(self) -> tuple[Trainer, ...]:
        """The trainers at work at the same time as the main one, itself included; of a job its ranks."""
        return () if self.main is None else self._beside(self.main)

    @cached_property
    def meetings(self) -> Meetings:
        """Where these ranks wait for each other: in the program's own collectives and in DDP's backward passes."""
        return find_meetings(self)

    @cached_property
    def skew(self) -> Skew | None:
        """Who comes last to these meetings, and what the others wait for it; None where none is known."""
        return find_skew(self)

    @cached_property
    def restarts(self) -> tuple[Restart, ...]:
        """Each time that ranks were started anew; empty in most runs."""
        return find_restarts(self)

    @cached_property
    def rank_differences(self) -> tuple[RankDifference, ...]:
        """What one of these ranks is given that the others are not: fewer or shared cores, a GPU with lower clocks."""
        return find_rank_differences(self)

    def steps(self, trainer: Trainer) -> Steps:
        """The trainer's steps: count, steady, median_ns, p99_ns, samples_per_s, table, anchor, few."""
        return self._once("steps", trainer, lambda: find_steps(self.timeline, trainer))

    def account(self, trainer: Trainer) -> Account:
        """The trainer's account: segments, ns and shares per part, total_ns."""
        return self._once(
            "account",
            trainer,
            lambda: find_account(self.timeline, trainer, self.steps(trainer), self.waits(trainer)),
        )

    def waits(self, trainer: Trainer) -> pl.DataFrame:
        """When a rank waited for another one, and for which, as far as that is known: start, end, last."""
        rank = trainer.rank if trainer in self.together else None
        return self.meetings.waits_of(-1 if rank is None else rank)

    def loaders(self, trainer: Trainer) -> tuple[LoaderUse, ...]:
        """Each DataLoader of the trainer: wait, settings, creation line, fetch time; most wait first."""
        return self._once("loaders", trainer, lambda: find_loaders(*self._of(trainer)))

    def worker_states(self, trainer: Trainer, loader: LoaderUse) -> tuple[WorkerState, ...]:
        """What each worker of a loader was at: making batches, running, waiting for a disk."""
        return self._once(
            "worker_states",
            (trainer, loader.name),
            lambda: find_worker_states(self.timeline, trainer, self.account(trainer), loader.name),
        )

    def making_states(self, trainer: Trainer, loader: LoaderUse) -> MakingStates | None:
        """What making a loader's batches consists of: running, waiting for a disk; None where nobody looked."""
        if loader.workers:
            return making_states(self.worker_states(trainer, loader))
        return training_thread_states(self.timeline, trainer, self.account(trainer), loader.share)

    def denied_share(self, trainer: Trainer) -> float:
        """The share of the steady loop in which the training's thread wanted a core that others had; 0 if unknown."""
        return self._once(
            "denied_share", trainer, lambda: denied_share(self.timeline, trainer, self.account(trainer))
        )

    def batch_flow(self, trainer: Trainer, loader: LoaderUse) -> BatchFlow | None:
        """The sequence of a loader's batches, played with other queues; None where that is not known."""
        return self._once(
            "batch_flow", (trainer, loader.name), lambda: find_batch_flow(*self._of(trainer), loader)
        )

    def syncs(self, trainer: Trainer) -> tuple[SyncLine, ...]:
        """Each line where values came to the host: count and blocked time per step; most time first."""
        return self._once("syncs", trainer, lambda: find_syncs(*self._of(trainer)))

    def transfers(self, trainer: Trainer) -> tuple[TransferLine, ...]:
        """Each line that copied tensors between devices: bytes, time, direction; most time first."""
        return self._once("transfers", trainer, lambda: find_transfers(*self._of(trainer)))

    def round_trips(self, trainer: Trainer) -> tuple[RoundTrip, ...]:
        """Pairs of lines that copy as much from the GPU as goes back to it within a step; most time first."""
        return self._once(
            "round_trips",
            trainer,
            lambda: find_round_trips(self.timeline, trainer, self.steps(trainer), self.account(trainer)),
        )

    def optimizers(self, trainer: Trainer) -> tuple[OptimizerUse, ...]:
        """Each optimizer of the trainer: time of its steps, number of tensors, options; most time first."""
        facts = self.facts(trainer.process)
        return self._once(
            "optimizers", trainer, lambda: find_optimizers(self.account(trainer), self.steps(trainer), facts)
        )

    def call_sites(self, trainer: Trainer, topic: str) -> tuple[CallSite, ...]:
        """Each line that clears (``zero_grad``) or clips (``clip``) gradients, with its options."""
        return find_call_sites(self.facts(trainer.process), topic)

    def compilations(self, trainer: Trainer) -> Compilations:
        """What torch.compile did inside the steady loop, and why."""
        return self._once(
            "compilations",
            trainer,
            lambda: find_compilations(self.timeline, trainer, self.account(trainer)),
        )

    def switched_on(self, trainer: Trainer, fact: str) -> float:
        """During which share of the steady loop a setting (``anomaly_detection``) was on."""
        return share_switched_on(self.timeline, trainer, self.account(trainer), fact)

    def garbage(self, trainer: Trainer) -> Garbage:
        """Pauses of Python's garbage collector in the steady loop."""
        return self._once(
            "garbage", trainer, lambda: find_garbage(self.timeline, trainer, self.account(trainer))
        )

    def checkpoints(self, trainer: Trainer) -> tuple[CheckpointLine, ...]:
        """Each line that saves or loads inside the steady loop; most time first."""
        return self._once(
            "checkpoints", trainer, lambda: find_checkpoints(self.timeline, trainer, self.account(trainer))
        )

    def validation(self, trainer: Trainer) -> Validation:
        """The validation phases: how many, how long, and their share of the account."""
        return self._once(
            "validation", trainer, lambda: find_validation(self.steps(trainer), self.account(trainer))
        )

    def python_gaps(self, trainer: Trainer) -> tuple[PythonGap, ...]:
        """Where the ``python`` part of the account was spent, from line to line; most time first."""
        return self._once(
            "python_gaps", trainer, lambda: find_python_gaps(self.steps(trainer), self.account(trainer))
        )

    def gaps_with_files(
        self, trainer: Trainer, where: Line | None
    ) -> tuple[tuple[PythonGap, ...], tuple[str, ...]]:
        """The stretches of Python right behind a line that are spent on files, as its source tells, and the calls.

        Both empty where nothing behind it in the same round moves, removes or secures files.
        """
        gaps = tuple(gap for gap in self.python_gaps(trainer) if where is not None and gap.after == where)
        calls = file_calls(self.timeline.run, where.file, where.line) if where is not None and gaps else ()
        return (gaps, calls) if calls else ((), ())

    def tensor_calls(self, trainer: Trainer, gap: PythonGap) -> tuple[str, ...]:
        """What the lines of a stretch of the user's Python call that computes on the CPU's tensors, as far as known."""
        if gap.after is None or gap.until_line is None or trains_on_gpu(self, trainer):
            return ()
        return tensor_calls(self.timeline.run, gap.after.file, gap.after.line, gap.until_line)

    def slow_steps(self, trainer: Trainer) -> SlowSteps | None:
        """p50 and p99 of the steady steps, and what each slow one had more; None without steady steps."""
        return self._once("slow_steps", trainer, lambda: find_slow_steps(*self._of(trainer)))

    def slowing(self, trainer: Trainer) -> Slowing | None:
        """Steps that take longer and longer for a stretch of the user's Python; None where there are none."""
        gaps = self.python_gaps(trainer)
        return self._once(
            "slowing", trainer, lambda: find_slowing(self.steps(trainer), self.account(trainer), gaps)
        )

    def forward_growth(self, trainer: Trainer) -> float:
        """How many times as long as at the beginning of the loop the forward pass takes at its end; 1 if unknown."""
        return forward_growth(self.steps(trainer), self.account(trainer))

    def start_up(self, trainer: Trainer) -> StartUp | None:
        """The time to the end of the first step, broken down; None without steps."""
        return self._once(
            "start_up", trainer, lambda: find_start_up(self.timeline, trainer, self.steps(trainer))
        )

    def phase_balance(self, trainer: Trainer) -> PhaseBalance | None:
        """How long forward and backward passes take; None where that was not measured."""
        return self._once(
            "phase_balance",
            trainer,
            lambda: find_phase_balance(
                self.timeline, trainer, self.account(trainer), trains_on_gpu(self, trainer)
            ),
        )

    def first_epoch(self, trainer: Trainer) -> FirstEpoch | None:
        """The first epoch's steps beside the later ones'; None without two epochs to compare."""
        return self._once("first_epoch", trainer, lambda: find_first_epoch(self.steps(trainer)))

    def gpu_work(self, trainer: Trainer) -> GpuWork | None:
        """How busy the GPU was per step and how far the host ran ahead; None where that was not timed."""
        return self._once(
            "gpu_work", trainer, lambda: find_gpu_work(self.timeline, trainer, self.steps(trainer))
        )

    def own_cost(self, trainer: Trainer) -> OwnCost:
        """What perfwrap itself cost this trainer."""
        return self._once(
            "own_cost",
            trainer,
            lambda: find_own_cost(self.timeline, trainer, self.steps(trainer), self.account(trainer)),
        )

    def sampled_making(self, trainer: Trainer, loader: LoaderUse) -> Sampled | None:
        """Where stacks were while a loader's batches were made; None where too little was sampled."""
        loaders = self.loaders(trainer)
        return self._once(
            "sampled_making",
            (trainer, loader.name),
            lambda: sampled_making(self.timeline, trainer, self.account(trainer), loaders, loader),
        )

    def sampled_gap(self, trainer: Trainer, gap: PythonGap, alone: bool) -> Sampled | None:
        """Where stacks were in one stretch between the phases; None where too little was sampled."""
        return sampled_gap(self.timeline, trainer, self.account(trainer), gap, alone)

    def sampled_computing(self, trainer: Trainer, losses: tuple[PythonGap, ...]) -> Sampled | None:
        """Where stacks were inside of the model and of these stretches; None where too little was sampled."""
        whole = sum(gap.share for gap in self.python_gaps(trainer))
        alone = sum(gap.share for gap in losses) >= ALONE_SHARE * whole
        return sampled_computing(self.timeline, trainer, self.account(trainer), losses, alone)

    def logged_gaps(self, trainer: Trainer) -> tuple[LoggedGap, ...]:
        """Stretches of the program's own code in which samples saw lines that write logs; most time first."""
        return self._once(
            "logged_gaps",
            trainer,
            lambda: find_logged_gaps(
                self.timeline, trainer, self.account(trainer), self.python_gaps(trainer)
            ),
        )

    def processors(self, trainer: Trainer) -> Processors:
        """Usable, busy and wanted processors of a trainer's host while it and those beside it trained there."""
        beside = tuple(other for other in self._beside(trainer) if other.host == trainer.host)
        trained = (Trained(other, self.account(other), self.loaders(other)) for other in beside)
        return self._once(
            "processors", beside, lambda: find_processors(self.timeline, trainer.host, tuple(trained))
        )

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """Each GPU that a monitor sampled, with means over the steady loop."""
        accounts = [self.account(trainer) for trainer in self.trainers]
        start = min((account.start for account in accounts), default=0)
        return find_gpus(self.timeline, start, max((account.end for account in accounts), default=0))

    def own_gpus(self, trainer: Trainer) -> tuple[Gpu, ...]:
        """The sampled GPUs that a trainer is at work on, as far as that is known."""
        return self._once("own_gpus", trainer, lambda: own_gpus(self.timeline, trainer, self.gpus))

    def gpu_samples(self, trainer: Trainer, gpu: Gpu, metric: str) -> pl.DataFrame:
        """Time and value of one series of a GPU during the trainer's steady loop; empty when nobody sampled it."""
        account = self.account(trainer)
        return gpu_samples(self.timeline, gpu, metric, account.start, account.end)

    @cached_property
    def roofline(self) -> pl.DataFrame:
        """Each kernel that ncu measured, the longest first; empty where it measured none."""
        return roofline(self.timeline)

    def exchange_gap_ns(self, gpu: GpuActivity, trainer: Trainer) -> int | None:
        """How long collectives ran alone between backward passes and optimizer steps; None where not known."""
        return self._once(
            "exchange_gap", (gpu.host, gpu.device, trainer), lambda: exchange_gap_ns(gpu, trainer)
        )

    def matrix_work(self, gpu: GpuActivity) -> MatrixWork | None:
        """The matrix operations of a GPU with their FLOPs; None where no sizes were recorded."""
        return self._once("matrix_work", (gpu.host, gpu.device), lambda: find_matrix_work(gpu))

    @cached_property
    def attached(self) -> Attached | None:
        """What is known about a job that was only watched from outside; None for any other run."""
        return find_attached(self.timeline)

    @cached_property
    def gpu_activity(self) -> tuple[GpuActivity, ...]:
        """Each GPU whose kernels, copies and memory sets were recorded: busy, idle and why, classes, launches."""
        return find_gpu_activity(self.timeline)

    def gpu_of(self, trainer: Trainer) -> GpuActivity | None:
        """The recorded activity of the GPU that did most for the trainer; None where no kernels were recorded."""
        own = [gpu for gpu in self.gpu_activity if trainer.process in gpu.processes]
        return max(own, key=lambda gpu: gpu.kernels_busy_ns, default=None)

    @cached_property
    def gpu_memory(self) -> tuple[GpuMemory, ...]:
        """What held the memory of each device of each memory snapshot that was imported."""
        return find_gpu_memory(self.timeline)

    def kept_graphs(self, trainer: Trainer) -> tuple[KeptGraphs, ...]:
        """Each line whose autograd graphs were all kept alive, losses first."""
        return self._once("kept_graphs", trainer, lambda: find_kept_graphs(self.timeline, trainer))

    def allocator(self, trainer: Trainer) -> Allocator | None:
        """What torch's allocator told of the trainer's GPU; None where it told nothing."""
        return self._once("allocator", trainer, lambda: find_allocator(self.timeline, trainer, self.trainers))

    def spread_models(self, trainer: Trainer) -> tuple[SpreadModel, ...]:
        """Each model that DDP, FSDP or DataParallel spreads: its settings and what DDP itself measured."""
        return self._once("spread_models", trainer, lambda: find_spread_models(self.timeline, trainer))

    def scalers(self, trainer: Trainer) -> tuple[ScalerLine, ...]:
        """Each line that steps a gradient scaler: steps and skips of the whole run, most skips first."""
        return self._once("scalers", trainer, lambda: find_scalers(self.timeline, trainer))

    @cached_property
    def straggler(self) -> Straggler | None:
        """The rank with most work of its own; None where fewer than two ranks can be compared."""
        return find_straggler(self)

    @cached_property
    def non_finite(self) -> pl.DataFrame:
        """NaNs and infinities that the program read, in order: the rows of ``marks`` named non_finite."""
        return self.timeline.marks.filter(pl.col("name") == "non_finite")

    def facts(self, track: int) -> dict[str, str]:
        """What was learned about a track (a trainer's ``process``, a GPU), the last value of each key."""
        return self._once("facts", track, lambda: facts_of(self.timeline, track))

    def host_facts(self, host: str) -> dict[str, str]:
        """What was learned about a host: cores_usable, cpu_quota_cores, cpu_model and so on."""
        return self._once("host_facts", host, lambda: host_facts(self.timeline, host))

    def series(self, entity: str, metric: str, host: str | None = None) -> pl.DataFrame:
        """Time and value of a series (``host``, ``runnable_tasks``); empty when nobody sampled it."""
        return samples_of(self.timeline, entity, metric, host)

    def mean_in_loop(self, trainer: Trainer, entity: str, metric: str) -> float | None:
        """The mean of a series of the trainer's host over its steady loop; None where nobody sampled it there."""
        account = self.account(trainer)
        samples = self.series(entity, metric, trainer.host)
        inside = samples.filter(pl.col("time").is_between(account.start, account.end))
        return mean_over(inside, account.start, account.end)

    def missing(self, need: str) -> str | None:
        """Say why a need is not met (the reason for NotChecked), or None when it is met.

        Needs: ``trainer``, ``steps``, ``steady_steps``, ``data``, ``syncs``, ``transfers``, ``gc``,
        ``checkpoints``, ``host``, ``gpu``, ``kernels``, ``stacks``, ``phases``, ``start_up``, ``values``,
        ``recorder``, ``allocator``, ``compilations``, ``options``, ``copies``. KeyError for another word.
        """
        return NEEDS[need](self)

    def _of(self, trainer: Trainer) -> tuple[Timeline, Trainer, Steps, Account]:
        """Return what most measures work on."""
        return self.timeline, trainer, self.steps(trainer), self.account(trainer)

    @cached_property
    def _loops(self) -> dict[Trainer, tuple[int, int]]:
        """Return when each trainer's steps begin and end, those of the main one first; without steps, its events."""
        order = sorted(self.trainers, key=lambda trainer: trainer != self.main)
        return {trainer: self._loop(trainer) for trainer in order}

    def _loop(self, trainer: Trainer) -> tuple[int, int]:
        """Return when a trainer's steps begin and end."""
        table = self.steps(trainer).table
        if table.is_empty():
            return trainer.first_ns, trainer.last_ns
        return int(table["start"][0]), int(table["end"][-1])

    def _beside(self, trainer: Trainer) -> tuple[Trainer, ...]:
        """Return the trainers at work at the same time as this one, itself included."""
        if trainer in self.together:
            return self.together
        return next(turn for turn in self.turns if trainer in turn)

    def _once(self, figure: str, key: object, work: Callable[[], Figure]) -> Figure:
        """Return the figure, worked out at the first question."""
        if (figure, key) not in self._kept:
            self._kept[figure, key] = work()
        return self._kept[figure, key]  # type: ignore[return-value]
