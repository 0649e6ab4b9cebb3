"""What the user asked of a recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_RATE_HZ = 10.0
DEFAULT_PY_SPY_HZ = 20.0
DEFAULT_BUDGET_MIB = 256
DEFAULT_MAX_OVERHEAD = 0.005
MEBIBYTE = 1 << 20
DEFAULT_WINDOW = "auto"
DEFAULT_STALL_SECONDS = 60.0
DEFAULT_GRACE_SECONDS = 30.0
"""As long as torchrun waits for its workers before it kills them."""
LOOPBACK = "127.0.0.1"
WINDOW_DETAILS = ("shapes", "stack", "memory", "flops")


@dataclass(frozen=True)
class Trial:
    """What is changed in the program, and when its training process ends itself; by default nothing and never."""

    changes: tuple[str, ...] = ()
    """Words such as ``workers=8`` and ``bf16``, of ``perfwrap.experiments.changes``."""
    steps: int = 0
    """So many steady steps are enough; 0 for all that the program makes."""
    warm_up: str = "auto"
    """How many steps come before them; ``auto``: until the steps have settled."""
    precision: float = 0.02
    """Fewer are enough when the median is known to this share of itself; 0 for never."""
    writes: bool = False
    """Whether a process that ends itself may write checkpoints."""


@dataclass(frozen=True)
class Options:
    """The options of ``perfwrap run``; the manifest keeps them."""

    out: Path | None = None
    name: str = ""
    """What the user calls the run; nothing for no name."""
    tags: tuple[str, ...] = ()
    run_id: str = ""
    """What the user calls the run that several launchers join; nothing where their job's own name will do."""
    nvtx: bool = False
    monitors: bool = True
    rate_hz: float = DEFAULT_RATE_HZ
    report: bool = True
    sample_hz: float = 0.0
    """How often a second each process looks where its threads are; 0 for never."""
    py_spy: str = ""
    """The py-spy that samples stacks from outside; none where it is empty."""
    py_spy_hz: float = DEFAULT_PY_SPY_HZ
    py_spy_native: bool = False
    """Whether it samples compiled code, too, for which it stops the program."""
    glance: bool = False
    """Whether it only looks for half a minute at the process that trains."""
    max_overhead: float = DEFAULT_MAX_OVERHEAD
    """The share of the steps' time that detail may cost; what goes beyond is only counted."""
    window: str = DEFAULT_WINDOW
    """Which steps torch's profiler watches: ``auto``, ``steady``, ``worst``, ``5@100``, or nothing for none."""
    window_detail: tuple[str, ...] = ()
    """What it notes beside: of WINDOW_DETAILS."""
    window_ranks: str = "0"
    """Which of several ranks have their window: ``0`` or ``all``."""
    budget_bytes: int = DEFAULT_BUDGET_MIB * MEBIBYTE
    trial: Trial = Trial()
    nsys: tuple[str, ...] | None = None
    """What the user wants `nsys profile` to be given in addition; None for no nsys."""
    ncu: tuple[str, ...] | None = None
    """The same for `ncu`."""
    stall_after_s: float = DEFAULT_STALL_SECONDS
    """The shortest silence that is called a stall; 0 for never."""
    kill_on_stall: bool = False
    """Whether a stalled command is ended."""
    kill_grace_s: float = DEFAULT_GRACE_SECONDS
    """How long after SIGTERM it is killed."""
    metrics_port: int = 0
    """Where metrics are served; 0 for nowhere."""
    metrics_address: str = LOOPBACK
    metrics_token_file: str = ""
    ncu_kernels: tuple[str, ...] = ()
    """The functions that ncu is to measure."""


def option_name(word: str) -> str:
    """Return the name of an option of a tool's without its value: --trace of --trace=cuda, -t of -tcuda."""
    return word.partition("=")[0] if word.startswith("--") else word[:2]
