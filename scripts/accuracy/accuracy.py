"""Run the labelled workloads under the real ``perfwrap run`` and report how often the diagnosis is correct.

    python scripts/accuracy/accuracy.py                     all of scripts/workloads
    python scripts/accuracy/accuracy.py gc_ healthy         only those whose names contain one of the words
    python scripts/accuracy/accuracy.py --keep DIR          keep run folders and reports in DIR
    python scripts/accuracy/accuracy.py --scripts DIR       other labelled scripts: scripts/gpu/workloads, on a GPU
    python scripts/accuracy/accuracy.py --again DIR         run nothing: diagnose the runs kept in DIR again
    python scripts/accuracy/accuracy.py --predictions DIR   run nothing: compare predictions with each try.json in DIR

Prints a line per script, a confusion table and the figures: right rule first, right rule among the first three, right
line, false alarms. The exit code is 1 if a planted problem is missed or a healthy script raises a false alarm of
severity major or above.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters
from typing import Any

from labelled import HEALTHY, WORKLOADS, Label, launcher_of, read_label, run_options, workloads

NOTHING, FAILED = "(nothing)", "(failed)"
ALARMING = ("major", "critical")
BENIGN = ("compute_bound",)
"""Findings that are not a loss."""
TOP = 3


@dataclass(frozen=True)
class Result:
    """The findings of one script; ``findings`` are without the informational ones, most expensive first."""

    script: Path
    label: Label
    findings: list[dict[str, Any]]
    verdict: str

    @property
    def first(self) -> str:
        """The first finding."""
        if self.verdict == FAILED:
            return FAILED
        if self.label.expected == HEALTHY and not self.alarms:
            return HEALTHY
        return self.findings[0]["rule"] if self.findings else NOTHING

    @property
    def place(self) -> int | None:
        """The place of the expected rule, 1 for the first; None if it was not found."""
        rules = [finding["rule"] for finding in self.findings]
        return rules.index(self.label.expected) + 1 if self.label.expected in rules else None

    @property
    def right_line(self) -> bool | None:
        """Whether the expected rule names a marked line, or a range with one, for one of its fixes.

        None if no line is marked.
        """
        if not self.label.lines or self.place is None:
            return None
        finding = self.findings[self.place - 1]
        places = [finding["location"], *(option["location"] for option in finding["options"])]
        return any(
            _holds(place["line"], place.get("until_line"), line)
            for place in places
            if place and Path(place["file"]).name == self.script.name
            for line in self.label.lines
        )

    @property
    def alarms(self) -> list[str]:
        """Findings of severity major or above that the label does not allow."""
        allowed = self.label.also | {self.label.expected}
        loud = [finding for finding in self.findings if finding["severity"] in ALARMING]
        return [finding["rule"] for finding in loud if finding["rule"] not in allowed]

    @property
    def good(self) -> bool:
        """Whether the planted problem is among the first three at its line, or a healthy script has no alarm."""
        if self.label.expected == HEALTHY:
            return self.verdict != FAILED and not self.alarms
        return self.place is not None and self.place <= TOP and self.right_line is not False


def _holds(first: int, until: int | None, line: int) -> bool:
    """Return whether a line is in a range, which may continue in the next iteration of the loop."""
    if until is None or until == first:
        return line == first
    return first <= line <= until if first < until else line >= first or line <= until


def profile(script: Path, folder: Path) -> Result:
    """Run one script under perfwrap and read its findings."""
    run = folder / script.stem
    launcher = launcher_of(script) or [sys.executable]
    command = [sys.executable, "-m", "perfwrap", "run", "--out", str(run), *run_options(script), "--"]
    command += [*launcher, str(script)]
    # One compute thread: next to other programs, spinning OpenMP threads make the work many times slower.
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables)
    (folder / f"{script.stem}.txt").write_text(ended.stderr + ended.stdout, encoding="utf-8")
    return _result(script, ended, run)


def diagnose_again(script: Path, folder: Path) -> Result:
    """Diagnose a kept run again and read its findings."""
    run = folder / script.stem
    command = [sys.executable, "-m", "perfwrap", "report", str(run)]
    return _result(script, subprocess.run(command, capture_output=True, text=True), run)


def _result(script: Path, ended: subprocess.CompletedProcess[str], run: Path) -> Result:
    """Return the findings of a script, after a command that writes a diagnosis into the run's folder."""
    document = run / "diagnosis.json"
    if ended.returncode or not document.is_file():
        print(f"{script.name}: exit code {ended.returncode}\n{ended.stderr[-2000:]}", file=sys.stderr)
        return Result(script, read_label(script), [], FAILED)
    diagnosis = json.loads(document.read_text(encoding="utf-8"))
    findings = [finding for finding in diagnosis["findings"] if finding["rule"] not in BENIGN]
    return Result(script, read_label(script), findings, diagnosis["verdict"]["id"])


