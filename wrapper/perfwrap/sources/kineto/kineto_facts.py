"""Facts and coverage of a PyTorch trace: settings, devices, what it covers, and what is missing in it."""

from __future__ import annotations

from typing import Any

import polars as pl

from perfwrap.sources.kineto.kineto_process import SOURCE, KinetoProcess
from perfwrap.sources.kineto.trace_words import plain_text

SETTINGS = (
    "schemaVersion",
    "traceName",
    "trace_id",
    "record_shapes",
    "profile_memory",
    "with_stack",
    "with_flops",
    "with_modules",
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
    "displayTimeUnit",
)
"""Header fields that are kept; some headers contain the whole environment of a job."""

JOB = {"rank": "rank", "world_size": "world_size", "backend": "backend"}

UNSEEN = {
    "probe/garbage": "torch.profiler does not record Python's garbage collector",
    "probe/serialization": "torch.profiler does not record checkpoints",
}
"""Probes of the recorder that a trace cannot replace."""

LOADER_WITHOUT_WORKERS = "_SingleProcessDataLoaderIter"
"""PyTorch's name of the iterator of a DataLoader without workers, which is in the names of waits for its batches."""

COVERAGE = "trace"
LONGEST_FACT = 300


def add(process: KinetoProcess) -> None:
    """Add facts and coverage, including what was lost."""
    rows = process.rows
    start = int(rows["start"].min() or 0)  # type: ignore[arg-type]
    end = int((rows["start"] + rows["duration"]).max() or 0)
    _add_facts(process, start)
    _add_devices(process, start)
    _add_coverage(process, start, end)


def _add_facts(process: KinetoProcess, time: int) -> None:
    """Add the header's facts about the recording and the job."""
    header = process.file.header
    facts = {f"trace/{key}": header[key] for key in SETTINGS if key in header}
    facts |= {name: process.distributed[key] for key, name in JOB.items() if key in process.distributed}
    kernels = process.on_gpu.filter(pl.col("kind") == "kernel")
    if process.alone and kernels.height:
        # Measures use this as the sign that the program trains on a GPU.
        facts["model/trace/device"] = f"cuda:{kernels['device'][0]}"
    if process.alone and any(LOADER_WITHOUT_WORKERS in name for name in process.events.names.values):
        facts[f"{LOADER_WITHOUT_WORKERS}/num_workers"] = 0
    for key, value in facts.items():
        _say(process, time, process.main, key, value)


def _add_devices(process: KinetoProcess, time: int) -> None:
    """Add the names and sizes of the GPUs that were used; headers list all GPUs of a machine."""
    listed = process.file.header.get("deviceProperties") or process.file.header.get("computeProperties")
    if not process.alone or not isinstance(listed, list):
        return
    used = set(process.on_gpu["device"].unique().to_list())
    for device in listed:
        if isinstance(device, dict) and isinstance(device.get("id"), int) and device["id"] in used:
            track = process.builder.device(process.host, f"gpu/{device['id']}")
            known = {"name": device.get("name"), "memory_total_bytes": device.get("totalGlobalMem")}
            known["multiprocessors"] = device.get("numSms")
            for key, value in known.items():
                if value is not None:
                    _say(process, time, track, key, value)


def _add_coverage(process: KinetoProcess, start: int, end: int) -> None:
    """Add the period that the trace covers, and what is missing in it."""
    file, events, builder = process.file, process.events, process.builder
    lost = file.damaged + events.untimed
    notes = list(file.notes)
    if lost:
        notes.append(f"{lost} of its events are damaged")
    if not process.rows.height:
        notes.append("it contains no events")
    for note in notes:
        builder.warn(f"The trace {file.path.name} is incomplete: {note}.")
    _cover(process, COVERAGE, start, end, "; ".join(notes) or None, lost)
    if process.on_gpu.is_empty() and process.rows.height:
        _cover(process, "kernels", end, end, "the trace contains no GPU activity")
    if process.alone:
        for probe, why in UNSEEN.items():
            _cover(process, probe, end, end, why)


def _cover(
    process: KinetoProcess, what: str, start: int, end: int, note: str | None, lost: int | None = None
) -> None:
    """Add one row of coverage."""
    process.builder.add_row(
        "coverage", what=what, track=process.main, start=start, end=end, lost=lost, note=note, source=SOURCE
    )


def _say(process: KinetoProcess, time: int, track: int, key: str, value: Any) -> None:
    """Add one fact, cut to a maximum length."""
    text = plain_text(value)[:LONGEST_FACT]
    process.builder.add_row("facts", time=time, track=track, key=key, value=text, source=SOURCE)
