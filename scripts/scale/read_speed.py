"""Measure time and memory to read a recording, compared with other tools on the same files.

    python scripts/scale/read_speed.py FILE... [--peer-python PYTHON] [--repeat 3] [--grow-to BYTES] [--whole]

Every reading is a separate process, and the tools alternate, so that a busy machine slows all of them. perfwrap's
modules are compiled before, as pip does with those of the others. Of each tool, the least time and the least memory
count. The table has processor time and wall time; on a busy machine use the former. ``--grow-to`` repeats each trace,
with later times and new numbers, up to that size; big_recordings.py makes files of any size much faster. ``--whole``
measures `perfwrap import` from start to end, with its diagnosis and its files. The other tools need an environment of
their own, made once with:

    python -m venv peers && peers/bin/pip install HolisticTraceAnalysis nsys-ai

What is timed: perfwrap reads the file, builds the timeline, finds the steps and what each GPU did; Holistic Trace
Analysis loads a trace of torch.profiler into its table and computes its temporal breakdown; nsys-ai opens an export of
nsys and computes the overlap of kernels, and its iterations. Imports are included, as for a user. nsys-ai uses an
extension that DuckDB downloads; without it, the script prints a note, and nsys-ai uses its slower way.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
GZIP = b"\x1f\x8b"
NOTE = "note: "
"""The prefix of lines that are for the user."""

PERFWRAP = """
import gc, os, sys
from pathlib import Path
from perfwrap.commands import FREED_MEMORY
# As `perfwrap import` does.
os.environ.setdefault(*FREED_MEMORY)
gc.set_threshold(250_000)
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import find_trainers
from perfwrap.sources import files
timeline, _ = files.read([Path(sys.argv[1])], {})
evidence = Evidence(timeline)
[evidence.get(find_steps, trainer).count for trainer in evidence.get(find_trainers)]
[(gpu.busy_share, gpu.idle_shares) for gpu in evidence.get(find_gpu_activity)]
"""

WHOLE = """
import sys, tempfile
from pathlib import Path
from perfwrap.cli import main
with tempfile.TemporaryDirectory() as folder:
    sys.argv = ["perfwrap", "import", sys.argv[1], "--out", str(Path(folder) / "run")]
    main()
"""

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
analysis.get_temporal_breakdown(visualize=False)
"""

NSYS_AI = """
import sys
import duckdb
connect = duckdb.connect
try:
    connect(config={"autoinstall_known_extensions": "false"}).execute("LOAD sqlite_scanner")
except duckdb.Error:
    # It would wait for a download that fails, and then use sqlite3 anyway.
    def without_download(*arguments, config=None, **options):
        config = {**(config or {}), "autoinstall_known_extensions": "false"}
        return connect(*arguments, config=config, **options)
    duckdb.connect = without_download
    print("note: DuckDB's sqlite_scanner is missing: nsys-ai uses sqlite3, which is slower")
from nsys_ai import overlap, profile
opened = profile.open(sys.argv[1])
device = profile.select_gpu_device(opened, None)
overlap.overlap_analysis(opened, device)
overlap.detect_iterations(opened, device)
"""


@dataclass(frozen=True)
class Reading:
    """One reading: wall time and processor time in seconds, and peak memory in bytes."""

    seconds: float
    processor_seconds: float
    peak_bytes: int


