"""Compare the savings that reports predict with the measured savings of the fix by hand.

    python scripts/accuracy/savings.py                all workloads with a fix
    python scripts/accuracy/savings.py gc_ loader     only those whose names contain one of the words
    python scripts/accuracy/savings.py --rounds 3     each pair 3 times; the medians are used
    python scripts/accuracy/savings.py --keep DIR     keep the runs in DIR, a folder per round
    python scripts/accuracy/savings.py --again DIR    run nothing: diagnose the runs kept in DIR again

Each script and its fixed twin (see scripts/workloads/README.md) run under the real ``perfwrap run``. The measured ratio
is that of their mean step times in the steady loop, the predicted one that of the finding of the planted problem: of
its best option, or where the fix changes num_workers, of the best that does so too. The error is that of the saving
(1 - ratio) at the middle of the predicted range.
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
from typing import Any

import accuracy
from labelled import WORKLOADS, fixed_source
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.steps import find_steps
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

WORKERS = re.compile(r"num_workers=\d+")
UNFIXED = re.compile(r"(?m)^ *# fixed:.*$")
"""The lines that a script has only for its fixed twin."""


@dataclass(frozen=True)
class Outcome:
    """The result of one round of one script: the ratios of step times, fixed over planted."""

    low: float
    high: float
    measured: float


def mean_step_ns(run: Path) -> float | None:
    """Return the mean time of a step in the steady loop of a run's main trainer, validation included.

    None if there is no such loop.
    """
    evidence = Evidence(run_journals.read(RunFolder(run)))
    main = evidence.get(find_main_trainer)
    steady = 0 if main is None else evidence.get(find_steps, main).steady
    return evidence.get(find_account, main).total_ns / steady if main is not None and steady else None


def run_both(script: Path, folder: Path) -> None:
    """Run a script and its fixed twin."""
    accuracy.profile(script, folder)
    twin = folder / f"{script.stem}_fixed.py"
    twin.write_text(fixed_source(script.read_text(encoding="utf-8")) or "", encoding="utf-8")
    accuracy.profile(twin, folder)


def compare(script: Path, folder: Path) -> Outcome | None:
    """Diagnose the runs of a script and its twin; None if the problem was not found, or a run did not train."""
    twin = folder / f"{script.stem}_fixed.py"
    planted, fixed = (accuracy.diagnose_again(each, folder) for each in (script, twin))
    if accuracy.FAILED in (planted.verdict, fixed.verdict) or planted.place is None:
        return None
    texts = [path.read_text(encoding="utf-8") for path in (script, twin)]
    option = of_fix(planted.findings[planted.place - 1]["options"], *texts)
    low, high = option["saving"].values()
    before, after = mean_step_ns(folder / script.stem), mean_step_ns(folder / twin.stem)
    return Outcome(low, high, after / before) if before and after else None


def of_fix(options: list[dict[str, Any]], before: str, after: str) -> dict[str, Any]:
    """Return the best option of those that change the number of workers, or do not, as the fix by hand does."""
    sets_workers = WORKERS.findall(UNFIXED.sub("", before)) != WORKERS.findall(after)
    alike = [option for option in options if ("num_workers" in option["edit"]) is sets_workers]
    return next(iter(alike), options[0])


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
    """Print a line for each requested script, and return the errors."""
    errors = {}
    print("| workload | predicted ratio | measured ratio | error of the saving |\n|---|---|---|---|")
    for script in sorted(WORKLOADS.glob("*.py")):
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
    """Run the requested scripts and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only scripts whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=1, help="how often each pair runs (1)")
    parser.add_argument("--json", type=Path, help="write the errors to this file")
    parser.add_argument("--keep", type=Path, help="keep the runs in this new folder")
    parser.add_argument("--again", type=Path, help="diagnose the runs kept in this folder again")
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
