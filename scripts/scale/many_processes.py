"""Run a job of 64 training processes at once, bare and under perfwrap, and check the recording.

    python scripts/scale/many_processes.py                   64 ranks that one process forks; PyTorch is loaded once
    python scripts/scale/many_processes.py --by torchrun     each rank loads PyTorch; minutes on two cores
    python scripts/scale/many_processes.py --by launchers    each under its own perfwrap, as srun starts them

Required: the same exit code, and the same weights in every rank, bit for bit, as without perfwrap; the report has every
rank with every step, and nothing was lost. Prints a table; exit code 1 if a requirement fails. Needs perfwrap and
PyTorch in this environment. The times are those of one run each, so they do not show the cost of perfwrap (see
cost/overhead.py).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOP = Path(__file__).resolve().with_name("many_processes_loop.py")
PYTHON = [sys.executable, "-m"]
PATIENCE_SECONDS = 1800
MIB = 1 << 20


@dataclass(frozen=True)
class Ended:
    """How a job ended."""

    codes: tuple[int, ...]
    printed: tuple[str, ...]
    seconds: float


def run(options: argparse.Namespace, record: list[str], log: Path) -> Ended:
    """Run the job, under perfwrap if ``record`` has its command, and wait for its end."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **address}
    begin = time.monotonic()
    with log.open("w+b") as out, log.with_suffix(".err").open("wb") as errors:
        running = [
            subprocess.Popen([*record, *words], stdout=out, stderr=errors, env={**variables, **place})
            for words, place in _commands(options, address["MASTER_PORT"])
        ]
        codes = tuple(process.wait(PATIENCE_SECONDS) for process in running)
    return Ended(codes, tuple(sorted(log.read_text().splitlines())), time.monotonic() - begin)


def _commands(options: argparse.Namespace, port: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the commands that start the job, each with the variables of its rank."""
    size = str(options.ranks)
    loop = [str(LOOP), size, str(options.steps)]
    if options.by == "forks":
        yield [sys.executable, *loop], {}
    elif options.by == "torchrun":
        torchrun = ["torch.distributed.run", "--nproc-per-node", size, "--master-port", port]
        yield [*PYTHON, *torchrun, *loop], {}
    else:
        for rank in map(str, range(options.ranks)):
            yield [sys.executable, *loop], {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def problems(
    options: argparse.Namespace, bare: Ended, recorded: Ended, document: dict[str, Any]
) -> Iterator[str]:
    """Yield a sentence for each requirement that fails."""
    if set(bare.codes) != {0} or len(bare.printed) != options.ranks:
        yield f"the bare job failed: exit codes {Counter(bare.codes)}, {len(bare.printed)} ranks printed"
    if recorded.codes != bare.codes:
        yield f"exit codes {Counter(recorded.codes)} instead of {Counter(bare.codes)}"
    if recorded.printed != bare.printed:
        yield "the ranks printed something else than without perfwrap"
    ranks = [rank["rank"] for rank in document["ranks"]]
    if ranks != list(range(options.ranks)):
        yield f"the report has the ranks {ranks}"
    steps = Counter(rank["steps"] for rank in document["ranks"])
    if set(steps) != {options.steps}:
        yield f"of {options.steps} steps the ranks have (steps: ranks) {dict(steps)}"
    yield from (f"warning: {warning}" for warning in document["warnings"] if "lost" in warning)


def main() -> int:
    """Run the job twice, report on it, print the table."""
    options = _options()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        folder = options.keep or place / "run"
        bare = run(options, [], place / "bare")
        words = [*PYTHON, "perfwrap", "run", "--no-report", "--out", str(folder), "--"]
        recorded = run(options, words, place / "recorded")
        begin = time.monotonic()
        report = [*PYTHON, "perfwrap", "report", str(folder), "--format", "json"]
        reported = subprocess.run(report, capture_output=True, text=True, check=True)
        seconds = time.monotonic() - begin
        document = json.loads(reported.stdout)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        wrong = list(problems(options, bare, recorded, document))
    print("| started by | ranks | steps of each | bare | recorded | report | run folder |\n|" + "---|" * 7)
    print(
        f"| {options.by} | {len(document['ranks'])} | {options.steps} | {bare.seconds:.0f} s | "
        f"{recorded.seconds:.0f} s | {seconds:.0f} s | {size / MIB:.1f} MiB |"
    )
    print("\n".join(wrong) or "All ranks and steps are recorded, and the job behaved as without perfwrap.")
    return bool(wrong)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--by", choices=("forks", "torchrun", "launchers"), default="forks")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--keep", type=Path, help="keep the run folder in this folder")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
