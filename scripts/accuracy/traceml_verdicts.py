"""Compare the verdict of TraceML (``traceml-ai``) on the labelled workloads with their labels.

    python scripts/accuracy/traceml_verdicts.py --python ENV/bin/python      all of scripts/workloads
    python scripts/accuracy/traceml_verdicts.py --python ... gc_ healthy     only those whose names contain one of these
    python scripts/accuracy/traceml_verdicts.py --python ... --keep DIR      keep edited scripts, output and summaries
    python scripts/accuracy/traceml_verdicts.py --python ... --perfwrap FILE next to the output of accuracy.py
    python scripts/accuracy/traceml_verdicts.py --edits DIR                  only write the edited scripts

ENV is an environment with traceml-ai and PyTorch. Each script is edited as TraceML's documentation asks (see
traceml_edits.py) and run by ``traceml run``; its verdict is read from ``final_summary.json`` and ``.txt``.

Limits of the comparison: the labels are the names of perfwrap's rules, which favours perfwrap. TraceML reports kinds of
problems and no lines, so only the kind must be correct (``RIGHT`` below); for perfwrap, the rule must be correct. A
label for which TraceML has no diagnosis is counted separately and is never a miss. A healthy script is correct if
TraceML reports nothing critical that the script's label does not allow.

Prints a line per script: ok (the right kind is the verdict), 2nd (it is reported, but is not the verdict), BAD, or --
(TraceML has no such diagnosis). The exit code is 1 if a script could not be run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelled import HEALTHY, Label, read_label, workloads
from traceml_edits import NOT_EDITED, edited, ranks_of

LIMIT_S = 900
"""TraceML itself may need 300 s at the end."""
NO_VERDICT = "INSUFFICIENT_STEP_TIME_DATA"

INPUT = frozenset({"INPUT_BOUND"})
RESIDUAL = frozenset({"RESIDUAL_HEAVY"})
COMPUTE = frozenset({"COMPUTE_BOUND"})
STRAGGLER = frozenset({"STRAGGLER", "INPUT_STRAGGLER", "COMPUTE_STRAGGLER", "H2D_STRAGGLER"})
NO_DIAGNOSIS: frozenset[str] = frozenset()
RIGHT: dict[str, frozenset[str]] = {
    **dict.fromkeys(("data_loader_single_process", "data_loader_wait", "first_batch_latency"), INPUT),
    **dict.fromkeys(("first_epoch_slower", "item_time_spread", "shallow_prefetch", "slow_collate"), INPUT),
    **dict.fromkeys(("slow_item", "storage_bound_input", "too_few_workers", "too_many_workers"), INPUT),
    **dict.fromkeys(("items_never_change", "needless_workers", "worker_lock_contention"), INPUT),
    **dict.fromkeys(("worker_imbalance", "worker_restart"), INPUT),
    # "It can include validation, checkpointing, logging, framework orchestration, CPU stalls" (its DIAGNOSIS.md).
    **dict.fromkeys(
        ("checkpoint_stall", "evaluation_with_grad", "gc_pause", "gradient_norm_per_step"), RESIDUAL
    ),
    **dict.fromkeys(
        (
            "distribution_checks",
            "evaluation_each_step",
            "host_sync_in_step",
            "logging_overhead",
            "python_overhead",
        )
        + ("slow_steps", "slowing_steps"),
        RESIDUAL,
    ),
    **dict.fromkeys(("program_profiler", "validation_share", "zero_grad_memset"), RESIDUAL),
    # It names the largest of forward, backward and optimizer; each of these counts as right.
    **dict.fromkeys(
        ("dense_embedding", "double_precision", "half_precision_on_cpu", "loop_in_model", "phase_balance")
        + ("activation_checkpointing", "unused_gradients"),
        COMPUTE,
    ),
    **dict.fromkeys(("padded_batches", "repeated_backward", "slow_optimizer"), COMPUTE),
    "straggler_rank": STRAGGLER,
    # Its memory creep is that of GPU memory, and none of its diagnoses is of communication.
    **dict.fromkeys(
        ("buffer_broadcast", "synchronised_accumulation", "unused_parameter_search"), NO_DIAGNOSIS
    ),
    **dict.fromkeys(("debug_mode_enabled", "recompilation", "thread_oversubscription"), NO_DIAGNOSIS),
    **dict.fromkeys(("host_memory_growth", "non_finite_loss", "skipped_steps"), NO_DIAGNOSIS),
    **dict.fromkeys(("rank_restart", "slow_start"), NO_DIAGNOSIS),
}
"""TraceML's diagnoses that are right for a label; in doubt, the more generous reading."""


