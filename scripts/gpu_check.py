"""Measure the cost of perfwrap on a GPU, and check that GPU time is correct. For a machine with a GPU.

Five questions, with the answers as JSON and as Markdown for docs/:

- whether a program behaves the same: CUDA graphs, compiled steps, streams, memory, errors (gpu/behaviours.py);
- the cost of loops of 0.3, 1, 2.4 and 10 ms steps on the GPU, measured as scripts/cost/overhead.py measures, with and
  without the window of torch.profiler;
- whether the time between perfwrap's events is that of torch.profiler for the same phases of the same steps;
- whether a recorded program synchronises more often than a bare one;
- whether the monitors distinguish known loads: copies, streaming, GEMMs in bf16 and fp32, pauses (gpu/load_units.py).

    python scripts/gpu_check.py --json docs/gpu.json          exit code 1 if an answer is not good enough
    python scripts/gpu_check.py loops --json docs/gpu.json    only a part: compared, behaviours, units, loops

Whether the diagnosis is right on a GPU is another question: accuracy/accuracy.py --scripts scripts/gpu/workloads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
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
BEHAVIOURS = HERE / "gpu" / "behaviours.py"
RECORDINGS = {
    "perfwrap run": (),
    "--window": ("--window", "steady", "--window-detail", "shapes,stack,memory"),
    "--nvtx": ("--nvtx",),
}
"""Options of the runs whose behaviour is compared with that of bare runs."""
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


def compare_behaviours(folder: Path) -> dict[str, dict[str, Any]]:
    """Run the behaviours bare, twice, and recorded in several ways, all at once.

    Return for each part what the bare run printed, whether both bare runs printed the same, and what each recorded run
    printed where it differs.
    """
    started: dict[str, subprocess.Popen[str]] = {}
    names = [overhead.BARE, overhead.BARE_AGAIN, *RECORDINGS]
    for number, name in enumerate(names):
        command = [sys.executable, str(BEHAVIOURS)]
        if name in RECORDINGS:
            launcher = [
                sys.executable,
                "-m",
                "perfwrap",
                "run",
                "--no-report",
                "--out",
                str(folder / str(number)),
            ]
            command = [*launcher, *RECORDINGS[name], "--", *command]
        home = {"TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor-{number}")}
        started[name] = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | home
        )
    printed = {name: _parts(process.communicate()[0]) for name, process in started.items()}
    bare, again = printed[overhead.BARE], printed[overhead.BARE_AGAIN]
    return {
        part: {
            "bare": text,
            "repeatable": again.get(part) == text,
            "different": {
                name: printed[name].get(part) for name in RECORDINGS if printed[name].get(part) != text
            },
        }
        for part, text in bare.items()
    }


def _parts(printed: str) -> dict[str, str]:
    """Return what each part printed, by its name, without the launcher's own lines."""
    programs = "".join(line for line in printed.splitlines(True) if not line.startswith("perfwrap: "))
    texts = (text.partition("\n") for text in programs.split("== ")[1:])
    return {name: text for name, _, text in texts}


def judge_behaviours(behaviours: dict[str, dict[str, Any]]) -> list[str]:
    """Return the problems as sentences."""
    return [
        f"{part} differs under {name}: {str(text).strip()[-300:]!r}, bare {found['bare'].strip()[-300:]!r}."
        for part, found in behaviours.items()
        if found["repeatable"]
        for name, text in found["different"].items()
    ]


def measure_loops(
    step_times_ms: list[float], casts: int, rounds: int, folder: Path, device: str = "cuda"
) -> dict[str, Any]:
    """Return what scripts/cost/overhead.py measures of loops on the device, by step time in ms."""
    os.environ["OVERHEAD_DEVICE"] = device
    variants = {**overhead.VARIANTS, "--no-window": _without_window}
    return {
        f"{ms:g}": overhead.measure(dict(variants), ms, casts, rounds, folder / f"{ms:g}")
        for ms in step_times_ms
    }


def _without_window(command: list[str], folder: Path) -> list[str]:
    """Wrap a command as `perfwrap run` does, without torch.profiler: after it, launches may stay slower."""
    launcher, words = overhead.VARIANTS[overhead.WRAPPED](command, folder), len(command)
    return [*launcher[: -words - 1], "--no-window", *launcher[-words - 1 :]]


