"""Plant a slow rank in jobs of several sizes, and compare perfwrap's finding with what was planted.

    python scripts/accuracy/rank_causes.py                    2, 4 and 8 ranks
    python scripts/accuracy/rank_causes.py --ranks 2 --keep DIR

The last rank is late: its data are slow, it computes more, it collects garbage in each step, or it shares a core with
another program (only with 2 ranks: with more, a small machine has no free core). Prints a table: the rank, the cause
and the line that the finding of ``straggler_rank`` names. Exit code 1 if a rank or its cause is not named. Needs
perfwrap and PyTorch in this environment.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LOOP = Path(__file__).resolve().with_name("rank_causes_loop.py")
SAYS = {
    "data": "waiting for batches",
    "compute": "the forward pass",
    "garbage": "garbage collection",
    "pinned": "it may use core",
}
"""The words of the finding for each cause."""


def record(cause: str, ranks: int, out: Path) -> dict[str, Any]:
    """Run one job and return its diagnosis."""
    python = [sys.executable, "-m"]
    torchrun = [
        *python,
        "torch.distributed.run",
        "--nproc-per-node",
        str(ranks),
        str(LOOP),
        cause,
        str(ranks - 1),
    ]
    run = [*python, "perfwrap", "run", "--out", str(out), "--", *torchrun]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(run, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, timeout=600, **quiet)
    return dict(json.loads((out / "diagnosis.json").read_text(encoding="utf-8")))


def judge(document: dict[str, Any], rank: int, cause: str) -> tuple[bool, str]:
    """Return whether the rank and the cause are named, and the sentence."""
    found = [finding for finding in document["findings"] if finding["rule"] == "straggler_rank"]
    if not found:
        return False, "nothing"
    sentence = found[0]["evidence"][0]
    return f"wait for rank {rank} " in sentence and SAYS[cause] in sentence, sentence


def main() -> int:
    """Run all jobs and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--keep", type=Path, help="keep the run folders in this folder")
    arguments = parser.parse_args()
    wrong = 0
    print("| ranks | planted in the last one | named | sentence |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for ranks in arguments.ranks:
            for cause in SAYS if ranks == 2 else list(SAYS)[:-1]:
                out = (arguments.keep or Path(name)) / f"{cause}-{ranks}"
                is_named, said = judge(record(cause, ranks, out), ranks - 1, cause)
                wrong += not is_named
                print(f"| {ranks} | {cause} | {'yes' if is_named else 'no'} | {said} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
