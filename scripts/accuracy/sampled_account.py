"""Compare the account of runs with py-spy's samples of the same runs, in detailed steps and in those only counted.

    python scripts/accuracy/sampled_account.py RUN...

py-spy looks from outside, at the same rate all the time, and knows nothing of the recorder's pauses. So in a long run,
most of whose steps are not recorded in detail, its samples show whether the account is right. Prints for each run the
share of each part of the training loop in the account and in the samples. Exit code 1 if a difference, marked with a
star, exceeds MAX_DIFFERENCE plus twice the standard error of the samples.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perfwrap.analysis.run_reader import read_timeline
from perfwrap.measures.account.sampled_parts import SAMPLED, sampled_parts
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.run_folder import RunFolder

MAX_DIFFERENCE = 0.03
"""The largest accepted difference between two shares of the loop."""


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    agreed = [_agrees(path) for path in parser.parse_args().runs]
    return int(not all(agreed))


def _agrees(path: Path) -> bool:
    """Print a run's two accounts; return whether they agree."""
    evidence = Evidence(read_timeline(RunFolder(path)))
    trainer = evidence.get(find_main_trainer)
    print(path)
    agree = True
    for estimated, title in ((False, "in detail"), (True, "counted")):
        found = trainer and sampled_parts(evidence, trainer, estimated)
        if not found:
            continue
        cells = []
        for part in SAMPLED:
            recorded, sampled = found.shares[part]
            apart = abs(recorded - sampled) > MAX_DIFFERENCE + 2 * found.error(part)
            agree &= not apart
            cells.append(f"{part} {recorded:4.0%} / {sampled:4.0%}{'*' if apart else ' '}")
        print(f"  {title:9} {found.ns / 1e9:5.0f} s, {found.samples:5} samples:  " + "  ".join(cells))
    return agree


if __name__ == "__main__":
    sys.exit(main())
