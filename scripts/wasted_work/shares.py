"""Compare the share of the loop that a report gives to wasted work with what removing it by hand saves.

    python scripts/wasted_work/shares.py                  all wasteful scripts of workloads/ with a fixed twin
    python scripts/wasted_work/shares.py sort unused      only those whose names contain one of the words
    python scripts/wasted_work/shares.py --rounds 3       each pair 3 times; the medians are used
    python scripts/wasted_work/shares.py --keep DIR       keep the runs in DIR, a folder per round
    python scripts/wasted_work/shares.py --again DIR      run nothing: diagnose the runs kept in DIR again

The share is that of all findings of the planted rule, without duplicates of other rules. The saving is 1 minus the mean
time of a step of the twin over that of the script, in the steady loop, without the recorded steps. Both run under
``perfwrap run --inspect``. The error is the difference, relative to the saving. Run it on a machine without other work.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "accuracy"))

import accuracy  # noqa: E402 - a script beside this one
import savings  # noqa: E402
from labelled import HEALTHY, fixed_source, read_label  # noqa: E402


@dataclass(frozen=True)
class Pair:
    """One script and its twin: medians over the rounds in which the waste was found."""

    name: str
    rule: str
    share: float
    saving: float

    @property
    def error(self) -> float:
        """The error of the share, relative to the saving; a saving below 1 % counts as 1 %."""
        return abs(self.share - self.saving) / max(0.01, self.saving)


def measure(script: Path, folders: list[Path], *, run: bool) -> Pair | None:
    """Return the share and the saving of one script; None if the waste was not found or a run did not train."""
    rule = read_label(script).expected
    shares, found = [], []
    for folder in folders:
        if run:
            folder.mkdir(parents=True, exist_ok=True)
            savings.run_both(script, folder)
        result = accuracy.diagnose_again(script, folder)
        before, after = (
            savings.mean_step_ns(folder / name) for name in (script.stem, f"{script.stem}_fixed")
        )
        share = sum(finding["share"] for finding in result.findings if finding["rule"] == rule)
        if share and before and after:
            shares.append(share)
            found.append(1 - after / before)
    return Pair(script.stem, rule, statistics.median(shares), statistics.median(found)) if shares else None


def scripts(words: list[str]) -> list[Path]:
    """Return the requested wasteful scripts that have a twin."""
    return [
        script
        for script in sorted((HERE / "workloads").glob("*.py"))
        if read_label(script).expected != HEALTHY
        and fixed_source(script.read_text(encoding="utf-8")) is not None
        and (not words or any(word in script.stem for word in words))
    ]


def main() -> int:
    """Run the requested scripts and print the table; 1 if no waste was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only scripts whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=1, help="how often each pair runs (1)")
    parser.add_argument("--json", type=Path, help="write the shares and savings to this file")
    parser.add_argument("--keep", type=Path, help="keep the runs in this new folder")
    parser.add_argument("--again", type=Path, help="diagnose the runs kept in this folder again")
    arguments = parser.parse_args()
    print("| script | rule | share | measured saving | error |\n|---|---|---|---|---|", flush=True)
    pairs = []
    with tempfile.TemporaryDirectory() as temporary:
        kept = (arguments.again or arguments.keep or Path(temporary)).absolute()
        numbers = range(1, arguments.rounds + 1)
        for script in scripts(arguments.words):
            folders = (
                sorted(kept.iterdir()) if arguments.again else [kept / str(number) for number in numbers]
            )
            folders = [each for each in folders if not arguments.again or (each / script.stem).is_dir()]
            if not folders:
                continue
            pair = measure(script, folders, run=arguments.again is None)
            if pair is None:
                print(f"| {script.stem} | {read_label(script).expected} | not found | | |", flush=True)
                continue
            pairs.append(pair)
            cells = f"{pair.share:.1%} | {pair.saving:.1%} | {pair.error:.0%}"
            print(f"| {pair.name} | {pair.rule} | {cells} |", flush=True)
    if pairs:
        print(
            f"\nmedian error {statistics.median(pair.error for pair in pairs):.0%} over {len(pairs)} scripts"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1) + "\n")
    return 0 if pairs else 1


if __name__ == "__main__":
    sys.exit(main())