@dataclass(frozen=True)
class Judged:
    """TraceML's result for one script: the kinds of its findings, the verdict first, and which are critical."""

    name: str
    label: Label
    kinds: tuple[str, ...]
    critical: frozenset[str]
    verdict: str

    @property
    def healthy(self) -> bool:
        """Whether no problem was planted."""
        return self.label.expected == HEALTHY

    @property
    def expressible(self) -> bool:
        """Whether a problem was planted for which TraceML has a diagnosis."""
        return not self.healthy and bool(RIGHT[self.label.expected])

    @property
    def place(self) -> int | None:
        """The place of the first finding of a right kind, 1 for the verdict; None if there is none."""
        right = RIGHT[self.label.expected]
        return next((place for place, kind in enumerate(self.kinds, 1) if kind in right), None)

    @property
    def alarms(self) -> frozenset[str]:
        """Critical findings that a healthy script's label does not allow."""
        return self.critical.difference(*(RIGHT[label] for label in self.label.also))

    @property
    def mark(self) -> str:
        """Whether the verdict is right, in one word."""
        if self.healthy:
            return "BAD" if self.alarms else "ok"
        if not self.expressible:
            return "--"
        return "BAD" if self.place is None else "ok" if self.place == 1 else "2nd"


def free_port() -> str:
    """Return an unused port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def run(python: Path, script: Path, ranks: int, folder: Path) -> int | None:
    """Run an edited script by ``traceml run``; return its exit code, None if it took too long."""
    # The module of the `traceml` command. Summary mode shows nothing live and has no prompt.
    command = [str(python), "-m", "traceml_ai.launcher.cli", "run", str(script), "--mode=summary"]
    command += [f"--logs-dir={folder / 'logs'}", f"--run-name={script.stem}", f"--nproc-per-node={ranks}"]
    command += [f"--aggregator-port={free_port()}", f"--master-port={free_port()}"]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}  # as in accuracy.py
    with (folder / f"{script.stem}.txt").open("wb") as output:
        started = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=variables
        )
        try:
            return started.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            started.terminate()  # TraceML then ends the processes that it started.
            started.wait()
            return None


def judge(python: Path, script: Path, folder: Path, narrow: bool) -> Judged | None:
    """Edit and run one script and read TraceML's result; None if there is none."""
    copy = folder / "edited" / script.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(edited(script, narrow), encoding="utf-8")
    code = run(python, copy, ranks_of(script), folder)
    said = folder / "logs" / script.stem / "final_summary.json"
    if code != 0 or not said.is_file():
        print(f"{script.name}: {'too slow' if code is None else f'exit code {code}'}", file=sys.stderr)
        print((folder / f"{script.stem}.txt").read_text("utf-8", errors="replace")[-2000:], file=sys.stderr)
        return None
    summary: dict[str, Any] = json.loads(said.read_text(encoding="utf-8"))
    issues = summary["step_time"]["issues"]
    primary = summary["primary_diagnosis"]
    kinds = dict.fromkeys([primary["kind"], *(issue["kind"] for issue in issues)])
    critical = frozenset(issue["kind"] for issue in [primary, *issues] if issue["severity"] == "crit")
    card = re.search(r"Verdict: (.*?) *\|", said.with_suffix(".txt").read_text(encoding="utf-8"))
    verdict = " ".join((card[1] if card else primary["status"]).split())
    return Judged(script.stem, read_label(script), tuple(kinds), critical, verdict)


