"""Measure the cost of perfwrap: per training step, per Python process, and of its monitors.

All variants of a loop run at once, each in its own process. They run some steps alternately, in random order, so that
the machine's drift affects all of them; only ratios within a round are used. A second bare variant shows the noise of a
ratio. The memory layout of a process (addresses, pages) changes its times by some percent, so each loop is repeated
with new processes in many casts, and the interval is that of the casts. Needs perfwrap and PyTorch in this environment.

    python scripts/cost/overhead.py                     loops of 0.3, 1 and 10 ms steps
    python scripts/cost/overhead.py --casts 40          narrower intervals
    python scripts/cost/overhead.py --peers             also py-spy, viztracer, scalene, traceml, torch.profiler
    python scripts/cost/overhead.py --monitors          only the monitors, with 50 processes and 8 stand-in GPUs
    python scripts/cost/overhead.py --soak 10           the same for 10 minutes: their memory must not grow
    python scripts/cost/overhead.py --json out.json     write the figures as JSON; update_docs.py reads them
"""

from __future__ import annotations

import argparse
import ctypes.util
import functools
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import monitor_cost
import numpy as np
import psutil
from perfwrap.launch import injection
from perfwrap.launch.sidecar_process import NAME
from perfwrap.run_folder import create

LOOP = Path(__file__).with_name("overhead_loop.py")
STEP_TIMES_MS = (0.3, 1.0, 10.0)
TARGETS = {0.3: 0.05, 1.0: 0.02, 10.0: 0.005}
"""The target for the cost per step, as the median share, by step time in ms."""
TURNS = {0.3: (64, 32), 1.0: (64, 32), 2.4: (10, 104)}
DEFAULT_TURN = (10, 26)
"""Steps per turn, by step time in ms, and the number of turns in a round: a whole cycle of the recorder, from detail to
paused detail and back. Short turns, in which the variants alternate quickly, follow the machine's drift."""
GLIBC_KEEPS = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}
JEMALLOC_KEEPS = {"MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1"}
"""For all variants: otherwise glibc returns each large tensor to the kernel and requests it again, and the pages that a
process gets make equal processes differ by 17 % of a step (measured)."""
BARE, BARE_AGAIN, WRAPPED = "bare", "bare again", "perfwrap run"


@functools.cache
def memory() -> dict[str, str]:
    """Return the variables that select the allocator of all variants: jemalloc if it is installed.

    In the heap of glibc, tensors may or may not be at the same addresses in each step, depending on its fragmentation:
    equal processes differ by 0.9 % (standard deviation of 24 processes, 10 ms steps). With jemalloc, which changes the
    addresses in all processes, it is 0.3 % (20 processes).
    """
    library = ctypes.util.find_library("jemalloc")
    return {"LD_PRELOAD": library, **JEMALLOC_KEEPS} if library else GLIBC_KEEPS


Command = Callable[[list[str], Path], list[str]]
"""Wraps a command; gets a folder for its files."""

VARIANTS: dict[str, Command] = {
    BARE: lambda command, folder: command,
    BARE_AGAIN: lambda command, folder: command,
    WRAPPED: lambda command, folder: [
        sys.executable,
        "-m",
        "perfwrap",
        "run",
        "--no-report",
        "--out",
        str(folder),
        "--",
        *command,
    ],
}
"""The variants that are compared with the first."""

PROFILED = """
import runpy, sys
from torch.profiler import ProfilerActivity, profile
del sys.argv[0]
with profile(activities=[ProfilerActivity.CPU]):
    runpy.run_path(sys.argv[0], run_name="__main__")
"""

PEERS: dict[str, Command] = {
    "torch.profiler, always on": lambda command, folder: [command[0], "-c", PROFILED, *command[1:]],
    "py-spy, 100 Hz": lambda command, folder: [
        *_tool("py-spy", "record", "--rate", "100", "--output", f"{folder}.svg"),
        "--",
        *command,
    ],
    "viztracer": lambda command, folder: [
        *_tool("viztracer", "--quiet", "--output_file", f"{folder}.json"),
        "--",
        *command[1:],
    ],
    "scalene": lambda command, folder: [
        *_tool("scalene", "run", "--cpu-only", "--outfile", f"{folder}.json", command[1]),
        "---",
        *command[2:],
    ],
    "traceml": lambda command, folder: [
        *_tool("traceml", "run", "--mode", "summary", "--logs-dir", str(folder), "--run-name", "run"),
        command[1],
        "--args",
        *command[2:],
    ],
}
"""Other tools, each as documented for an unmodified script; tools that are not installed are left out.
Scalene runs with ``--cpu-only``, without memory and GPUs: otherwise a short program did not end within a minute."""


