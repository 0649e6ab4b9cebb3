"""Plant a slow rank in jobs of several sizes, and hold what perfwrap says of it against what was planted.

    python scripts/rank_causes.py                    2, 4 and 8 ranks
    python scripts/rank_causes.py --ranks 2 --keep DIR

The last rank is late: its data are slow, it computes more, it collects garbage in each step, or (2 ranks only: with
more there are no cores to spare on a small machine) it shares a core with another program. Prints a table: which rank
and which cause the finding of ``straggler_rank`` names, and at which line. Exit code 1 where a rank or its cause is not
named. Needs perfwrap and PyTorch here.
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
"""What the finding must say of each cause."""


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


def told(document: dict[str, Any], rank: int, cause: str) -> tuple[bool, str]:
    """Say whether the rank and the cause are named, and what was said."""
    found = [finding for finding in document["findings"] if finding["rule"] == "straggler_rank"]
    if not found:
        return False, "nothing"
    sentence = found[0]["evidence"][0]
    return f"wait for rank {rank} " in sentence and SAYS[cause] in sentence, sentence


def main() -> int:
    """Run all jobs and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--keep", type=Path, help="keep the run folders there")
    arguments = parser.parse_args()
    wrong = 0
    print("| ranks | planted in the last one | named | what was said |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for ranks in arguments.ranks:
            for cause in SAYS if ranks == 2 else list(SAYS)[:-1]:
                out = (arguments.keep or Path(name)) / f"{cause}-{ranks}"
                is_named, said = told(record(cause, ranks, out), ranks - 1, cause)
                wrong += not is_named
                print(f"| {ranks} | {cause} | {'yes' if is_named else 'no'} | {said} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
