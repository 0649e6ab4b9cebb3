"""The parts of scripts/gpu_check.py: what each runs and returns, and what of it is not good enough."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import load_units
import overhead
import plain_journals
import record

HERE = Path(__file__).resolve().parent
PROGRAM_STEPS = 20
"""The number of steps that profiled_loop.py runs under its profiler."""
STEP_TIMES_MS = (1.0,)
PHASES = ("forward", "backward", "optimizer")
TOLERANCE = 0.02
"""The maximum difference of a phase's time from torch.profiler's."""
IDLE_TOLERANCE = 0.05
"""The maximum difference of a blamed share of the time from the planted one."""
SLOWER = 0.03
"""How much longer steps may take after a window than without one."""
CAUSES = ("data", "python", "sync", "dispatch", "transfer")
WINDOW_STEPS = 3000
RECORDINGS = {
    "perfwrap run": {},
    "--window": {"window": "steady", "window_detail": ["shapes", "stack", "memory"]},
    "--nvtx": {"nvtx": True},
}
"""Options of the runs whose behaviour is compared with that of bare runs."""
WINDOWS: dict[str, dict[str, Any] | None] = {
    "bare": None,
    "--no-window": {"window": ""},
    "auto": {"window": "auto"},
    "kernels": {"window": "kernels"},
    "auto, pinned": {"window": "auto"},
    "--no-window, pinned": {"window": ""},
}
"""The runs of the launch-bound loop: bare, or with these options."""
MAX_RECORDING_BYTES = 4 << 20
"""A larger run is not put into the JSON file."""
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")

Trace = list[dict[str, Any]]
Found = dict[str, Any]


class Skipped(Exception):
    """A part cannot run here; the message says why."""


@dataclass(frozen=True)
class Given:
    """What a part is given: a folder for its files, the device, the seconds left, and the user's choices."""

    folder: Path
    device: str
    seconds: float
    small: bool
    casts: int
    steps: tuple[float, ...]
    result: Found
    """The whole result, for recordings that are read later."""


@dataclass(frozen=True)
class Part:
    """A part of the check, and the seconds that it takes at most."""

    run: Callable[[Given], Found]
    seconds: float


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


def compare(given: Given) -> Found:
    """Run the loop bare and recorded; return the times of both clocks, and the syncs of both runs."""
    traces, printed = {}, {}
    for name in ("bare", "recorded"):
        path = given.folder / f"{name}.json"
        command = [sys.executable, str(HERE / "profiled_loop.py"), str(path)]
        if name == "recorded":
            command = record.wrap(command, given.folder / "run")
        printed[name] = _printed(command, given)
        traces[name] = json.loads(path.read_text())["traceEvents"]
    profiler = phase_times(traces["recorded"])
    events = {
        phase: plain_journals.phase_ns(given.folder / "run", phase, PROGRAM_STEPS) / 1e3 for phase in PHASES
    }
    return {
        "same_output": printed["bare"] == printed["recorded"],
        "syncs": {name: count_syncs(trace) for name, trace in traces.items()},
        "phases": {phase: {"profiler_us": profiler[phase], "events_us": events[phase]} for phase in PHASES},
        "failures": plain_journals.failures(given.folder / "run"),
    }


def _printed(command: list[str], given: Given) -> str:
    """Return what a program printed; an error if it failed or took too long."""
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=given.seconds
    ).stdout


def plant_idle(given: Given) -> Found:
    """Record a loop with each cause of idle time; what is blamed is read later."""
    import torch

    if given.device != "cuda" and not hasattr(getattr(torch, given.device), "launch"):
        raise Skipped(f"{given.device} has no kernel of a known time")
    found: Found = {}
    for cause in CAUSES[:2] if given.small else CAUSES:
        folder = given.folder / cause
        program = [sys.executable, str(HERE / "planted_idle.py"), cause]
        command = record.wrap(program, folder, window="kernels", monitors=False, max_overhead=1.0)
        printed = json.loads(_printed(command, given))
        found[cause] = {**printed, "windows": plain_journals.window_notes(folder)}
        _keep(given.result, f"idle/{cause}", folder)
    return found


def try_windows(given: Given) -> Found:
    """Run the launch-bound loop bare and recorded with each sort of window; return its times by quarters."""
    found: Found = {}
    steps = 40 if given.small else WINDOW_STEPS
    for name, options in WINDOWS.items():
        pinned = ["pinned"] if "pinned" in name else []
        if (pinned and given.device != "cuda") or (given.small and name == "auto"):
            continue  # The loader pins memory for CUDA only.
        command = [sys.executable, str(HERE / "window_loop.py"), str(steps), *pinned]
        folder = given.folder / name.replace(" ", "-").replace(",", "")
        if options is not None:
            command = record.wrap(command, folder, monitors=False, **options)
        printed = json.loads(_printed(command, given))
        notes = [] if options is None else plain_journals.window_notes(folder)
        found[name] = {**printed, "windows": notes}
    return found


