"""Compare the savings that reports predict with the measured savings of the fix by hand.

    python scripts/accuracy/savings.py                all workloads with a fix
    python scripts/accuracy/savings.py gc_ loader     only those whose names contain one of the words
    python scripts/accuracy/savings.py --rounds 3     each pair 3 times; the medians are used
    python scripts/accuracy/savings.py --keep DIR     keep the runs in DIR, a folder per round
    python scripts/accuracy/savings.py --again DIR    run nothing: diagnose the runs kept in DIR again
    python scripts/accuracy/savings.py --loaders --rounds 3     the calibration of advice about loaders: an hour on two
                                                                quiet cores

Each script and its fixed twin (see scripts/workloads/README.md) run under the real ``perfwrap run``. The measured ratio
is that of their mean step times in the steady loop, the predicted one that of the finding of the planted problem: of
its best option that changes num_workers, or does not, as the fix does. The error is that of the saving (1 - ratio) at
the middle of the predicted range of the speedup, which reports show. Under the table stand the
calibration figures with their targets: errors, how often the range contains the measured ratio, and how wide it is.
Ratios are of runs one after the other; others who use the machine disturb them, so that the figures count on a quiet
machine.
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
from labelled import WORKLOADS, fixed_source, read_label
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.steps import find_steps
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

WORKERS = re.compile(r"num[-_]workers\W.*\d+")
UNFIXED = re.compile(r"(?m)^ *# fixed:.*$")
"""The lines that a script has only for its fixed twin."""
LOADERS = (
    "data_loader_single_process",
    "too_few_workers",
    "shallow_prefetch",
    "needless_workers",
    "worker_restart",
    "too_many_workers",
    "slow_item",
    "slow_collate",
    "storage_bound_input",
    "worker_lock_contention",
    "worker_imbalance",
    "items_never_change",
)
"""The rules whose advice changes how batches are made."""


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
    """Diagnose the runs of a script and its twin; None if the fix was not advised, or a run did not train."""
    twin = folder / f"{script.stem}_fixed.py"
    planted, fixed = (accuracy.diagnose_again(each, folder) for each in (script, twin))
    if accuracy.FAILED in (planted.verdict, fixed.verdict) or planted.place is None:
        return None
    texts = [path.read_text(encoding="utf-8") for path in (script, twin)]
    option = of_fix(planted.findings[planted.place - 1]["options"], *texts)
    if option is None:
        return None
    low, high = option["saving"].values()
    before, after = mean_step_ns(folder / script.stem), mean_step_ns(folder / twin.stem)
    return Outcome(low, high, after / before) if before and after else None


def of_fix(options: list[dict[str, Any]], before: str, after: str) -> dict[str, Any] | None:
    """Return the best option of those that change the number of workers, or do not, as the fix by hand does.

    None if there is none.
    """
    sets_workers = WORKERS.findall(UNFIXED.sub("", before)) != WORKERS.findall(after)
    return next((option for option in options if ("num_workers" in option["edit"]) is sets_workers), None)


@dataclass(frozen=True)
class Row:
    """The result of one script over its rounds."""

    low: float
    high: float
    measured: float

    @property
    def error(self) -> float:
        """The error of the saving at the middle of the range of the speedup, as a share of the measured saving."""
        middle = 2.0 / (1.0 / max(0.01, self.low) + 1.0 / self.high)
        return abs(middle - self.measured) / max(0.01, 1 - self.measured)

    @property
    def contains(self) -> bool:
        """Whether the range contains the measured ratio, rounded as reports round it."""
        return self.low - ROUNDING <= self.measured <= self.high + ROUNDING

    @property
    def width(self) -> float:
        """The largest over the smallest predicted speedup."""
        return self.high / max(0.01, self.low)


ROUNDING = 0.005
"""Half of the last digit of a step-time ratio."""


def show(name: str, outcomes: list[Outcome | None]) -> Row | None:
    """Print one script's line and return its result."""
    found = [outcome for outcome in outcomes if outcome is not None]
    if not found:
        print(f"| {name} | not advised, or did not train | | | | |", flush=True)
        return None
    low = statistics.median(outcome.low for outcome in found)
    high = statistics.median(outcome.high for outcome in found)
    measured = statistics.median(outcome.measured for outcome in found)
    row = Row(low, high, measured)
    inside = "yes" if row.contains else "no"
    print(
        f"| {name} | {low:.2f} to {high:.2f} | {measured:.2f} | {row.error:.0%} | {inside} | {row.width:.1f}x |",
        flush=True,
    )
    return row


def show_calibration(rows: list[Row]) -> None:
    """Print how good the predictions are, with the targets."""
    errors = sorted(row.error for row in rows)
    inside = sum(row.contains for row in rows)
    print(
        f"\n{len(rows)} workloads: median error of the saving {statistics.median(errors):.0%} (target 10 %), 90th "
        f"percentile {errors[round(0.9 * (len(errors) - 1))]:.0%} (25 %), measured in the range {inside} of "
        f"{len(rows)} ({inside / len(rows):.0%}, target 80 %), range of the speedup "
        f"{statistics.median(row.width for row in rows):.2f}x wide in the median (1.5x)"
    )


def measure(
    words: list[str], kept: Path, rounds: int, *, run: bool, loaders: bool = False
) -> dict[str, Row | None]:
    """Print a line for each requested script, and return the results."""
    rows = {}
    print(
        "| workload | predicted ratio | measured ratio | error of the saving | in the range | width of the range |"
    )
    print("|---|---|---|---|---|---|")
    for script in sorted(WORKLOADS.glob("*.py")):
        wanted = not words or any(word in script.stem for word in words)
        if not wanted or fixed_source(script.read_text(encoding="utf-8")) is None:
            continue
        if loaders and read_label(script).expected not in LOADERS:
            continue
        folders = [kept / str(number) for number in range(1, rounds + 1)] if run else sorted(kept.iterdir())
        for folder in folders if run else ():
            folder.mkdir(parents=True, exist_ok=True)
            run_both(script, folder)
        outcomes = [compare(script, folder) for folder in folders if (folder / script.stem).is_dir()]
        if outcomes:
            rows[script.stem] = show(script.stem, outcomes)
    return rows


def main() -> int:
    """Run the requested scripts and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only scripts whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=1, help="how often each pair runs (1)")
    parser.add_argument(
        "--loaders", action="store_true", help="only advice that the simulation of loaders predicts"
    )
    parser.add_argument("--json", type=Path, help="write the errors to this file")
    parser.add_argument("--keep", type=Path, help="keep the runs in this new folder")
    parser.add_argument("--again", type=Path, help="diagnose the runs kept in this folder again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        kept = (arguments.again or arguments.keep or Path(temporary)).absolute()
        rows = measure(
            arguments.words,
            kept,
            arguments.rounds,
            run=arguments.again is None,
            loaders=arguments.loaders,
        )
    known = [row for row in rows.values() if row is not None]
    if known:
        show_calibration(known)
    if arguments.json:
        errors = {name: None if row is None else row.error for name, row in rows.items()}
        arguments.json.write_text(json.dumps(errors, indent=1) + "\n")
    return 0 if known else 1


if __name__ == "__main__":
    sys.exit(main())
