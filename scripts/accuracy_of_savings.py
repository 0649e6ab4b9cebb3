"""Hold the savings that reports predict against those that mending the script by hand brings.

    python scripts/accuracy_of_savings.py                all workloads that say how they are mended
    python scripts/accuracy_of_savings.py gc_ loader     those whose names contain one of the words
    python scripts/accuracy_of_savings.py --rounds 3     each pair so often; medians count
    python scripts/accuracy_of_savings.py --keep DIR     keep the runs in DIR, a folder per round
    python scripts/accuracy_of_savings.py --again DIR    run nothing: diagnose what was kept in DIR anew

Each script runs under the real ``perfwrap run`` as it is and as its mended twin (see scripts/workloads/README.md). The
measured ratio is that of their mean step times in the steady loop, the predicted one what the finding of the planted
problem says. The error is that of the saving (1 - ratio) at the middle of the predicted range.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import accuracy
from perfwrap.measures.evidence import Evidence
from perfwrap.run_folder import RunFolder
from perfwrap.sources import journal

FIXED = re.compile(r"^( *)# fixed: (.*)$")


@dataclass(frozen=True)
class Outcome:
    """What one round of one script gave: the ratios of step times, mended over planted."""

    low: float
    high: float
    measured: float


def fixed_source(text: str) -> str | None:
    """Return a script with each line that a ``# fixed:`` comment follows as that comment has it; None without any."""
    lines: list[str] = []
    found = False
    for line in text.split("\n"):
        fix = FIXED.match(line)
        if fix:
            lines[-1] = fix[1] + fix[2]
            found = True
        else:
            lines.append(line)
    return "\n".join(lines) if found else None


def mean_step_ns(run: Path) -> float | None:
    """Return the mean time of a step in the steady loop of the trainer that stands for a run, validation included.

    None where there is no such loop.
    """
    evidence = Evidence(journal.read(RunFolder(run)))
    if evidence.main is None or not evidence.steps(evidence.main).steady:
        return None
    return evidence.account(evidence.main).total_ns / evidence.steps(evidence.main).steady


def run_both(script: Path, folder: Path) -> None:
    """Run a script and its mended twin."""
    accuracy.profile(script, folder)
    twin = folder / f"{script.stem}_fixed.py"
    twin.write_text(fixed_source(script.read_text(encoding="utf-8")) or "", encoding="utf-8")
    accuracy.profile(twin, folder)


def compare(script: Path, folder: Path) -> Outcome | None:
    """Diagnose the runs of a script and its twin; None where nothing was found, or did not train."""
    twin = folder / f"{script.stem}_fixed.py"
    planted, mended = (accuracy.diagnose_again(each, folder) for each in (script, twin))
    if accuracy.FAILED in (planted.verdict, mended.verdict) or planted.place is None:
        return None
    low, high = planted.findings[planted.place - 1]["saving"].values()
    before, after = mean_step_ns(folder / script.stem), mean_step_ns(folder / twin.stem)
    return Outcome(low, high, after / before) if before and after else None


def show(name: str, outcomes: list[Outcome | None]) -> float | None:
    """Print one script's line and return the error of its predicted saving."""
    found = [outcome for outcome in outcomes if outcome is not None]
    if not found:
        print(f"| {name} | not found, or did not train | | |", flush=True)
        return None
    low = statistics.median(outcome.low for outcome in found)
    high = statistics.median(outcome.high for outcome in found)
    measured = statistics.median(outcome.measured for outcome in found)
    error = abs((low + high) / 2 - measured) / max(0.01, 1 - measured)
    inside = "inside" if low - 0.02 <= measured <= high + 0.02 else "outside"
    print(f"| {name} | {low:.2f} to {high:.2f} | {measured:.2f} ({inside}) | {error:.0%} |", flush=True)
    return error


def measure(words: list[str], kept: Path, rounds: int, *, run: bool) -> dict[str, float | None]:
    """Print a line for each script that was asked for, and return the errors."""
    errors = {}
    print("| workload | predicted ratio | measured ratio | error of the saving |\n|---|---|---|---|")
    for script in sorted(accuracy.WORKLOADS.glob("*.py")):
        wanted = not words or any(word in script.stem for word in words)
        if not wanted or fixed_source(script.read_text(encoding="utf-8")) is None:
            continue
        folders = [kept / str(number) for number in range(1, rounds + 1)] if run else sorted(kept.iterdir())
        for folder in folders if run else ():
            folder.mkdir(parents=True, exist_ok=True)
            run_both(script, folder)
        outcomes = [compare(script, folder) for folder in folders if (folder / script.stem).is_dir()]
        if outcomes:
            errors[script.stem] = show(script.stem, outcomes)
    return errors


def main() -> int:
    """Run the scripts that were asked for and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only scripts whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=1, help="how often each pair runs (1)")
    parser.add_argument("--json", type=Path, help="write the errors to this file")
    parser.add_argument("--keep", type=Path, help="keep the runs in this new folder")
    parser.add_argument("--again", type=Path, help="diagnose the runs that were kept in this folder anew")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        kept = (arguments.again or arguments.keep or Path(temporary)).absolute()
        errors = measure(arguments.words, kept, arguments.rounds, run=arguments.again is None)
    known = [error for error in errors.values() if error is not None]
    if known:
        print(f"\nmedian error {statistics.median(known):.0%} over {len(known)} workloads")
    if arguments.json:
        arguments.json.write_text(json.dumps(errors, indent=1) + "\n")
    return 0 if known else 1


if __name__ == "__main__":
    sys.exit(main())