def _tool(name: str, *words: str) -> list[str]:
    """Return a tool's command; LookupError if it is not installed next to this Python."""
    found = Path(sys.executable).with_name(name)
    if not found.is_file():
        raise LookupError(name)
    return [str(found), *words]


def with_peers() -> dict[str, Command]:
    """Return the variants, and those of the other tools that are installed."""
    found = dict(VARIANTS)
    for name, wrap in PEERS.items():
        try:
            wrap([sys.executable, "script"], Path("folder"))
        except LookupError as error:
            print(f"without {error}: not installed in this environment", file=sys.stderr)
        else:
            found[name] = wrap
    return found


@dataclass
class Variant:
    """A running variant: runs steps on request and returns their time in ns."""

    name: str
    process: subprocess.Popen[bytes]
    lines: object

    def turn(self, steps: int) -> int | None:
        """Run this many steps and return their time; None if the process has ended, which some tools cause."""
        try:
            self.lines.write(f"steps {steps}\n")  # type: ignore[attr-defined]
            self.lines.flush()  # type: ignore[attr-defined]
            answer = self.lines.readline()  # type: ignore[attr-defined]
        except OSError:
            answer = ""
        return int(answer) if answer else None

    def end(self) -> None:
        """Let the process end."""
        self.lines.close()  # type: ignore[attr-defined]
        self.process.wait(300)


@dataclass
class Ratio:
    """The median over casts of their ratio to bare, less one, with its 95 % bootstrap interval.

    ``casts`` are the ratios of each cast, so that several measurements can be combined.
    """

    median: float
    low: float
    high: float
    casts: list[float] = field(default_factory=list)

    @staticmethod
    def of(values: list[float]) -> Ratio:
        """Return the median and its interval over resampled casts."""
        sample = np.asarray(values) - 1
        draws = np.random.default_rng(0).choice(sample, size=(4000, len(sample)))
        low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
        return Ratio(float(np.median(sample)), float(low), float(high), sample.tolist())

    def __str__(self) -> str:
        """Return e.g. ``+1.3 % (0.9 … 1.8)``."""
        return f"{self.median:+.1%} ({self.low:+.1%} … {self.high:+.1%})"


def start_all(wanted: dict[str, Command], size: str, folder: Path) -> list[Variant]:
    """Start every variant and wait until each has connected."""
    folder.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        started = {}
        for name, wrap in wanted.items():
            command = [sys.executable, str(LOOP), "run", port, name, size]
            out = folder / name.replace(" ", "-")
            started[name] = subprocess.Popen(
                wrap(command, out), stdin=subprocess.DEVNULL, env=os.environ | memory()
            )
        server.settimeout(120)
        lines = {}
        try:
            for _ in started:
                stream = server.accept()[0].makefile("rw")
                lines[stream.readline().strip()] = stream
        except TimeoutError:
            _leave_out(wanted, [name for name in started if name not in lines], "did not start")
    return [Variant(name, started[name], lines[name]) for name in wanted]


def _leave_out(wanted: dict[str, Command], names: list[str], why: str) -> None:
    """Continue without some of the other tools; perfwrap's own variants must not fail."""
    for name in names:
        if name in VARIANTS:
            raise RuntimeError(f"{name} {why}")
        print(f"without {name}: it {why}", file=sys.stderr)
        del wanted[name]


def measure(
    wanted: dict[str, Command], step_ms: float, casts: int, rounds: int, folder: Path
) -> dict[str, object]:
    """Return the ratios of one loop, its real step time, and the monitors' share of a core during it."""
    calibrate = [sys.executable, str(LOOP), "calibrate", str(step_ms)]
    size = subprocess.check_output(calibrate, text=True, env=os.environ | memory()).strip()
    steps, turns = TURNS.get(step_ms, DEFAULT_TURN)
    ratios: dict[str, list[float]] = {name: [] for name in wanted if name != BARE}
    shares, bare = [], []
    for cast in range(casts):
        variants = start_all(wanted, size, folder / str(cast))
        for variant in variants:
            variant.turn(steps * turns)  # the recorder is then in its steady state
        monitors = Monitors(next(found.process.pid for found in variants if found.name == WRAPPED))
        times: dict[str, list[int]] = {name: [] for name in wanted}
        for _ in range(rounds * turns):
            for variant in random.sample(variants, len(variants)):
                took = variant.turn(steps)
                if took is None:
                    _leave_out(wanted, [variant.name], "ended by itself")
                    variants.remove(variant)
                else:
                    times[variant.name].append(took)
        shares.append(monitors.share())
        for variant in variants:
            variant.end()
        bare += times[BARE]
        for name in [name for name in wanted if name != BARE]:
            # Few of the turns have detail, so its cost is only in the sum of all.
            ratios[name].append(sum(times[name]) / sum(times[BARE]))
    share = statistics.median(share for share in shares if share is not None) if any(shares) else None
    return {
        "step_ns": statistics.median(bare) / steps,
        "ratios": {name: Ratio.of(values) for name, values in ratios.items() if name in wanted},
        "monitors_share": share,
        "target": TARGETS.get(step_ms),
    }