def try_inspect(given: Given) -> Found:
    """Run the inspected loop bare and with `--inspect`; the lines of its steps are read later."""
    command = [sys.executable, str(HERE / "inspected_loop.py")]
    bare = _printed(command, given)
    folder = given.folder / "run"
    inspected = record.wrap(command, folder, window="", monitors=False, inspect=True)
    done = subprocess.run(inspected, capture_output=True, text=True, timeout=given.seconds)
    _keep(given.result, "inspect", folder)
    notes = [note for journal in plain_journals.read(folder) for note in journal.words.notes("dataflow")]
    return {
        "same_output": done.stdout == bare,
        "status": done.returncode,
        "notes": notes,
        "failures": plain_journals.failures(folder),
    }


def compare_behaviours(given: Given) -> Found:
    """Run the behaviours bare, twice, and recorded in several ways, all at once.

    Return for each part what the bare run printed, whether both bare runs printed the same, and what each recorded run
    printed where it differs.
    """
    started: dict[str, subprocess.Popen[str]] = {}
    parts = ["ordinary", "values"] if given.small else []
    recordings = ["--window"] if given.small else [*RECORDINGS]
    for number, name in enumerate([overhead.BARE, overhead.BARE_AGAIN, *recordings]):
        command = [sys.executable, str(HERE / "behaviours.py"), *parts]
        if name in RECORDINGS:
            command = record.wrap(command, given.folder / str(number), **RECORDINGS[name])
        home = {"TORCHINDUCTOR_CACHE_DIR": str(given.folder / f"inductor-{number}")}
        started[name] = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | home
        )
    printed = {
        name: split(process.communicate(timeout=given.seconds)[0]) for name, process in started.items()
    }
    bare, again = printed[overhead.BARE], printed[overhead.BARE_AGAIN]
    return {
        part: {
            "bare": text,
            "repeatable": again.get(part) == text,
            "different": {
                name: printed[name].get(part) for name in recordings if printed[name].get(part) != text
            },
        }
        for part, text in bare.items()
    }


def split(printed: str) -> dict[str, str]:
    """Return what each part printed, by its name, without the launcher's own lines."""
    programs = "".join(line for line in printed.splitlines(True) if not line.startswith("perfwrap: "))
    texts = (text.partition("\n") for text in programs.split("== ")[1:])
    return {name: text for name, _, text in texts}


def watch_loads(given: Given) -> load_units.Found:
    """Record the known loads; return the monitors' figures during each."""
    if given.device != "cuda":
        raise Skipped("the monitors watch NVIDIA and AMD GPUs only")
    command = record.wrap(load_units.command(), given.folder / "run")
    return load_units.read(given.folder / "run", _printed(command, given))


def try_ncu(given: Given) -> Found:
    """Run a short loop with `--ncu`; return the number of rows of its table, and what was printed if there is none."""
    if shutil.which("ncu") is None:
        raise Skipped("Nsight Compute (ncu) is not on the PATH")
    program = [sys.executable, str(HERE / "window_loop.py"), "40"]
    command = record.wrap(
        program, given.folder / "run", monitors=False, ncu=[], ncu_kernels=["regex:gemm|elementwise"]
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=given.seconds)
    table = given.folder / "run" / "tools" / "ncu.csv"
    rows = table.read_text(errors="replace").count("\n") if table.exists() else 0
    return {"rows": rows, "status": done.returncode, "said": done.stderr.strip()[-500:]}


def measure_loops(given: Given) -> Found:
    """Return what scripts/cost/overhead.py measures of loops on the device, by step time in ms."""
    variants: dict[str, overhead.Command] = {
        overhead.BARE: lambda command, folder: command,
        overhead.BARE_AGAIN: lambda command, folder: command,
        overhead.WRAPPED: record.wrap,
        "--no-window": lambda command, folder: record.wrap(command, folder, window=""),
    }
    if given.small:
        del variants[overhead.BARE_AGAIN]
        overhead.TURNS.update(dict.fromkeys(given.steps, (8, 4)))
    return {
        f"{ms:g}": overhead.measure(dict(variants), ms, given.casts, 1, given.folder / f"{ms:g}")
        for ms in given.steps
    }


PARTS = {
    "compared": Part(compare, 40),
    "idle": Part(plant_idle, 75),
    "windows": Part(try_windows, 80),
    "inspect": Part(try_inspect, 30),
    "behaviours": Part(compare_behaviours, 110),
    "units": Part(watch_loads, 50),
    "ncu": Part(try_ncu, 45),
    "loops": Part(measure_loops, 75),
}
"""What is measured, by its name in the JSON; the most important first, in case the time runs out."""


def _keep(result: Found, name: str, folder: Path) -> None:
    """Put a run into the result, so that it can be read elsewhere."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        archive.add(folder, arcname="run", filter=_without_code)
    if packed.tell() <= MAX_RECORDING_BYTES:
        result.setdefault("recordings", {})[name] = base64.b64encode(packed.getvalue()).decode()


def _without_code(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out the recorder's own code, which each run folder holds."""
    return None if "/inject" in member.name or "/.inject" in member.name else member


