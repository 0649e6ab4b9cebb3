"""Measure `perfwrap report` on jobs of 8 to 1,024 ranks, with step tables from perfwrap's own writer.

    python scripts/scale/fleet.py                       1,024 ranks of 100,000 steps, and smaller ones
    python scripts/scale/fleet.py --ranks 8 64 --steps 1000

Each rank has its own steps of random lengths; one rank loads late. Prints the size of the tables and, for the report,
which runs in a separate process, wall time, processor time and peak memory. On a busy machine, use the processor time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from perfwrap.run_folder import PARTS, RunFolder
from perfwrap.timeline import step_tables
from perfwrap.timeline.step_tables import COLUMNS, Summary

RANKS = (8, 64, 256, 1024)
STEPS = 100_000
RANKS_PER_HOST = 8
STEP_NS = 200_000_000
LATE_NS = 20_000_000
SHARES = {"data": 0.05, "forward": 0.25, "backward": 0.55, "optimizer": 0.05, "python": 0.10}
SPREAD = 0.03
MIB = 1 << 20


@dataclass(frozen=True)
class Measured:
    """One report."""

    wall_s: float
    cpu_s: float
    memory_bytes: int
    text: str


def main() -> None:
    """Make the jobs and measure a report on each."""
    options = _options()
    print(f"{'ranks':>6} {'steps':>8} {'tables':>12} {'wall':>8} {'CPU':>8} {'memory':>10}", flush=True)
    with tempfile.TemporaryDirectory(dir=options.place) as place:
        for ranks in options.ranks:
            folder = Path(place) / f"ranks{ranks}"
            size = make_job(folder, ranks, options.steps)
            found = measure(folder)
            late = f"rank {late_rank(ranks)} "
            assert late in found.text, found.text
            print(
                f"{ranks:>6,} {options.steps:>8,} {size / MIB:>8,.0f} MiB {found.wall_s:>6.1f} s {found.cpu_s:>6.1f} s "
                f"{found.memory_bytes / MIB:>6,.0f} MiB",
                flush=True,
            )


def late_rank(ranks: int) -> int:
    """Return the rank that loads late."""
    return ranks // 2 + 1


def make_job(folder: Path, ranks: int, steps: int) -> int:
    """Write a job's folder; return the size of its tables in bytes."""
    job = {"id": "fleet", "started_by": "", "size": -(-ranks // RANKS_PER_HOST)}
    (folder / PARTS).mkdir(parents=True)
    RunFolder(folder).write_manifest({"job": job, "command": ["python", "train.py"]})
    for host in range(-(-ranks // RANKS_PER_HOST)):
        part = RunFolder(folder / PARTS / f"node{host}")
        part.path.mkdir()
        part.write_manifest(_manifest(host))
        own = range(host * RANKS_PER_HOST, min(ranks, (host + 1) * RANKS_PER_HOST))
        step_tables.write(part.steps, (_rank(rank, host, steps, rank == late_rank(ranks)) for rank in own))
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def measure(folder: Path) -> Measured:
    """Return the cost of a report, made in a separate process."""
    began = time.monotonic()
    words = [sys.executable, "-m", "perfwrap", "report", str(folder)]
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        out.seek(0)
        text = out.read()
    if status:
        sys.exit(f"The report failed:\n{text}")
    cpu_s = used.ru_utime + used.ru_stime
    return Measured(time.monotonic() - began, cpu_s, used.ru_maxrss * 1024, text)


def _manifest(host: int) -> dict[str, object]:
    """Return the manifest of a host's launcher."""
    return {
        "command": ["python", "train.py"],
        "part": {"job": "fleet", "rank": host, "leads": host == 0},
        "host": {"name": f"node{host}", "clock": f"boot {host}"},
        "start": {"monotonic_ns": 10**12, "wall_ns": 10**18},
        "end": {"monotonic_ns": 10**13, "wall_ns": 10**18 + 9 * 10**12},
        "exit": {"code": 0},
    }


def _rank(rank: int, host: int, steps: int, is_late: bool) -> tuple[Summary, pl.DataFrame]:
    """Return one rank's table and summary."""
    chance = np.random.default_rng(rank)
    parts = {
        part: np.maximum(0, STEP_NS * share * chance.normal(1, SPREAD, steps)).astype(np.int64)
        for part, share in SHARES.items()
    }
    if is_late:
        parts["data"] += LATE_NS
    own = sum(values for part, values in parts.items() if part != "backward")
    duration = own + parts["backward"]
    columns = {
        "host": f"node{host}",
        "rank": rank,
        "pid": 1000 + rank,
        "step": np.arange(steps),
        "start_ns": 10**18 + np.cumsum(duration) - duration,
        "duration_ns": duration,
        "steady": np.arange(steps) >= 10,
        "detailed": True,
        "windowed": False,
        "epoch": np.arange(steps) // 5000,
        "samples": 32,
        **{f"{part}_ns": parts.get(part, 0) for part in step_tables.PARTS},
        "own_ns": own,
        "exchange_begin_ns": own,
        "exchange_end_ns": duration,
    }
    table = pl.select(
        (pl.Series(value) if isinstance(value, np.ndarray) else pl.lit(value)).cast(COLUMNS[name]).alias(name)
        for name, value in columns.items()
    )
    account = {part: int(values.sum()) for part, values in parts.items()}
    median, p99 = (float(np.quantile(duration, share)) for share in (0.5, 0.99))
    rate = 32 * steps / int(duration.sum()) * 1e9
    found = Summary(
        f"rank {rank}",
        rank,
        f"node{host}",
        1000 + rank,
        steps,
        steps - 10,
        median,
        p99,
        rate,
        "step",
        account,
    )
    return found, table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--place", help="folder for the temporary files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
