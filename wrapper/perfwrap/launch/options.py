"""The options of a recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfwrap.monitor_options import MonitorOptions

DEFAULT_MAX_OVERHEAD = 0.005
DEFAULT_WINDOW = "auto"
WINDOW_DETAILS = ("shapes", "stack", "memory", "flops")


@dataclass(frozen=True)
class Trial:
    """Changes in the program, and when its training process ends itself; by default none and never."""

    changes: tuple[str, ...] = ()
    """Words such as ``workers=8`` and ``bf16``, of ``perfwrap.experiments.changes``."""
    steps: int = 0
    """The number of steady steps that are enough; 0 for all steps of the program."""
    warm_up: str = "auto"
    """The number of steps before them; ``auto``: until the step time is stable."""
    precision: float = 0.02
    """Fewer are enough if the relative error of the median is below this; 0 for never."""
    writes: bool = False
    """Whether a process that ends itself may write checkpoints."""
    values_seed: int | None = None
    """The seed of a trial that writes losses and parameters instead of being timed; None for a timed one."""
    perturbation: int = 0
    """The seed of small random changes of the parameters at the start of such a trial; 0 for none."""
    seconds: float = 0.0
    """The steady steps of a trial take at least this long, unless there are very many."""


@dataclass(frozen=True)
class EditedFile:
    """A source file of the program that runs with other content, and stays as it is on the disk."""

    path: Path
    before: bytes
    """Its content when it was edited; if it is different when it runs, it runs as it is."""
    after: bytes


@dataclass(frozen=True)
class Options(MonitorOptions):
    """The options of ``perfwrap run``; the manifest keeps them."""

    out: Path | None = None
    name: str = ""
    """The user's name of the run, or empty."""
    tags: tuple[str, ...] = ()
    run_id: str = ""
    """The user's name of the run that several launchers join; empty to use the name of their job."""
    nvtx: bool = False
    monitors: bool = True
    report: bool = True
    live: bool = False
    """Whether `perfwrap top` shows the run on the terminal, if the command's output goes elsewhere."""
    sample_hz: float = 0.0
    """How often per second each process samples its own stacks; 0 for never."""
    max_overhead: float = DEFAULT_MAX_OVERHEAD
    """The maximum cost of detail as a share of the step time; beyond it, events are only counted."""
    window: str = DEFAULT_WINDOW
    """The steps that torch.profiler captures: ``auto``, ``steady``, ``worst``, ``kernels``, ``5@100``, or empty for
    none."""
    window_detail: tuple[str, ...] = ()
    """Additional data that it records, from WINDOW_DETAILS."""
    window_ranks: str = "0"
    """Which of several ranks it captures: ``0`` or ``all``."""
    trial: Trial = Trial()
    overlay: tuple[EditedFile, ...] = ()
    """The files that every Python process of the command runs with edited source."""
    inspect: bool = False
    """Whether the recorder writes what each operation of a few steps reads and writes."""
    nsys: tuple[str, ...] | None = None
    """Additional options for `nsys profile`; None for no nsys."""
    ncu: tuple[str, ...] | None = None
    """Additional options for `ncu`; None for no ncu."""
    ncu_kernels: tuple[str, ...] = ()
    """The functions that ncu measures."""


def option_name(word: str) -> str:
    """Return the name of an option of a tool without its value: --trace of --trace=cuda, -t of -tcuda."""
    return word.partition("=")[0] if word.startswith("--") else word[:2]
