"""Inject faults into programs under the real ``perfwrap run``, and report whether program and recording are unharmed.

    python scripts/faults/faults.py                             each fault three times, the long ones in short form
    python scripts/faults/faults.py --rounds 500 --long         the long form: hours
    python scripts/faults/faults.py --only kill_worker --json   only those whose names contain the word; one JSON object

After each fault the program must have printed and done the same as without perfwrap (or have died of the fault), with
the documented exit code; `perfwrap report` must read the run; and the steps that the program had counted must be in its
journal. Times and sizes are random: ``--seed``. docs/faults.md describes the faults, with figures.
The exit code is 1 if anything was harmed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kills
import length
import limits
from trial import Skipped, Trial

REPEATED: tuple[Callable[[Trial], None], ...] = (
    kills.kill_program,
    kills.kill_launcher,
    kills.kill_monitors,
    kills.kill_worker,
    kills.suspend,
    limits.full_disk,
    limits.quota,
    limits.no_inodes,
    limits.read_only,
    limits.deleted,
    limits.file_size,
    limits.few_descriptors,
    limits.little_memory,
    limits.clock_is_set,
)
ONCE: tuple[Callable[[Trial], None], ...] = (length.many_children, length.many_events, length.long_watch)
MAX_SHOWN = 5


@dataclass
class Result:
    """The results of all rounds of one fault."""

    name: str
    what: str
    rounds: int = 0
    problems: list[str] = field(default_factory=list)
    skipped: str = ""
    figures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """One word or two."""
        if self.problems:
            return f"{len(self.problems)} harmed"
        return f"skipped: {self.skipped}" if self.skipped else "unharmed"


def torment(
    fault: Callable[[Trial], None], rounds: int, options: argparse.Namespace, known: dict[Any, Any]
) -> Result:
    """Inject the fault this many times."""
    result = Result(fault.__name__, (fault.__doc__ or "").splitlines()[0])
    begin = time.monotonic()
    for number in range(rounds):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            chance = random.Random(f"{options.seed} {fault.__name__} {number}")
            trial = Trial(Path(place), chance, options.long, options.steps, known=known)
            try:
                fault(trial)
            except Skipped as why:
                result.skipped = str(why)
                break
        result.rounds += 1
        result.figures |= trial.figures
        result.problems += [f"round {number}: {problem}" for problem in trial.problems]
    result.seconds = time.monotonic() - begin
    return result


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep this many cores busy during the block."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def table(results: list[Result]) -> str:
    """Return the results of all faults as text."""
    lines = ["| fault | rounds | program and record |", "|---|---|---|"]
    lines += [f"| {result.what} | {result.rounds} | {result.verdict} |" for result in results]
    for result in results:
        lines += [f"{result.name}: {key}: {value}" for key, value in result.figures.items()]
        counted = Counter(result.problems)
        lines += [f"{result.name}: {problem}" for problem in list(counted)[:MAX_SHOWN]]
    return "\n".join(lines)


def main() -> None:
    """Inject the faults and print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each fault is injected; long ones once"
    )
    parser.add_argument("--only", action="append", default=[], help="part of a fault's name")
    parser.add_argument("--long", action="store_true", help="10,000 children, 100 million events")
    parser.add_argument("--steps", type=int, default=400, help="how many steps the program makes")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--load", type=int, default=0, help="how many other processes keep cores busy")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    known: dict[Any, Any] = {}
    results = []
    with load(options.load):
        for fault in (*REPEATED, *ONCE):
            if not options.only or any(word in fault.__name__ for word in options.only):
                rounds = options.rounds if fault in REPEATED else 1
                results.append(torment(fault, rounds, options, known))
                print(f"{results[-1].name}: {results[-1].verdict}", file=sys.stderr, flush=True)
    print(json.dumps([vars(result) for result in results], indent=1) if options.json else table(results))
    sys.exit(any(result.problems for result in results))


if __name__ == "__main__":
    main()
