"""Measure the cost of perfwrap on a GPU, and check that GPU time is correct. For a machine with a GPU.

Four questions, with the answers as JSON and as Markdown for docs/:

- the cost of loops of 0.3, 1, 2.4 and 10 ms steps on the GPU, measured as scripts/cost/overhead.py measures;
- whether the time between perfwrap's events is that of torch.profiler for the same phases of the same steps;
- whether a recorded program synchronises more often than a bare one;
- whether the monitors distinguish known loads: copies, streaming, GEMMs in bf16 and fp32, pauses (gpu/load_units.py).

    python scripts/gpu_check.py --json docs/gpu.json     exit code 1 if an answer is not good enough
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

import polars as pl
import torch
from perfwrap.journal_format import SPANS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_work import gpu_spans
from perfwrap.measures.trainers import find_trainers
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "cost"), str(HERE / "gpu")]

import load_units  # noqa: E402
import overhead  # noqa: E402

LOOP = HERE / "gpu" / "profiled_loop.py"
STEP_TIMES_MS = (0.3, 1.0, 2.4, 10.0)
PHASES = ("forward", "backward", "optimizer")
STEPS = 20
"""The number of steps that the loop runs under the profiler."""
TOLERANCE = 0.02
"""The maximum difference of a phase's time from torch.profiler's."""
NO_GPU = 2
"""Exit code if there is nothing to check."""

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")

Trace = list[dict[str, Any]]


def phase_times(trace: Trace) -> dict[str, float]:
    """Return the microseconds from the first to the last kernel of each phase, all of its steps together.

    A kernel belongs to the phase in which it was launched, by any thread: backward has its own.
    """
    launched = {
        event["args"]["correlation"]: event["ts"]
        for event in trace
        if event.get("cat") in LAUNCHES and "correlation" in event.get("args", {})
    }
    kernels = [
        (launched[event["args"]["correlation"]], event["ts"], event["ts"] + event["dur"])
        for event in trace
        if event.get("cat") in ON_GPU and event.get("args", {}).get("correlation") in launched
    ]
    times = dict.fromkeys(PHASES, 0.0)
    for event in trace:
        phase = str(event.get("name", "")).removeprefix("phase:")
        if event.get("cat") != "user_annotation" or phase not in times:
            continue
        begin, end = event["ts"], event["ts"] + event["dur"]
        inside = [(start, finish) for launch, start, finish in kernels if begin <= launch <= end]
        if inside:
            times[phase] += max(finish for _, finish in inside) - min(start for start, _ in inside)
    return times


def count_syncs(trace: Trace) -> int:
    """Return how often the host waited for the GPU."""
    return sum(
        event.get("cat") in LAUNCHES and "Synchronize" in str(event.get("name", "")) for event in trace
    )


def event_times(folder: Path) -> dict[str, float]:
    """Return the microseconds between perfwrap's events of each phase, the last STEPS of each together."""
    timeline = run_journals.read(RunFolder(folder))
    spans = gpu_spans(timeline, find_trainers(Evidence(timeline))[0])
    kinds = spans.with_columns((pl.col("value") % 256).alias("kind"))
    return {
        phase: float(kinds.filter(pl.col("kind") == SPANS[phase.upper()])["duration"][-STEPS:].sum()) / 1e3
        for phase in PHASES
    }


def compare(folder: Path) -> dict[str, Any]:
    """Run the loop bare and recorded; return the times of both clocks, and the syncs of both runs."""
    traces, printed = {}, {}
    for name in ("bare", "recorded"):
        path = folder / f"{name}.json"
        command = [sys.executable, str(LOOP), str(path)]
        if name == "recorded":
            command = overhead.VARIANTS["perfwrap run"](command, folder / "run")
        printed[name] = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        traces[name] = json.loads(path.read_text())["traceEvents"]
    profiler, events = phase_times(traces["recorded"]), event_times(folder / "run")
    return {
        "same_output": printed["bare"] == printed["recorded"],
        "syncs": {name: count_syncs(trace) for name, trace in traces.items()},
        "phases": {phase: {"profiler_us": profiler[phase], "events_us": events[phase]} for phase in PHASES},
    }


