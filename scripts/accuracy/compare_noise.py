"""Measure how often ``perfwrap compare`` reports a difference that does not exist, and which ones it misses.

    python scripts/accuracy/compare_noise.py --record DIR      record runs into DIR, alternating equal and slower ones
    python scripts/accuracy/compare_noise.py DIR               judge the runs in DIR
    python scripts/accuracy/compare_noise.py --store FILE DIR  keep the step times of the equal runs for the tests

Pairs of single runs: two successive equal runs; forty pairs that are sampled by blocks from the two halves of one run,
so that they include its drift; an equal run and a slower one. Pairs of several alternating runs: three equal ones
against three equal ones, out of twelve successive runs; three equal ones against three slower ones. Each pair is judged
with the default settings, which refuse runs of a busy machine, and again with ``--allow load``, which shows the effect
of that refusal and is not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from perfwrap.comparison.comparing import compare

LOOP = Path(__file__).resolve().with_name("compare_noise_loop.py")
KINDS = {"equal": 0.0, "slower": 0.8, "much_slower": 2.5}
"""Milliseconds of work added to each step."""
DRAWN_PAIRS = 40
MAX_FALSE_ALARMS = 0.05

TOGETHER = 3
"""Runs of a side, if a side has several."""

Document = dict[str, Any]
Side = list[Document]
Pair = tuple[Side, Side]


def record(folder: Path, rounds: int) -> None:
    """Record one run of each kind, and another equal run, in each round."""
    for number in range(rounds):
        for turn, kind in enumerate(("equal", "slower", "equal", "much_slower")):
            out = folder / f"{kind}-{number:02}-{turn}"
            command = [sys.executable, str(LOOP), "--extra-ms", str(KINDS[kind])]
            perfwrap = [sys.executable, "-m", "perfwrap", "run", "--out", str(out), "--", *command]
            subprocess.run(perfwrap, check=True, stderr=subprocess.DEVNULL)


def documents(folder: Path, kind: str) -> list[Document]:
    """Return the diagnoses of one kind of runs, in the order in which they were recorded."""
    found = [json.loads(path.read_text()) for path in folder.glob(f"{kind}-*/diagnosis.json")]
    return sorted(found, key=lambda document: document["run"]["start_wall_ns"] or 0)


def drawn(originals: Sequence[Document], pairs: int = DRAWN_PAIRS) -> Iterable[Pair]:
    """Yield pairs of resampled runs: blocks of the first half of a run, and blocks of its second half."""
    generator = np.random.default_rng(20260101)
    for number in range(pairs):
        original = originals[number % len(originals)]
        halves = np.array_split(np.array(original["steps"]["stretches"]["mean_ns"]), 2)
        first, second = (_resampled(half, 2 * half.size, generator) for half in halves)
        yield [_with_times(original, first)], [_with_times(original, second)]


def single(before: Sequence[Document], after: Sequence[Document]) -> list[Pair]:
    """Return the pairs of one run each."""
    return [([one], [other]) for one, other in zip(before, after, strict=False)]


def in_turn(equal: Sequence[Document]) -> Iterable[Pair]:
    """Yield pairs of several equal runs, drawn from runs that follow each other; a run may be in more than one pair."""
    generator = np.random.default_rng(20260102)
    around = min(len(equal), 4 * TOGETHER)
    for number in range(DRAWN_PAIRS if len(equal) >= 2 * TOGETHER else 0):
        start = number * (len(equal) - around) // max(1, DRAWN_PAIRS - 1)
        chosen = generator.permutation(around)[: 2 * TOGETHER]
        runs = [equal[start + place] for place in chosen]
        yield runs[:TOGETHER], runs[TOGETHER:]


def together(before: Sequence[Document], after: Sequence[Document]) -> list[Pair]:
    """Return the pairs of several runs of each kind, in the order of recording."""
    count = min(len(before), len(after)) // TOGETHER
    places = [slice(number * TOGETHER, (number + 1) * TOGETHER) for number in range(count)]
    return [(list(before[place]), list(after[place])) for place in places]


def _resampled(values: np.ndarray, size: int, generator: np.random.Generator) -> list[int]:
    """Return this many values, sampled in blocks."""
    length = max(1, round(values.size**0.5))
    starts = generator.integers(0, values.size, (-(-size // length), 1))
    return [int(value) for value in values[((starts + np.arange(length)) % values.size).ravel()][:size]]


def _with_times(document: Document, mean_ns: list[int]) -> Document:
    """Return the document with other step times."""
    blocks = {"steps": document["steps"]["stretches"]["steps"], "mean_ns": mean_ns}
    return {**document, "steps": {**document["steps"], "stretches": blocks}}


def outcomes(pairs: Iterable[Pair], allow: tuple[str, ...] = ("command",)) -> Counter[str]:
    """Count the results of comparisons."""
    named = ([[(name, one) for one in side] for name, side in zip("ab", pair, strict=True)] for pair in pairs)
    return Counter(compare(before, after, allow).outcome for before, after in named)


def false_alarms(counted: Counter[str]) -> float:
    """Return the share of the pairs with a reported difference."""
    return sum(counted[outcome] for outcome in ("slower", "faster", "mixed")) / max(1, counted.total())


def main() -> int:
    """Record, or judge and print; exit code 1 if there are too many false alarms."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--store", type=Path, help="write the step times of the equal runs to this file")
    arguments = parser.parse_args()
    if arguments.record:
        record(arguments.folder, arguments.rounds)
    equal = documents(arguments.folder, "equal")
    if arguments.store:
        kept = [document["steps"]["stretches"] | {"machine": document["machine"]} for document in equal]
        arguments.store.write_text(json.dumps(kept) + "\n")
    if len(equal) < 2:
        parser.error(f"{arguments.folder} has fewer than two equal runs; make some with --record")
    worst = 0.0
    slower, much_slower = (documents(arguments.folder, kind) for kind in ("slower", "much_slower"))
    several = f"{TOGETHER} and {TOGETHER} "
    pairs = {
        "equal runs": single(equal, equal[1:]),
        "drawn pairs": list(drawn(equal)),
        "8 % slower": single(equal[::2], slower),
        "25 % slower": single(equal[1::2], much_slower),
        several + "equal runs": list(in_turn(equal)),
        several + "8 % slower": together(equal[::2], slower),
        several + "25 % slower": together(equal[1::2], much_slower),
    }
    for name, some in pairs.items():
        for allow in ((), ("load",)):
            counted = outcomes(some, ("command", *allow))
            print(f"{name:<20}{'--allow load' if allow else '':<14}{len(some):>4} pairs: {dict(counted)}")
            if "slower" not in name and not allow:
                worst = max(worst, false_alarms(counted))
    print(f"false alarms at most {worst:.1%}; {MAX_FALSE_ALARMS:.0%} are the limit")
    return 0 if worst <= MAX_FALSE_ALARMS else 1


if __name__ == "__main__":
    sys.exit(main())