def read_recordings(result: Found) -> None:
    """Read the recordings in the result, if perfwrap's reading half works here, and add what it says of them."""
    missing = [name for name in ("polars", "msgspec") if importlib.util.find_spec(name) is None]
    if missing:
        result["unread"] = f"{' and '.join(missing)} not installed: finish with `gpu_check.py --read`"
        return
    import gpu_readings

    result.pop("unread", None)
    for name, packed in result.get("recordings", {}).items():
        part, _, which = name.partition("/")
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed)), mode="r:xz") as archive:
                archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
            found = result[part][which] if which else result[part]
            found["read"] = gpu_readings.READ[part](Path(folder, "run"), found)


def judge(result: Found) -> list[str]:
    """Return the problems of the measured parts as sentences."""
    problems = _judge_times(result["compared"]) if "compared" in result else []
    problems += _judge_idle(result.get("idle", {}))
    problems += _judge_windows(result.get("windows", {}))
    problems += _judge_inspect(result["inspect"]) if "inspect" in result else []
    problems += _judge_behaviours(result.get("behaviours", {}))
    problems += load_units.judge(result["units"]) if "units" in result else []
    if "ncu" in result and not result["ncu"]["rows"]:
        problems.append(f"ncu left no table: {result['ncu']['said'][-200:]!r}.")
    failed = [why for part, why in result.get("skipped", {}).items() if why.startswith("failed")]
    return problems + [f"A part {why}." for why in failed]


def _judge_times(compared: Found) -> list[str]:
    """Return the problems of the times on the GPU."""
    problems = []
    for phase, times in compared["phases"].items():
        differs = difference(times)
        if not abs(differs) <= TOLERANCE:
            problems.append(f"{phase}: perfwrap's time differs from torch.profiler's by {differs:+.1%}.")
    bare, recorded = compared["syncs"]["bare"], compared["syncs"]["recorded"]
    if bare != recorded:
        problems.append(
            f"The recorded program waited for the GPU {recorded} times, the bare one {bare} times."
        )
    if not compared["same_output"]:
        problems.append("The recorded program printed something else than the bare one.")
    return problems + [f"A probe failed: {failure}." for failure in compared.get("failures", [])]


def difference(times: dict[str, float]) -> float:
    """Return by which share the events' time is longer; infinite if the profiler recorded nothing."""
    return times["events_us"] / times["profiler_us"] - 1 if times["profiler_us"] else float("inf")


def _judge_idle(idle: Found) -> list[str]:
    """Return which planted causes were not blamed for the planted time."""
    problems = []
    for cause, found in idle.items():
        planted = planted_share(found)
        for way, shares in found.get("read", {}).items():
            if way == "events" and cause == "dispatch":
                continue  # Events do not show gaps inside of a phase.
            blamed = shares.get(cause, 0.0)
            if abs(blamed - planted) > IDLE_TOLERANCE:
                problems.append(
                    f"{cause}: {blamed:.0%} of the time is blamed on it by {way}, {planted:.0%} was planted."
                )
    return problems


def planted_share(found: Found) -> float:
    """Return the share of the time in which the device was idle."""
    return 1 - found["busy_ns"] / (found["ended_ns"] - found["begun_ns"])


def _judge_windows(windows: Found) -> list[str]:
    """Return after which windows steps take longer than without one."""
    problems = []
    for name, found in windows.items():
        if found["loss"] != windows["bare"]["loss"]:
            problems.append(f"{name}: the loss is {found['loss']}, bare {windows['bare']['loss']}.")
        base = windows.get("--no-window, pinned" if "pinned" in name else "--no-window")
        if base is None or name == "bare":
            continue
        slower = after_window(found, base)
        if slower > SLOWER:
            problems.append(f"{name}: steps after the window take {slower:+.1%} longer than without one.")
    return problems


def after_window(found: Found, base: Found) -> float:
    """Return by which share the steps of the second half take longer than those of another run."""
    return float(sum(found["quarters_ns"][2:]) / sum(base["quarters_ns"][2:]) - 1)


def _judge_inspect(inspect: Found) -> list[str]:
    problems = [] if inspect["same_output"] else ["The inspected program printed something else than bare."]
    if inspect.get("read", {}).get("lines") == 0:
        problems.append(f"No line of the inspected program has a cost: {inspect['notes']}.")
    return problems + [f"inspect: a probe failed: {failure}." for failure in inspect["failures"]]


def _judge_behaviours(behaviours: Found) -> list[str]:
    """Return the problems as sentences."""
    return [
        f"{part} differs under {name}: {str(text).strip()[-300:]!r}, bare {found['bare'].strip()[-300:]!r}."
        for part, found in behaviours.items()
        if found["repeatable"]
        for name, text in found["different"].items()
    ]
