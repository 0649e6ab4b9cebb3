"""The general ways to make a model's own work faster that this run does not use yet: advice leaves out the others."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.loop_figures import HOSTS, mean_step_ns, trains_on_gpu
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts, torch_version
from perfwrap.measures.host.processors import find_processors
from perfwrap.measures.kernels.gpu_activity import gpu_of
from perfwrap.measures.kernels.gpu_generation import AMPERE, VOLTA, find_major_capability
from perfwrap.measures.loop.optimizers import OptimizerUse, find_optimizers
from perfwrap.measures.loop.recomputations import find_memory_left
from perfwrap.measures.models import find_devices
from perfwrap.measures.precision import (
    BFLOAT16,
    HalfPrecision,
    find_half_precision,
    find_processor_features,
    has_instructions,
)
from perfwrap.measures.run.measured_changes import Tried, find_tried
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Option
from perfwrap.timeline.lookup import host_facts

BFLOAT16_AUTOCAST, FLOAT16_AUTOCAST = "bfloat16 autocast", "float16 autocast with a GradScaler"
FUSED = "Fused"
"""A part of the names of fused optimizers that are not torch's: FusedAdam of apex and DeepSpeed, FusedLAMB."""
GRAPHS = "record CUDA graph"
"""The name of the compilations that record a CUDA graph."""
COMPILES = (((0, 0), (2, 0)), ((3, 12), (2, 4)), ((3, 13), (2, 6)))
"""The first versions of Python, and of torch that compiles functions of them (torch's release notes)."""
MIN_LEFT = 0.1
"""GPU memory that is left, over that in use, below which a larger batch does not fit."""
MIN_IDLE = 0.75
"""Idle cores for each further compute thread from which more threads are worth a try."""
MIN_THREADED_NS = 20e6
"""Length of a step from which its operations may be large enough for several threads."""
INDUCTOR = r"^triton_(poi|red|per|tem|for|mm)_"
"""Names of the kernels that torch.compile generates."""


class Levers(Struct, frozen=True):
    """What this run uses already, and what remains to be tried."""

    half: HalfPrecision | None = None
    """The 16-bit type that the models compute in, None if they have more bits or if it is unknown."""
    precision: str = ""
    """A lower precision that the device is fast in, in words; empty if the models have it, or if there is none."""
    takes_bfloat16: bool = False
    """Whether the device computes in bfloat16, as far as known."""
    is_compiled: bool = False
    """Whether torch.compile compiled anything."""
    has_graphs: bool = False
    """Whether it recorded a CUDA graph."""
    is_fused: bool = False
    """Whether all optimizers of the loop are fused."""
    has_tf32: bool = False
    """Whether matrix products in float32 may use TF32."""
    tried: Mapping[str, Tried] = {}
    """What `perfwrap try` measured of changes of this program, by change."""
    can_compile: bool = True
    """Whether this torch has torch.compile for this Python, as far as known."""
    can_grow: bool = True
    """Whether a larger batch is possible, as far as known: there are more samples, and GPU memory is left."""
    has_checkpoints: bool = False
    """Whether activation checkpointing computes forward passes again."""
    threads: tuple[int, int] | None = None
    """The compute threads of a trainer on a CPU and the larger number for which cores are idle; None if none are."""

    @property
    def checkpointing(self) -> str:
        """``activation checkpointing`` and its module, or more of it where it is in use."""
        if self.has_checkpoints:
            return "checkpointing of more layers"
        return "activation checkpointing (torch.utils.checkpoint)"

    @property
    def compiling(self) -> str:
        """``torch.compile``, empty if something is compiled or if there is no such function."""
        return "" if self.is_compiled or not self.can_compile else "torch.compile"

    @property
    def fewer_launches(self) -> str:
        """What launches several kernels at once, empty if CUDA graphs are in use."""
        if self.has_graphs:
            return ""
        return ", ".join(word for word in (self.compiling, "CUDA graphs") if word)

    @property
    def half_experiment(self) -> str | None:
        """The experiment that lowers the precision, None if there is none."""
        return {BFLOAT16_AUTOCAST: "bf16", FLOAT16_AUTOCAST: "fp16"}.get(self.precision)

    @property
    def options(self) -> tuple[Option, ...]:
        """What to try if nothing is wasted: what `perfwrap try` measured first, then by the speed of the device.

        A device is fast in a lower precision if one is named, and that gains more than fusing operations.
        """
        options = []
        if self.threads:
            now, more = self.threads
            change = f"threads={more}"
            edit = (
                f"Compute with {more} threads instead of {now}, since cores are idle: OMP_NUM_THREADS={more} or "
                f"torch.set_num_threads({more})."
            )
            options.append(self._option(edit, change, change))
        if self.precision:
            both = self.precision == BFLOAT16_AUTOCAST and self.compiling
            experiment = "three-run" if both else self.half_experiment
            options.append(self._option(f"Use {self.precision}.", experiment, self.half_experiment))
        if self.compiling:
            options.append(self._option("Use torch.compile.", "compile", "compile"))
        together = f"{self.half_experiment}+compile"
        if self.precision and self.compiling and together in self.tried:
            edit = f"Use {self.precision} and torch.compile together."
            options.append(self._option(edit, together, together))
        if self.can_grow:
            options.append(Option("Use a larger batch.", (1.0, 1.0), experiment="find-batch-size"))
        return (*(option for option in options if option), Option("Use a faster device.", (1.0, 1.0)))

    def _option(self, edit: str, experiment: str | None, change: str | None) -> Option | None:
        """Return the option of a change, with what `perfwrap try` measured of it; None if that surely was no gain."""
        measured = self.tried.get(change or "")
        if measured is not None and measured.is_useless:
            return None
        if measured is not None and measured.is_gain:
            return Option(edit, (measured.low, measured.high), "measured by `perfwrap try`", change)
        return Option(edit, (1.0, 1.0), experiment=experiment)


