"""Run the labelled workloads under the real ``perfwrap run`` and say how often the diagnosis is right.

    python scripts/accuracy.py                     all of scripts/workloads
    python scripts/accuracy.py gc_ healthy         those whose names contain one of the words
    python scripts/accuracy.py --keep DIR          keep run folders and reports in DIR
    python scripts/accuracy.py --again DIR         run nothing: diagnose the runs kept in DIR anew
    python scripts/accuracy.py --predictions DIR   run nothing: hold predictions against each try.json below DIR

Prints a line per script, a confusion table and the figures: right rule first, right rule among the first
three, right line, false alarms. The exit code is 1 when a planted problem is missed or a healthy script
raises a false alarm of severity major or above.
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

WORKLOADS = Path(__file__).resolve().parent / "workloads"
HEALTHY, NOTHING, FAILED = "healthy", "(nothing)", "(failed)"
ALARMING = ("major", "critical")
BENIGN = ("compute_bound",)
"""Findings that are no waste."""
HELD_OUT = "# held out"
TOP = 3
RUN, HEAD_LINES = "# run:", 6
"""Begins the head line that says what starts a script, which stands among so many first lines."""


@dataclass(frozen=True)
class Label:
    """What must be found in a script, at which lines, and what else would be true."""

    expected: str
    lines: frozenset[int]
    also: frozenset[str]
    held_out: bool = False
    """Whether no rule was ever tuned on it."""


@dataclass(frozen=True)
class Result:
    """What was found in one script; ``findings`` are without the benign ones, costliest first."""

    script: Path
    label: Label
    findings: list[dict[str, Any]]
    verdict: str

    @property
    def first(self) -> str:
        """What stands first."""
        if self.verdict == FAILED:
            return FAILED
        if self.label.expected == HEALTHY and not self.alarms:
            return HEALTHY
        return self.findings[0]["rule"] if self.findings else NOTHING

    @property
    def place(self) -> int | None:
        """Where the expected rule stands, 1 for the first; None when it was not found."""
        rules = [finding["rule"] for finding in self.findings]
        return rules.index(self.label.expected) + 1 if self.label.expected in rules else None

    @property
    def right_line(self) -> bool | None:
        """Whether the expected rule names a marked line, or a stretch that holds one; None when there is none."""
        if not self.label.lines or self.place is None:
            return None
        location = self.findings[self.place - 1]["location"]
        if not location or Path(location["file"]).name != self.script.name:
            return False
        return any(_holds(location["line"], location.get("until_line"), line) for line in self.label.lines)

    @property
    def alarms(self) -> list[str]:
        """Findings of severity major or above that the label does not allow."""
        allowed = self.label.also | {self.label.expected}
        loud = [finding for finding in self.findings if finding["severity"] in ALARMING]
        return [finding["rule"] for finding in loud if finding["rule"] not in allowed]

    @property
    def good(self) -> bool:
        """Whether the planted problem stands among the first three at its line, or nothing is alarmed."""
        if self.label.expected == HEALTHY:
            return self.verdict != FAILED and not self.alarms
        return self.place is not None and self.place <= TOP and self.right_line is not False


def _holds(first: int, until: int | None, line: int) -> bool:
    """Say whether a line lies in a stretch, which may go on in the next round of the loop."""
    if until is None or until == first:
        return line == first
    return first <= line <= until if first < until else line >= first or line <= until


def read_label(script: Path) -> Label:
    """Read the comment lines at the head of a script."""
    lines = script.read_text(encoding="utf-8").splitlines()
    held_out = HELD_OUT in lines[:4]
    head = dict(line[2:].split(":", 1) for line in lines[:4] if line.startswith("# ") and ":" in line)
    words = head["expect"].split()
    marked = frozenset(number for number, line in enumerate(lines, 1) if line.rstrip().endswith("# guilty"))
    named = marked if "line" in words else frozenset()
    return Label(words[0], named, frozenset(head.get("also", "").split()), held_out)


def launcher_of(script: Path) -> list[str]:
    """Return the words of the head line ``# run: torchrun …``: what starts the script instead of Python alone."""
    lines = script.read_text(encoding="utf-8").splitlines()[:HEAD_LINES]
    words = next((line.removeprefix(RUN).split() for line in lines if line.startswith(RUN)), [])
    if words[:1] == ["torchrun"]:
        words[:1] = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--master-port",
            str(20_000 + os.getpid() % 20_000),
        ]
    return words


def run_options(script: Path) -> list[str]:
    """Return the options of ``perfwrap run`` that a script's head asks for, where its problem needs them."""
    head = script.read_text(encoding="utf-8").splitlines()[:4]
    return next((line.split(":", 1)[1].split() for line in head if line.startswith("# options:")), [])


def profile(script: Path, folder: Path) -> Result:
    """Run one script under perfwrap and read what was found."""
    run = folder / script.stem
    launcher = launcher_of(script) or [sys.executable]
    command = [sys.executable, "-m", "perfwrap", "run", "--out", str(run), *run_options(script), "--"]
    command += [*launcher, str(script)]
    # One compute thread: beside other programs, spinning OpenMP threads make the same work take many times longer.
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables)
    (folder / f"{script.stem}.txt").write_text(ended.stderr + ended.stdout, encoding="utf-8")
    return _result(script, ended, run)


def diagnose_again(script: Path, folder: Path) -> Result:
    """Diagnose a run that was kept anew and read what is found now."""
    run = folder / script.stem
    command = [sys.executable, "-m", "perfwrap", "report", str(run)]
    return _result(script, subprocess.run(command, capture_output=True, text=True), run)


def _result(script: Path, ended: subprocess.CompletedProcess[str], run: Path) -> Result:
    """Return what was found in a script, by a command that should have left a diagnosis in the run's folder."""
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
    """Print which problem was planted and which stood first, then the figures."""
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
    """Print what the rules had predicted in each try.json below a folder, beside what was measured; 1 without any."""
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
    print(f"\npredicted rightly {inside} of {len(rows)}")
    return 0 if rows else 1


def main() -> int:
    """Run the workloads that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only scripts whose names contain one of these")
    parser.add_argument("--keep", type=Path, help="keep run folders and reports in this new folder")
    parser.add_argument(
        "--predictions", type=Path, help="compare predictions with the try.json files below a folder"
    )
    parser.add_argument("--again", type=Path, help="diagnose the runs that were kept in this folder anew")
    arguments = parser.parse_args()
    if arguments.predictions:
        return show_predictions(arguments.predictions)
    scripts = [
        path
        for path in sorted(WORKLOADS.glob("*.py"))
        if (not arguments.words or any(word in path.stem for word in arguments.words))
        and (not arguments.again or (arguments.again / path.stem).is_dir())
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.again or arguments.keep or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        results = []
        for script in scripts:
            results.append((diagnose_again if arguments.again else profile)(script, folder))
            show(results[-1])
        show_table(results)
    return 0 if results and all(result.good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