def watch_loads(folder: Path, seconds: float) -> load_units.Found:
    """Record the known loads of so many seconds each; return the monitors' figures during each."""
    command = overhead.VARIANTS["perfwrap run"](load_units.command(seconds), folder)
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return load_units.read(run_journals.read(RunFolder(folder)), printed)


def judge(result: dict[str, Any]) -> list[str]:
    """Return the problems of the measured parts as sentences."""
    problems = _judge_times(result["compared"]) if "compared" in result else []
    problems += judge_behaviours(result.get("behaviours", {}))
    return problems + (load_units.judge(result["units"]) if "units" in result else [])


def _judge_times(compared: dict[str, Any]) -> list[str]:
    """Return the problems of the times on the GPU."""
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


PARTS: dict[str, Callable[[Path, argparse.Namespace], Any]] = {
    "compared": lambda folder, _: compare(folder),
    "behaviours": lambda folder, _: compare_behaviours(folder),
    "units": lambda folder, given: watch_loads(folder / "run", given.seconds),
    "loops": lambda folder, given: measure_loops(given.steps, given.casts, given.rounds, folder),
}
"""What is measured, by its name in the JSON."""


def markdown(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [f"{result['device']}, PyTorch {result['torch']}.", ""]
    if result.get("loops"):
        names = list(next(iter(result["loops"].values()))["ratios"])
        lines += ["| step | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for loop in result["loops"].values():
            ratios = [loop["ratios"][name] for name in names]
            # Those of an earlier run come from its JSON.
            cells = [str(overhead.Ratio(**ratio) if isinstance(ratio, dict) else ratio) for ratio in ratios]
            lines.append(f"| {loop['step_ns'] / 1e6:.2f} ms | " + " | ".join(cells) + " |")
        lines.append("")
    if "compared" in result:
        lines += ["| phase | torch.profiler | perfwrap's events | difference |", "|---|---|---|---|"]
        for phase, times in result["compared"]["phases"].items():
            each = [f"{times[clock] / STEPS / 1e3:.3f} ms" for clock in ("profiler_us", "events_us")]
            lines.append(f"| {phase} | {each[0]} | {each[1]} | {_difference(times):+.1%} |")
        syncs = result["compared"]["syncs"]
        lines += ["", f"Waits for the GPU: {syncs['bare']} bare, {syncs['recorded']} recorded."]
    if result.get("behaviours"):
        behaviours = result["behaviours"]
        compared = [part for part, found in behaviours.items() if found["repeatable"]]
        same = sum(not behaviours[part]["different"] for part in compared)
        skipped = ", ".join(sorted(behaviours.keys() - set(compared))) or "none"
        lines += [
            "",
            f"Behaviours that are the same: {same} of {len(compared)}; not repeatable bare: {skipped}.",
        ]
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
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (all)")
    parser.add_argument("--casts", type=int, default=4, help="how often all variants are restarted (4)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of turns of each variant in each cast (3)"
    )
    parser.add_argument("--steps", type=float, nargs="*", default=STEP_TIMES_MS, help="step times in ms")
    parser.add_argument(
        "--seconds", type=float, default=load_units.SECONDS, help="duration of each known load (8)"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file; other parts in it stay")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; use {', '.join(PARTS)}")
    if not torch.cuda.is_available():
        print(
            f"gpu_check: PyTorch {torch.__version__} finds no GPU here, so there is nothing to check.\n"
            "Run it where `python -c 'import torch; print(torch.cuda.is_available())'` prints True.",
            file=sys.stderr,
        )
        return NO_GPU
    result: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
    if arguments.json and arguments.json.exists():
        before = json.loads(arguments.json.read_text())
        if any(before.get(name) != value for name, value in result.items()):
            parser.error(f"{arguments.json} has figures of another GPU or PyTorch; choose another file")
        result = before
    with tempfile.TemporaryDirectory() as name:
        for part in arguments.parts or PARTS:
            folder = Path(name, part)
            folder.mkdir()
            result[part] = PARTS[part](folder, arguments)
    result["problems"] = judge(result)
    print(markdown(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1, default=vars) + "\n")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