@functools.cache
def compiled() -> str:
    """Return the folder with a copy of perfwrap and its compiled modules."""
    folder = Path(tempfile.mkdtemp(prefix="perfwrap-compiled-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(REPOSITORY / "wrapper" / "perfwrap", folder / "perfwrap")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    return str(folder)


def measure(python: str, code: str, trace: Path) -> Reading | None:
    """Return the cost of one reading in a separate process; None if it failed."""
    is_own = code in (PERFWRAP, WHOLE)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory() as folder:
        if not is_own:
            # A copy for each: nsys-ai stores its results next to the file, and would reuse them.
            trace = Path(shutil.copy(trace, folder))
        environment = {**os.environ, "PYTHONPATH": compiled() if is_own else ""}
        began = time.monotonic()
        child = os.posix_spawn(
            python,
            [python, "-c", code, str(trace)],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
            ],
        )
        _, status, usage = os.wait4(child, 0)
        seconds = time.monotonic() - began
        output.seek(0)
        said = output.read().decode(errors="replace")
        if status:
            print(said[-800:], file=sys.stderr)
            return None
        for line in said.splitlines():
            if line.startswith(NOTE):
                print_once(line)
    return Reading(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


@functools.cache
def print_once(line: str) -> None:
    """Print a note of a tool once."""
    print(line, file=sys.stderr)


def best(readings: list[Reading | None]) -> Reading | None:
    """Return the least time and the least memory of those that succeeded."""
    known = [reading for reading in readings if reading is not None]
    if not known:
        return None
    return Reading(
        min(reading.seconds for reading in known),
        min(reading.processor_seconds for reading in known),
        min(reading.peak_bytes for reading in known),
    )


def row(trace: Path, own: Reading | None, peer: Reading | None) -> str:
    """Return one line of the table."""
    cells = [f"{trace.name} ({trace.stat().st_size / 1e6:.1f} MB)"]
    for reading in (own, peer):
        cells += ["", "", ""] if reading is None else [
            f"{reading.seconds:.2f} s", f"{reading.processor_seconds:.2f} s", f"{reading.peak_bytes / 2**20:.0f} MiB"
        ]  # fmt: skip
    if own and peer:
        cells += [
            f"{theirs / ours:.1f}x"
            for ours, theirs in (
                (own.seconds, peer.seconds),
                (own.processor_seconds, peer.processor_seconds),
                (own.peak_bytes, peer.peak_bytes),
            )
        ]
    else:
        cells += ["", "", ""]
    return "| " + " | ".join(cells) + " |"


def grown(trace: Path, size: int, folder: Path) -> Path:
    """Return a trace of torch.profiler that repeats another one up to that size."""
    text = trace.read_bytes()
    content = json.loads(gzip.decompress(text) if text.startswith(GZIP) else text)
    events = content.pop("traceEvents")
    path = folder / f"{trace.name.split('.')[0]}-{size >> 20}MiB.json"
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(content)[:-1] + ', "traceEvents": [')
        for number, event in enumerate(_repeated(events)):
            file.write((",\n" if number else "\n") + json.dumps(event))
            if file.tell() >= size:
                break
        file.write("\n]}\n")
    return path


def _repeated(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the events repeatedly, each round later than the last, with other correlation numbers."""
    lasting = [event for event in events if event.get("ph") == "X" and "ts" in event]
    begin = min(float(event["ts"]) for event in lasting)
    length = max(float(event["ts"]) + float(event.get("dur", 0)) for event in lasting) - begin
    numbers = 1 + max((_correlation(event) for event in lasting), default=0)
    turn = 0
    while True:
        for event in events:
            moved = dict(event)
            if "ts" in event:
                moved["ts"] = round(float(event["ts"]) + turn * (length + 1_000), 3)
            if _correlation(event):
                moved["args"] = {**event["args"], "correlation": _correlation(event) + turn * numbers}
            if turn == 0 or event.get("ph") != "M":
                yield moved
        turn += 1


def _correlation(event: dict[str, Any]) -> int:
    """Return an event's correlation number, 0 if it has none."""
    about = event.get("args")
    found = about.get("correlation") if isinstance(about, dict) else None
    return found if isinstance(found, int) else 0


def grown_export(export: Path, size: int, folder: Path) -> Path:
    """Return an export of nsys that repeats the rows with a time of another one up to that size."""
    path = folder / f"{export.name.split('.')[0]}-{size >> 20}MiB.sqlite"
    shutil.copy(export, path)
    turns = max(1, round(size / export.stat().st_size)) - 1
    with contextlib.closing(sqlite3.connect(path)) as opened, opened:
        tables = [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            table: [row[1] for row in opened.execute(f'PRAGMA table_info("{table}")')] for table in tables
        }
        timed = [table for table in tables if not {"start", "end"} - set(columns[table])]
        (number,) = opened.execute(
            "SELECT 1 + max(correlationId) FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        ).fetchone()
        first, last = (
            edge(
                row[0]
                for table in timed
                for row in opened.execute(f'SELECT {edge.__name__}("start") FROM "{table}"')  # noqa: S608
                if row[0]
            )
            for edge in (min, max)
        )
        for table in timed:
            moved = {
                "start": last - first + 1_000_000,
                "end": last - first + 1_000_000,
                "correlationId": number,
            }
            (rows,) = opened.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()  # noqa: S608
            names = ", ".join(f'"{name}"' for name in columns[table])
            values = ", ".join(
                f'"{name}" + :turn * {moved[name]}' if name in moved else f'"{name}"'
                for name in columns[table]
            )
            for turn in range(1, turns + 1):
                opened.execute(
                    f'INSERT INTO "{table}" ({names}) SELECT {values} FROM "{table}" WHERE rowid <= :rows',  # noqa: S608
                    {"turn": turn, "rows": rows or 0},
                )
    return path


def unpacked(export: Path, folder: Path) -> Path:
    """Return an export of nsys as a file that every tool can open."""
    with export.open("rb") as file:
        if file.read(len(GZIP)) != GZIP:
            return export
    path = folder / export.name.removesuffix(".gz")
    with gzip.open(export) as packed, path.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return path


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--peer-python", help="the Python of an environment with the other tools")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--whole", action="store_true", help="measure the whole of `perfwrap import`")
    parser.add_argument("--grow-to", type=int, metavar="BYTES", help="repeat each trace up to this size")
    options = parser.parse_args()
    print(
        "| file | perfwrap | processors | memory | other | processors | memory | faster | less work | leaner |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for trace in options.traces:
            is_export = ".sqlite" in trace.name
            if is_export:
                read = unpacked(trace, Path(folder))
                if options.grow_to:
                    read = grown_export(read, options.grow_to, Path(folder))
            else:
                read = grown(trace, options.grow_to, Path(folder)) if options.grow_to else trace
            own: list[Reading | None] = []
            peer: list[Reading | None] = []
            for _ in range(options.repeat):
                own.append(measure(sys.executable, WHOLE if options.whole else PERFWRAP, read))
                if options.peer_python:
                    peer.append(measure(options.peer_python, NSYS_AI if is_export else HTA, read))
            print(row(read, best(own), best(peer)), flush=True)


if __name__ == "__main__":
    main()