def measure_loops(
    step_times_ms: list[float], casts: int, rounds: int, folder: Path, device: str = "cuda"
) -> dict[str, Any]:
    """Return what scripts/cost/overhead.py measures of loops on the device, by step time in ms."""
    os.environ["OVERHEAD_DEVICE"] = device
    return {
        f"{ms:g}": overhead.measure(overhead.VARIANTS, ms, casts, rounds, folder / f"{ms:g}")
        for ms in step_times_ms
    }


def watch_loads(folder: Path) -> load_units.Found:
    """Record the known loads; return the monitors' figures during each."""
    command = overhead.VARIANTS["perfwrap run"](load_units.command(), folder)
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return load_units.read(run_journals.read(RunFolder(folder)), printed)


def judge(compared: dict[str, Any]) -> list[str]:
    """Return the problems as sentences."""
    problems = []
    for phase, times in compared["phases"].items():
        difference = _difference(times)
        if not abs(difference) <= TOLERANCE:
            problems.append(f"{phase}: perfwrap's time differs from torch.profiler's by {difference:+.1%}.")
    bare, recorded = compared["syncs"]["bare"], compared["syncs"]["recorded"]
    if bare != recorded:
        problems.append(
            f"The recorded program waited for the GPU {recorded} times, the bare one {bare} times."
        )
    if not compared["same_output"]:
        problems.append("The recorded program printed something else than the bare one.")
    return problems


def markdown(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [f"{result['device']}, PyTorch {result['torch']}.", ""]
    if result["loops"]:
        names = list(next(iter(result["loops"].values()))["ratios"])
        lines += ["| step | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for loop in result["loops"].values():
            cells = [str(loop["ratios"][name]) for name in names]
            lines.append(f"| {loop['step_ns'] / 1e6:.2f} ms | " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["| phase | torch.profiler | perfwrap's events | difference |", "|---|---|---|---|"]
    for phase, times in result["compared"]["phases"].items():
        each = [f"{times[clock] / STEPS / 1e3:.3f} ms" for clock in ("profiler_us", "events_us")]
        lines.append(f"| {phase} | {each[0]} | {each[1]} | {_difference(times):+.1%} |")
    syncs = result["compared"]["syncs"]
    lines += ["", f"Waits for the GPU: {syncs['bare']} bare, {syncs['recorded']} recorded."]
    if result.get("units"):
        lines += ["", load_units.markdown(result["units"])]
        if not load_units.has_gpm(result["units"]):
            lines += ["", "This GPU has no GPM: only utilisation, link and power were checked."]
    return "\n".join([*lines, *result["problems"]])


def _difference(times: dict[str, float]) -> float:
    """Return by which share the events' time is longer; infinite if the profiler recorded nothing."""
    return times["events_us"] / times["profiler_us"] - 1 if times["profiler_us"] else float("inf")


def main() -> int:
    """Measure and print; write the figures if requested; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--casts", type=int, default=4, help="how often all variants are restarted (4)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of turns of each variant in each cast (3)"
    )
    parser.add_argument("--steps", type=float, nargs="*", default=STEP_TIMES_MS, help="step times in ms")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print(
            f"gpu_check: PyTorch {torch.__version__} finds no GPU here, so there is nothing to check.\n"
            "Run it where `python -c 'import torch; print(torch.cuda.is_available())'` prints True.",
            file=sys.stderr,
        )
        return NO_GPU
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compared = compare(folder)
        units = watch_loads(folder / "loads")
        loops = measure_loops(arguments.steps, arguments.casts, arguments.rounds, folder)
    result = {
        "device": torch.cuda.get_device_name(),
        "torch": str(torch.__version__),
        "compared": compared,
        "units": units,
        "loops": loops,
        "problems": [*judge(compared), *load_units.judge(units)],
    }
    print(markdown(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1, default=vars) + "\n")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