def find_levers(evidence: Evidence, trainer: Trainer) -> Levers:
    """Return what a trainer uses already, and what remains."""
    half = evidence.get(find_half_precision, trainer)
    uses = evidence.get(find_optimizers, trainer)
    facts = evidence.get(find_facts, trainer.process)
    compiled = _compilations(evidence, trainer)
    autocast = _fast_precision(evidence, trainer)
    return Levers(
        half=half,
        precision="" if half else autocast,
        takes_bfloat16=autocast == BFLOAT16_AUTOCAST,
        is_compiled=compiled.height > 0 or _has_compiled_kernels(evidence, trainer),
        has_graphs=compiled.filter(pl.col("name") == GRAPHS).height > 0,
        is_fused=bool(uses) and all(_is_fused(use) for use in uses),
        has_tf32=facts.get("tf32_matmul") == "True"
        or facts.get("float32_matmul_precision") in ("high", "medium"),
        tried=evidence.get(find_tried),
        can_compile=_can_compile(facts),
        can_grow=_can_grow(evidence, trainer),
        has_checkpoints=_has_checkpoints(evidence, trainer),
        threads=None if trains_on_gpu(evidence, trainer) else _idle_threads(evidence, trainer),
    )


def _idle_threads(evidence: Evidence, trainer: Trainer) -> tuple[int, int] | None:
    """Return a trainer's compute threads and how many its share of idle cores would allow, if these are twice as many.

    Threads of one core share its arithmetic, so they count once.
    """
    cores = evidence.get(find_processors, trainer)
    now, facts = cores.threads_per_trainer, host_facts(evidence.timeline, trainer.host)
    if cores.usable is None or cores.busy is None or not now:
        return None
    if mean_step_ns(evidence, trainer) < MIN_THREADED_NS:
        return None
    per_core = facts.get("cpu_threads_per_core", "")
    free = min(
        cores.usable / max(1, int(per_core) if per_core.isdecimal() else 1), cores.usable - cores.workers
    )
    more = int(free / cores.trainers)
    needed = (more - now) * cores.trainers
    return (now, more) if more >= 2 * now and cores.usable - cores.busy >= MIN_IDLE * needed else None


def _can_compile(facts: dict[str, str]) -> bool:
    """Return whether torch.compile exists for these versions; True if they are unknown."""
    torch, python = torch_version(facts), facts.get("python", "").split(".")[:2]
    if torch == (0, 0):
        return True
    newest = tuple(int(number) for number in python) if python and all(map(str.isdigit, python)) else (0, 0)
    return all(torch >= first for since, first in COMPILES if newest >= since)


def _can_grow(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether a batch may hold more samples; True if that is unknown."""
    loaders = [loader for loader in evidence.get(find_loaders, trainer) if loader.training]
    sizes = [(loader.batch_size, loader.dataset_length) for loader in loaders]
    if sizes and all(size and length and size >= length for size, length in sizes):
        return False
    memory = evidence.get(find_memory_left, trainer) if trains_on_gpu(evidence, trainer) else None
    return memory is None or memory.left >= MIN_LEFT * memory.used


def _is_fused(use: OptimizerUse) -> bool:
    """Return whether an optimizer is fused: by an option of torch's, or by its name, as those of other packages."""
    return bool(use.fused) or FUSED in use.kind.rpartition(".")[2]


def _has_checkpoints(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether the trainer's process recomputed activations, in any of its threads."""
    tracks = evidence.timeline.tracks
    threads = tracks.filter(pl.col("parent") == trainer.process)["id"].to_list()
    recorded = (evidence.timeline.spans, evidence.timeline.sums)
    again = (pl.col("operation") == "recompute") & pl.col("track").is_in(threads)
    return any(not table.filter(again).is_empty() for table in recorded)


def _fast_precision(evidence: Evidence, trainer: Trainer) -> str:
    """Return the 16-bit precision that the trainer's device is fast in; empty if none is known.

    Of devices other than the CPU and CUDA none is known.
    """
    kinds = {device.partition(":")[0] for device in evidence.get(find_devices, trainer)}
    if kinds - HOSTS - {"cuda"}:
        return ""
    if evidence.get(gpu_of, trainer) is not None or trains_on_gpu(evidence, trainer):
        major = evidence.get(find_major_capability, trainer)
        if major is None or major >= AMPERE:
            return BFLOAT16_AUTOCAST
        return FLOAT16_AUTOCAST if major >= VOLTA else ""
    features = evidence.get(find_processor_features, trainer)
    is_fast = features is not None and has_instructions(features, BFLOAT16)
    return BFLOAT16_AUTOCAST if is_fast and evidence.get(find_devices, trainer) == {"cpu"} else ""


def _compilations(evidence: Evidence, trainer: Trainer) -> pl.DataFrame:
    """Return all compilations of the trainer's process, also those before the loop and in other threads."""
    tracks = evidence.timeline.tracks
    threads = tracks.filter(pl.col("parent") == trainer.process)["id"].to_list()
    return evidence.timeline.spans.filter(
        pl.col("operation") == "compile", pl.col("track").is_in([trainer.process, *threads])
    )


def _has_compiled_kernels(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether the trainer's GPU ran kernels that torch.compile generated."""
    gpu = evidence.get(gpu_of, trainer)
    return gpu is not None and bool(gpu.events.table["name"].unique().str.contains(INDUCTOR).any())