class Monitors:
    """CPU time of a launcher's monitors process, from now on."""

    def __init__(self, launcher: int) -> None:
        children = psutil.Process(launcher).children()
        found = [child for child in children if any(NAME in word for word in child.cmdline())]
        self.process = found[0] if found else None
        self.since = self._now()

    def _now(self) -> tuple[float, float]:
        if self.process is None:
            return 0.0, 0.0
        used = self.process.cpu_times()
        return used.user + used.system, time.monotonic()

    def share(self) -> float | None:
        """Return the share of one core, None if there are no monitors."""
        used, now = self._now()
        return (used - self.since[0]) / (now - self.since[1]) if now > self.since[1] else None


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """Return user and system time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def start_up(pairs: int, folder: Path) -> dict[str, object]:
    """Return the cost at the start of a Python that never imports torch, in ms of CPU time, from interleaved pairs."""
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    wrapped = {**bare, **injection.prepare(create(folder / "start-up", ["python"]), bare)}
    command = [sys.executable, "-c", "0"]  # "pass" could be the name of a secret, and would be checked
    differences = []
    for _ in range(pairs):
        first = cpu_seconds(command, bare)
        differences.append((cpu_seconds(command, wrapped) - first) * 1e3)
    draws = np.random.default_rng(0).choice(np.asarray(differences), size=(4000, pairs))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return {"median_ms": statistics.median(differences), "low_ms": float(low), "high_ms": float(high)}


def table(loops: dict[float, dict[str, object]], start: dict[str, object]) -> str:
    """Return the figures as Markdown."""
    names = list(dict.fromkeys(name for loop in loops.values() for name in loop["ratios"]))  # type: ignore[attr-defined]
    rows = ["| step | " + " | ".join(names) + " | monitors, share of one core |"]
    rows.append("|---" * (len(names) + 2) + "|")
    for loop in loops.values():
        ratios, share = loop["ratios"], loop["monitors_share"]
        cells = [str(ratios.get(name, "–")) for name in names]  # type: ignore[attr-defined]
        shown = "–" if share is None else f"{share:.1%}"
        rows.append(f"| {loop['step_ns'] / 1e6:.2f} ms | " + " | ".join(cells) + f" | {shown} |")  # type: ignore[operator]
    rows.append("")
    rows.append(
        f"A Python that never imports torch starts {start['median_ms']:.2f} ms "
        f"({start['low_ms']:.2f} … {start['high_ms']:.2f}) later, in CPU time."
    )
    return "\n".join(rows)


def monitors(minutes: float | None, json_file: Path | None) -> None:
    """Measure and print the monitors' cost alone; write the figures if requested."""
    seconds = 30.0 if minutes is None else 60 * minutes
    found = monitor_cost.measure(seconds, looks=1 if minutes is None else max(2, round(2 * minutes)))
    print(monitor_cost.text(found, monitor_cost.has_stand_in()))
    if json_file:
        json_file.write_text(json.dumps({"monitors": monitor_cost.figures(found)}, indent=1) + "\n")


def main() -> None:
    """Measure and print; write the figures if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--casts", type=int, default=10, help="how often all variants are restarted (10)")
    parser.add_argument(
        "--rounds", type=int, default=8, help="rounds of turns of each variant in each cast (8)"
    )
    parser.add_argument("--pairs", type=int, default=60, help="pairs of interpreter starts (60)")
    parser.add_argument("--steps", type=float, nargs="*", default=STEP_TIMES_MS, help="step times in ms")
    parser.add_argument("--peers", action="store_true", help="also other profilers, if they are installed")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--monitors", action="store_true", help="only the monitors, for 30 s")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="only the monitors, for this time")
    arguments = parser.parse_args()
    if arguments.monitors or arguments.soak:
        monitors(arguments.soak, arguments.json)
        return
    if "LD_PRELOAD" not in memory():
        print("without jemalloc (apt install libjemalloc2): equal processes differ more", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = with_peers() if arguments.peers else VARIANTS
        loops = {
            ms: measure(dict(wanted), ms, arguments.casts, arguments.rounds, folder / f"{ms:g}")
            for ms in arguments.steps
        }
        start = start_up(arguments.pairs, folder)
    print(table(loops, start))
    if arguments.json:
        figures = {"loops": {f"{ms:g}": loop for ms, loop in loops.items()}, "start_up": start}
        arguments.json.write_text(json.dumps(figures, indent=1, default=vars) + "\n")


if __name__ == "__main__":
    main()