def show(result: Result) -> None:
    """Print one line about one script."""
    line = {None: "", True: "line right", False: "line wrong"}[result.right_line]
    found = (
        ", ".join(f"{finding['rule']} {finding['share']:.0%}" for finding in result.findings[:TOP]) or NOTHING
    )
    mark = "ok " if result.good else "BAD"
    kept = " (held out)" if result.label.held_out else ""
    print(f"{mark} {result.script.stem:<27} {result.verdict:<14} {line:<11} {found}{kept}", flush=True)


def show_table(results: list[Result]) -> None:
    """Print which problem was planted and which came first, then the figures."""
    print("\nPlanted (rows), first in the report (columns)")
    counts = Counter((result.label.expected, result.first) for result in results)
    columns = sorted({first for _, first in counts})
    rows = sorted({expected for expected, _ in counts})
    for letter, column in zip(ascii_letters, columns, strict=False):
        print(f"  {letter} = {column}")
    print(f"{'':<30}" + "".join(f"{letter:>4}" for letter in ascii_letters[: len(columns)]))
    for row in rows:
        print(f"{row:<30}" + "".join(f"{counts.get((row, column), 0) or '.':>4}" for column in columns))
    planted = [result for result in results if result.label.expected != HEALTHY]
    healthy = [result for result in results if result.label.expected == HEALTHY]
    lined = [result for result in planted if result.right_line is not None]
    first = sum(result.place == 1 for result in planted)
    listed = sum(result.place is not None and result.place <= TOP for result in planted)
    print(f"\nfirst        {first} of {len(planted)}")
    print(f"first three  {listed} of {len(planted)}")
    print(f"right line   {sum(bool(result.right_line) for result in lined)} of {len(lined)}")
    kept = [result for result in planted if result.label.held_out]
    if kept:
        print(f"held out     {sum(result.place == 1 for result in kept)} of {len(kept)} first")
    print(f"false alarms {sum(bool(result.alarms) for result in healthy)} of {len(healthy)} healthy scripts")


def show_predictions(folder: Path) -> int:
    """Print the predicted and measured results of each try.json below a folder; return 1 if there is none."""
    rows = [
        row
        for path in sorted(folder.rglob("try.json"))
        for row in json.loads(path.read_text(encoding="utf-8"))["variants"]
        if row["prediction_error"] is not None
    ]
    for row in rows:
        low, high = row["predicted"]
        print(
            f"{row['rule']:<28} {row['name']:<20} predicted {low:.2f} to {high:.2f}, measured {row['ratio']:.2f}, "
            f"error {row['prediction_error']:+.2f}"
        )
    inside = sum(row["prediction_error"] == 0 for row in rows)
    print(f"\npredicted correctly {inside} of {len(rows)}")
    return 0 if rows else 1


def main() -> int:
    """Run the requested workloads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only scripts whose names contain one of these")
    parser.add_argument("--keep", type=Path, help="keep run folders and reports in this new folder")
    parser.add_argument(
        "--predictions", type=Path, help="compare predictions with the try.json files below a folder"
    )
    parser.add_argument("--scripts", type=Path, default=WORKLOADS, help="the folder of the labelled scripts")
    parser.add_argument("--again", type=Path, help="diagnose the runs kept in this folder again")
    arguments = parser.parse_args()
    if arguments.predictions:
        return show_predictions(arguments.predictions)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.again or arguments.keep or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        scripts = [
            script
            for script in workloads(folder, arguments.scripts.absolute())
            if (not arguments.words or any(word in script.stem for word in arguments.words))
            and (not arguments.again or (folder / script.stem).is_dir())
        ]
        results = []
        for script in scripts:
            results.append((diagnose_again if arguments.again else profile)(script, folder))
            show(results[-1])
        show_table(results)
    return 0 if results and all(result.good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
