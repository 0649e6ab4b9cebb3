"""Faults of faults.py that are very long runs: many records, many children."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from perfwrap.journal_format import SPANS, SUM
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals.journal_file import read_file
from trial import Running, Trial, resident_bytes

MEBIBYTE = 1 << 20
CHILDREN, MANY_CHILDREN = 300, 10_000
STEPS, MANY_STEPS = 100_000, 10_000_000
"""Of ten spans each."""
DAYS = 7.0
BUDGET, LARGE_BUDGET = 4 * MEBIBYTE, 256 * MEBIBYTE
"""The large one is the budget that `perfwrap run` gives each process."""
SLOWER = 1.5
"""The limit for the cost of the last tenth of a long run, as a multiple of the third: other programs disturb."""
GROWTH_BYTES = 8 * MEBIBYTE
PEAK = "largest memory of the monitors"


def many_children(trial: Trial) -> None:
    """A program starts very many children that end immediately."""
    count = MANY_CHILDREN if trial.long else CHILDREN
    program = [sys.executable, str(Path(__file__).with_name("short_children.py")), str(count)]
    begin = time.monotonic()
    bare = Running(program, trial.place).end()
    middle = time.monotonic()
    wrapped = [
        sys.executable,
        "-m",
        "perfwrap",
        "run",
        "--no-report",
        "--out",
        str(trial.folder),
        "--",
        *program,
    ]
    running = Running(wrapped, trial.place)
    early, peak = _follow(running)
    ended = running.end()
    end = time.monotonic()
    trial.expect_same(ended, bare)
    trial.expect("monitors" not in ended.errors, f"it says {ended.errors[-300:]}")
    trial.figures["children"] = (
        f"{count}, {(end - middle) / (middle - begin):.2f} times as long as without perfwrap"
    )
    trial.figures[PEAK] = f"{peak // MEBIBYTE} MiB, {early // MEBIBYTE} MiB in the first third"
    trial.expect(peak < early + 4 * GROWTH_BYTES, f"the monitors grew from {early} to {peak} bytes")
    journals = list(RunFolder(trial.folder).journal.iterdir())
    size = sum(path.stat().st_blocks * 512 for path in trial.folder.rglob("*"))
    trial.figures["run folder"] = f"{size // MEBIBYTE} MiB, {len(journals)} journals"
    begin = time.monotonic()
    trial.expect_readable()
    trial.figures["report"] = f"{time.monotonic() - begin:.1f} s"


def _follow(running: Running) -> tuple[int, int]:
    """Return the monitors' peak memory in the first third of the children, and in all."""
    monitors, early, peak = running.monitors(), 0, 0
    lines: list[str] = []
    while running.process.poll() is None:
        peak = max(peak, resident_bytes(monitors))
        lines = running.lines() if not lines or not early else lines
        if not early and len(lines) > 2:
            early = peak
        time.sleep(0.05)
    return early or peak, peak


def many_events(trial: Trial) -> None:
    """A process writes very many records, for a week of its own clock."""
    steps, budget = (MANY_STEPS, LARGE_BUDGET) if trial.long else (STEPS, BUDGET)
    figures = _write(trial, "recorder", steps, budget)
    (path,) = RunFolder(trial.folder).journal.iterdir()
    records = read_file(path).records
    kinds = records["kind"]
    is_span = np.isin(kinds, list(SPANS.values()))
    summed = records["value"][np.isin(kinds, [kind | SUM for kind in SPANS.values()])]
    total = int(np.count_nonzero(is_span)) + int(summed.sum())
    trial.expect(
        total == figures["spans"], f"{figures['spans']} spans were written, {total} are accounted for"
    )
    trial.figures["spans"] = f"{total:,}, {int(np.count_nonzero(is_span)):,} of them in detail"
    _expect_flat(trial, figures, path, budget)


def long_watch(trial: Trial) -> None:
    """Monitors sample for a week of their own clock, ten times a second."""
    budget = LARGE_BUDGET if trial.long else BUDGET
    figures = _write(trial, "monitors", 10, budget)
    (path,) = RunFolder(trial.folder).journal.iterdir()
    records = read_file(path).records
    last = int(records["start"].max()) - int(records["start"][records["start"] > 0].min())
    trial.expect(last > 0.999 * figures["until"], "the end of the week is not watched")
    trial.figures["looks"] = f"{figures['looks']:,}, at the end every {figures['stride']}. time"
    _expect_flat(trial, figures, path, budget)


def _write(trial: Trial, kind: str, number: int, budget: int) -> dict[str, Any]:
    """Write a journal in another process; return its cost."""
    folder = RunFolder(trial.folder)
    folder.journal.mkdir(parents=True)
    words = [kind, str(number), str(DAYS), str(folder.path), str(budget)]
    program = str(Path(__file__).with_name("long_journals.py"))
    done = subprocess.run([sys.executable, program, *words], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _expect_flat(trial: Trial, figures: dict[str, Any], path: Path, budget: int) -> None:
    """Expect that the budget is kept, and that neither time nor memory grows."""
    size = path.stat().st_size
    trial.expect(size <= budget, f"the journal has {size} bytes, its budget is {budget}")
    seconds, memory = figures["seconds"], figures["resident_bytes"]
    ratio, growth = seconds[-1] / seconds[2], memory[-1] - memory[2]
    # In the short form, the noise of other programs is larger than the measured effect.
    trial.expect(
        ratio < SLOWER or not trial.long, f"the last tenth cost {ratio:.2f} times as much as the third"
    )
    trial.expect(growth < GROWTH_BYTES, f"memory grew by {growth} bytes from the third to the last tenth")
    trial.figures["journal"] = f"{size / MEBIBYTE:.0f} MiB of {budget // MEBIBYTE} MiB"
    trial.figures["last tenth"] = (
        f"{ratio:.2f} times the time of the third, {growth / 1024:+.0f} KiB of memory"
    )
