"""Measure how long reading a trace takes and how much memory, side by side with other tools on the same files.

    python scripts/read_speed.py TRACE... [--peer-python PYTHON] [--repeat 3]

Every reading is a process of its own, the tools in turn, so that a busy machine slows down all of them alike; of
each tool the fastest and the leanest reading counts. Peers run in an environment of their own, made once with:

    python -m venv peers && peers/bin/pip install HolisticTraceAnalysis

What is timed: perfwrap reads the file, builds the timeline and finds the steps; Holistic Trace Analysis loads the
file into its table and works out its temporal breakdown. Imports are part of both, as they are for a user.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

PERFWRAP = """
import sys
from pathlib import Path
from perfwrap.measures.evidence import Evidence
from perfwrap.sources import files
timeline, _ = files.read([Path(sys.argv[1])], {})
evidence = Evidence(timeline)
[evidence.steps(trainer).count for trainer in evidence.trainers]
"""

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
analysis.get_temporal_breakdown(visualize=False)
"""


@dataclass(frozen=True)
class Reading:
    """One reading: seconds, and bytes of memory at most."""

    seconds: float
    peak_bytes: int


def measure(python: str, code: str, trace: Path) -> Reading | None:
    """Return what one reading took in a process of its own; None when it failed."""
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        child = os.posix_spawn(
            python,
            [python, "-c", code, str(trace)],
            {**os.environ, "PYTHONPATH": str(REPOSITORY / "wrapper") if code is PERFWRAP else ""},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
            ],
        )
        _, status, usage = os.wait4(child, 0)
        seconds = time.monotonic() - began
        if status:
            output.seek(0)
            print(output.read().decode(errors="replace")[-800:], file=sys.stderr)
            return None
    return Reading(seconds, usage.ru_maxrss * 1024)


def best(readings: list[Reading | None]) -> Reading | None:
    """Return the least time and the least memory of those that succeeded."""
    known = [reading for reading in readings if reading is not None]
    if not known:
        return None
    return Reading(min(reading.seconds for reading in known), min(reading.peak_bytes for reading in known))


def row(trace: Path, own: Reading | None, peer: Reading | None) -> str:
    """Return one line of the table."""
    cells = [f"{trace.name} ({trace.stat().st_size / 1e6:.1f} MB)"]
    for reading in (own, peer):
        cells += ["failed", "failed"] if reading is None else [
            f"{reading.seconds:.2f} s", f"{reading.peak_bytes / 2**20:.0f} MiB"
        ]  # fmt: skip
    if own and peer:
        cells += [f"{peer.seconds / own.seconds:.1f}x", f"{peer.peak_bytes / own.peak_bytes:.1f}x"]
    else:
        cells += ["", ""]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--peer-python", help="the Python of an environment with HolisticTraceAnalysis")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print("| trace | perfwrap | | HTA | | faster | leaner |\n|---|---|---|---|---|---|---|")
    for trace in options.traces:
        own: list[Reading | None] = []
        peer: list[Reading | None] = []
        for _ in range(options.repeat):
            own.append(measure(sys.executable, PERFWRAP, trace))
            if options.peer_python:
                peer.append(measure(options.peer_python, HTA, trace))
        print(row(trace, best(own), best(peer)), flush=True)


if __name__ == "__main__":
    main()