def show(judged: Judged) -> None:
    """Print one line about one script."""
    said = "; also ".join([judged.verdict, *judged.kinds[1:]])
    print(f"{judged.mark:<3} {judged.name:<31} {judged.label.expected:<26} {said}", flush=True)


def read_perfwrap(path: Path) -> dict[str, tuple[bool, list[str]]]:
    """Read the output of accuracy.py: for each script whether it was right, and the rules, most expensive first."""
    lines = re.findall(r"(?m)^(ok |BAD) (\S+)(.*)$", path.read_text(encoding="utf-8"))
    return {name: (mark == "ok ", re.findall(r"(\w+) \d+%", found)) for mark, name, found in lines}


def count(flags: Iterable[bool]) -> str:
    """Return how many of them are true."""
    known = list(flags)
    return f"{sum(known)} of {len(known)}"


def show_totals(results: list[Judged], perfwrap: dict[str, tuple[bool, list[str]]]) -> None:
    """Print the figures of TraceML, and those of perfwrap on the same scripts if they are known."""
    planted = [one for one in results if one.expressible]
    healthy = [one for one in results if one.healthy]
    other = [one for one in results if not one.expressible and not one.healthy]
    labels = {one.name: one.label.expected for one in results if one.name in perfwrap}
    first = {name: perfwrap[name][1][:1] == [label] for name, label in labels.items()}
    named = {name: label in perfwrap[name][1] for name, label in labels.items()}
    good = {name: perfwrap[name][0] for name in labels}

    def same(scripts: list[Judged], flags: dict[str, bool]) -> str:
        return count(flags[one.name] for one in scripts if one.name in flags) if perfwrap else ""

    rows = [
        ("", "TraceML", "perfwrap" if perfwrap else ""),
        ("the verdict is right", count(one.place == 1 for one in planted), same(planted, first)),
        ("it is named at all", count(one.place is not None for one in planted), same(planted, named)),
        ("no diagnosis for that", f"{len(other)} scripts", same(other, first)),
        ("healthy, and not alarmed", count(not one.alarms for one in healthy), same(healthy, good)),
        ("too little data to judge", count(one.kinds[0] == NO_VERDICT for one in results), ""),
    ]
    print()
    for name, theirs, ours in rows:
        print(f"{name:<26} {theirs:<12} {ours}".rstrip())


def main() -> int:
    """Run the requested workloads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only scripts whose names contain one of these")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--python", type=Path, help="the Python that has traceml-ai and PyTorch")
    what.add_argument("--edits", type=Path, help="run nothing: write the edited scripts to this folder")
    parser.add_argument("--keep", type=Path, help="keep scripts, output and summaries in this new folder")
    parser.add_argument("--narrow", action="store_true", help="put only the step proper into TraceML's step")
    parser.add_argument(
        "--perfwrap", type=Path, help="a file with the output of scripts/accuracy/accuracy.py"
    )
    arguments = parser.parse_args()
    if arguments.python and not arguments.python.is_file():
        parser.error(f"{arguments.python} is not a Python interpreter.")
    words = arguments.words or [""]
    perfwrap = read_perfwrap(arguments.perfwrap) if arguments.perfwrap else {}
    results: list[Judged] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.edits or arguments.keep or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        scripts = [one for one in workloads(Path(temporary)) if any(word in one.stem for word in words)]
        possible = [script for script in scripts if script.stem not in NOT_EDITED]
        if arguments.edits:
            for script in possible:
                (folder / script.name).write_text(edited(script, arguments.narrow), encoding="utf-8")
            return 0
        for script in possible:
            judged = judge(arguments.python.absolute(), script, folder, arguments.narrow)
            if judged is not None:
                results.append(judged)
                show(judged)
    show_totals(results, perfwrap)
    for script in scripts:
        if script.stem in NOT_EDITED:
            print(f"not edited: {script.stem}: {NOT_EDITED[script.stem]}")
    failed = len(possible) - len(results)
    if failed:
        print(f"could not be run: {failed}")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
