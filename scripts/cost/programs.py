"""Measure processor time and wall time of public programs, bare and under `perfwrap run --no-report`.

    python scripts/cost/programs.py --sources DIR                  all programs of scripts/cost/programs.toml
    python scripts/cost/programs.py --sources DIR mnist gpt        only those whose names contain one of the words
    python scripts/cost/programs.py --sources DIR --pairs 5        more pairs of runs (3)
    python scripts/cost/programs.py --sources DIR --python PATH    with another interpreter and its torch

Each pair is one bare and one wrapped run in random order, each in a fresh copy of the program's folder, with one
compute thread. Processor time is that of the command and its children; in wrapped runs it includes perfwrap and its
monitors. "More" is the ratio of the medians, with its 95 % interval by bootstrap over the runs. The last column is the
cost that perfwrap itself reports. Nothing else should run on the machine. The exit code is 1 if the median of a
program's processor time rose by more than 5 %. All measured times go to the error output.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from perfwrap.errors import PerfwrapError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fidelity"))

from bench import Bench, Script  # noqa: E402
from fidelity import read_list  # noqa: E402

MOST = 0.05
DRAWS = 2000
"""Resamples of the bootstrap."""


def used() -> float:
    """Return the seconds of processor time of all children so far."""
    all_of_them = resource.getrusage(resource.RUSAGE_CHILDREN)
    return all_of_them.ru_utime + all_of_them.ru_stime


def measure(bench: Bench, *wrapper: str) -> tuple[float, float]:
    """Return seconds of processor time and of wall time of one run."""
    cpu, wall = used(), time.monotonic()
    run = bench.run(*wrapper)
    wall = time.monotonic() - wall
    if run.exit != "0":
        raise PerfwrapError(f"{bench.script.name} ended with {run.exit}.", run.stderr[-2000:])
    return used() - cpu, wall


def own_estimate(folder: Path) -> float | None:
    """Return the additional processor time that perfwrap itself reports."""
    report = [sys.executable, "-m", "perfwrap", "report", str(folder), "--format", "json"]
    said = json.loads(subprocess.run(report, stdout=subprocess.PIPE, check=True).stdout)
    share: float | None = (said["perfwrap_cost"]["processor"] or {}).get("share")
    return share


def compare(script: Script, base: Path, sources: Path, python: Path, pairs: int) -> tuple[str, float]:
    """Return a row of the table, and by how much the processor time rose."""
    bench = Bench(base, replace(script, observe=False), sources, python)
    wrapper = [sys.executable, "-m", "perfwrap", "run", "--no-report", "--out", str(bench.recorded), "--"]
    times: dict[str, list[tuple[float, float]]] = {"bare": [], "wrapped": []}
    estimates: list[float] = []
    measure(bench)  # once for the file system's cache
    for _ in range(pairs):
        for name in random.sample(sorted(times), 2):
            times[name].append(measure(bench, *(wrapper if name == "wrapped" else ())))
            estimate = own_estimate(bench.recorded) if name == "wrapped" else None
            estimates += [] if estimate is None else [estimate]
    cpu, wall = ([[both[place] for both in times[name]] for name in ("bare", "wrapped")] for place in (0, 1))
    print(script.name, f"cpu {_rounded(cpu)} wall {_rounded(wall)}", file=sys.stderr, flush=True)
    said = f"{statistics.median(estimates):+.1%}" if estimates else "–"
    figures = (f"{statistics.median(cpu[0]):.0f}", _more(*cpu), f"{statistics.median(wall[0]):.0f}")
    return f"| {script.name} | {' | '.join((*figures, _more(*wall), said))} |", _ratio(*cpu) - 1


def _ratio(bare: list[float], wrapped: list[float]) -> float:
    return statistics.median(wrapped) / statistics.median(bare)


def _more(bare: list[float], wrapped: list[float]) -> str:
    """Return the ratio of the medians less one, with its 95 % interval."""
    draw = random.Random(0)
    ratios = sorted(
        _ratio(draw.choices(bare, k=len(bare)), draw.choices(wrapped, k=len(wrapped))) for _ in range(DRAWS)
    )
    least, most = ratios[int(0.025 * DRAWS)], ratios[int(0.975 * DRAWS)]
    return f"{_ratio(bare, wrapped) - 1:+.1%} ({least - 1:+.1%} … {most - 1:+.1%})"


def _rounded(values: list[list[float]]) -> list[list[float]]:
    return [[round(value, 2) for value in each] for each in values]


def main() -> int:
    """Run the requested programs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only programs whose names contain one of these")
    parser.add_argument(
        "--list", type=Path, default=Path(__file__).with_name("programs.toml"), help="the list"
    )
    parser.add_argument("--sources", type=Path, required=True, help="folder with the checkouts")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the programs' interpreter")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of runs (3)")
    arguments = parser.parse_args()
    print(
        "| program | bare CPU s | more CPU | bare s | more wall time | more CPU by perfwrap's own estimate |"
    )
    print("|---" * 6 + "|", flush=True)
    worst = 0.0
    for script in read_list(arguments.list):
        if arguments.words and not any(word in script.name for word in arguments.words):
            continue
        with tempfile.TemporaryDirectory(prefix="overhead") as base:
            found = (Path(base), arguments.sources.resolve(), arguments.python.absolute(), arguments.pairs)
            row, more = compare(script, *found)
        worst = max(worst, more)
        print(row, flush=True)
    return int(worst > MOST)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PerfwrapError as error:
        sys.exit(f"programs: {error.message} {error.hint}")
