"""The cost of the monitors: share of a core and memory, with many processes and GPUs.

Part of overhead.py (``--monitors``, ``--soak``). The processes are real and use about 1 % of a core each.
The GPUs are the tests' stand-in for NVIDIA's library, which answers immediately: a real driver takes longer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

PROCESSES, GPUS, RATE_HZ = 50, 8, 10
TARGET_SHARE = 0.01
SETTLE_SECONDS = 15
"""The time before the measurement, for opening everything and the first adjustment of the rate."""
FLAT_BYTES = 1 << 20
"""The growth after a soak that still counts as flat: an allocator's pages."""
STAND_IN = Path(__file__).parents[2] / "tests/wrapper/monitors/stand_in_nvml.c"

CROWD = """
import os, sys, time
for number in range(int(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(number / int(sys.argv[1]))
        while os.getppid() != 1:
            begin = time.thread_time()
            while time.thread_time() - begin < 0.01:
                pass
            time.sleep(1)
        os._exit(0)
print("ready", flush=True)
sys.stdin.read()
os.killpg(0, 9)
"""


@dataclass(frozen=True)
class Look:
    """The monitors' process at one moment of a measurement."""

    seconds: float
    share: float
    """The share of one core since the previous look."""
    resident_bytes: int
    journal_bytes: int
    slowed: bool
    """Whether the monitors sampled less often than requested, to stay below their share."""


def measure(seconds: float, looks: int = 1, processes: int = PROCESSES, gpus: int = GPUS) -> list[Look]:
    """Return this many looks, each after a part of the time; the first one is at the start."""
    with tempfile.TemporaryDirectory() as name, _crowd(processes) as crowd:
        folder = Path(name)
        with _monitors(folder, crowd, gpus) as monitors:
            time.sleep(SETTLE_SECONDS)
            begin = used_at = time.monotonic()
            used = _used(monitors)
            found = [_look(0.0, 0.0, monitors, folder)]
            for _ in range(looks):
                time.sleep(seconds / looks)
                now, now_used = time.monotonic(), _used(monitors)
                share = (now_used - used) / (now - used_at)
                found.append(_look(now - begin, share, monitors, folder))
                used, used_at = now_used, now
            return found


def text(found: list[Look], gpus: bool) -> str:
    """Return the figures as text, with the targets."""
    share = sum(look.share for look in found[1:]) / (len(found) - 1)
    growth = found[-1].resident_bytes - found[0].resident_bytes
    first = found[min(1, len(found) - 1)]
    since_first = found[-1].resident_bytes - first.resident_bytes
    lines = [
        f"Monitors with {PROCESSES} processes{f' and {GPUS} stand-in GPUs' if gpus else ''} at {RATE_HZ} Hz: "
        f"{share:.2%} of one core (target: less than {TARGET_SHARE:.0%}), "
        f"{found[-1].resident_bytes / 2**20:.1f} MiB of memory, "
        f"{found[-1].journal_bytes / 2**20:.1f} MiB written after {found[-1].seconds / 60:.1f} min."
    ]
    if found[-1].slowed:
        lines.append("They had to look less often than that for a while, to stay below their share.")
    if len(found) > 2:
        flat = "flat" if since_first < FLAT_BYTES else "NOT flat"
        lines.append(f"Memory {flat}: {growth / 2**10:+.0f} KiB over {found[-1].seconds / 60:.1f} min.")
        lines += [
            f"  {look.seconds:6.0f} s  {look.share:6.2%}  {look.resident_bytes / 2**20:6.1f} MiB"
            for look in found
        ]
    return "\n".join(lines)


def figures(found: list[Look]) -> dict[str, object]:
    """Return the looks as JSON data."""
    return {"processes": PROCESSES, "rate_hz": RATE_HZ, "looks": [asdict(look) for look in found]}


def has_stand_in() -> bool:
    """Return whether the stand-in for NVIDIA's library can be built here."""
    return STAND_IN.is_file() and shutil.which("cc") is not None


@contextmanager
def _crowd(count: int) -> Iterator[int]:
    """Run this many child processes of one process; yield its pid."""
    command = [sys.executable, "-c", CROWD, str(count)]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        parent.stdout.readline()  # type: ignore[union-attr]
        yield parent.pid
    finally:
        os.killpg(parent.pid, 9)
        parent.communicate()


@contextmanager
def _monitors(folder: Path, crowd: int, gpus: int) -> Iterator[psutil.Process]:
    """Run the monitors' process as the launcher does."""
    for name in ("journal", "starts", "inject", "driver"):
        (folder / name).mkdir()
    environment = dict(os.environ)
    if gpus and has_stand_in():
        library = folder / "driver" / "libnvidia-ml.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", str(library), str(STAND_IN)], check=True)
        environment |= {"LD_LIBRARY_PATH": str(library.parent), "STAND_IN_GPUS": str(gpus)}
    module = [sys.executable, "-m", "perfwrap.monitors.sidecar", str(folder), str(os.getpid())]
    command = [*module, json.dumps({"rate_hz": RATE_HZ})]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    try:
        process.stdin.write(f"child {crowd}\n".encode())  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        yield psutil.Process(process.pid)
    finally:
        process.communicate()


def _used(process: psutil.Process) -> float:
    """Return the processor time of a process; psutil's ticks are precise enough over many seconds."""
    used = process.cpu_times()
    return float(used.user + used.system)


def _look(seconds: float, share: float, monitors: psutil.Process, folder: Path) -> Look:
    journal = next((folder / "journal").iterdir())
    slowed = b"sampled less often" in journal.read_bytes()
    return Look(seconds, share, monitors.memory_info().rss, journal.stat().st_size, slowed)
