"""Check that the GPU monitors distinguish known loads: the part of scripts/gpu_check.py about NVML and GPM.

A load of one busy thread must have a full duty cycle and nearly no activity; matrices in bfloat16 must use the tensor
cores, in float32 the other units; copies must use the link, streaming the memory; pauses must lower all figures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plain_journals
from plain_journals import Journal

LOADS = Path(__file__).with_name("loads.py")
SECONDS = 5
"""The duration of each load."""
SETTLING_NS = 1_500_000_000
"""The start of a load that is not used: a mean over 1 s, and NVML's window, still contain the load before."""
GIGABYTE = 1e9

METRICS = {
    "busy": "utilization_share",
    "sm": "sm_activity_share",
    "tensor": "tensor_activity_share",
    "fp32": "fp32_activity_share",
    "dram": "dram_activity_share",
    "pcie": "pcie_rx_bytes_per_s",
    "watts": "power_watts",
}
"""Series by column of the table."""
FROM_GPM = ("sm", "tensor", "fp32", "dram")

COUNTED = "counted_watts"
"""The mean power by the energy counter, which has no column."""
COUNTED_LIMITS = (0.85, 1.15)
"""The limits of its ratio to the mean of the sampled power, in loads that are even."""

Limits = tuple[float, float]
EXPECTED: dict[str, dict[str, Limits]] = {
    "idle": {"busy": (0, 0.05), "sm": (0, 0.02), "tensor": (0, 0.01)},
    "one_thread": {"busy": (0.9, 1), "sm": (0, 0.1), "tensor": (0, 0.01), "dram": (0, 0.05)},
    "copies": {"sm": (0, 0.1), "tensor": (0, 0.01), "pcie": (5 * GIGABYTE, 200 * GIGABYTE)},
    "memory": {"busy": (0.9, 1), "sm": (0.7, 1), "tensor": (0, 0.01), "dram": (0.5, 1)},
    "fp32": {"busy": (0.9, 1), "sm": (0.7, 1), "tensor": (0, 0.02), "fp32": (0.3, 1)},
    "bf16": {"busy": (0.9, 1), "sm": (0.7, 1), "tensor": (0.3, 1), "fp32": (0, 0.15)},
    "gaps": {"busy": (0.2, 0.8), "sm": (0.2, 0.8), "tensor": (0.1, 0.8)},
}
"""The limits of a figure during a load: wide ones, valid for every GPU with GPM."""
RATIOS: tuple[tuple[str, str, str, Limits], ...] = (
    ("tensor", "gaps", "bf16", (0.3, 0.7)),
    ("sm", "gaps", "bf16", (0.3, 0.7)),
    ("watts", "one_thread", "bf16", (0, 0.7)),
)
"""The limits of the ratio of a figure between two loads."""

Found = dict[str, dict[str, float | None]]
Wrap = Callable[[list[str], Path], list[str]]


def command(seconds: float = SECONDS) -> list[str]:
    """Return the command that runs the loads."""
    return [sys.executable, str(LOADS), str(seconds)]


def read(folder: Path, printed: str) -> Found:
    """Return the mean of each figure during each load that the program printed; None without samples."""
    journals = list(plain_journals.read(folder))
    found: Found = {}
    for load in map(json.loads, printed.splitlines()):
        gpu = _entity(journals, load["uuid"])
        begin, end = load["begin_ns"] + SETTLING_NS, load["end_ns"]
        found[load["load"]] = {
            column: _mean(journals, gpu, metric, begin, end) for column, metric in METRICS.items()
        }
        found[load["load"]][COUNTED] = _counted_watts(journals, gpu, begin, end)
    return found


def judge(found: Found) -> list[str]:
    """Return the problems as sentences; figures of GPM are optional for a GPU without GPM."""
    problems = [f"The load {load} did not run." for load in EXPECTED if load not in found]
    sampled = {column for figures in found.values() for column, value in figures.items() if value is not None}
    required = [column for column in METRICS if column not in FROM_GPM or has_gpm(found)]
    problems += [
        f"There are no samples of {METRICS[column]}." for column in required if column not in sampled
    ]
    for load, limits in EXPECTED.items():
        for column, (low, high) in limits.items():
            value = found.get(load, {}).get(column)
            if value is not None and not low <= value <= high:
                problems.append(
                    f"{load}: {METRICS[column]} is {value:.3g}, not between {low:g} and {high:g}."
                )
    for load in ("memory", "fp32", "bf16"):
        counted, sampled_watts = (found.get(load, {}).get(column) for column in (COUNTED, "watts"))
        if (
            counted
            and sampled_watts
            and not COUNTED_LIMITS[0] <= counted / sampled_watts <= COUNTED_LIMITS[1]
        ):
            problems.append(
                f"{load}: the energy counter shows {counted:.0f} W, the samples {sampled_watts:.0f} W."
            )
    for column, load, other, (low, high) in RATIOS:
        value, base = (found.get(name, {}).get(column) for name in (load, other))
        if value is not None and base and not low <= value / base <= high:
            problems.append(
                f"{METRICS[column]} during {load} is {value / base:.2f} of that during {other}, "
                f"not between {low:g} and {high:g}."
            )
    return problems


def has_gpm(found: Found) -> bool:
    """Return whether there is any figure of GPM."""
    return any(figures.get(column) is not None for figures in found.values() for column in FROM_GPM)


def markdown(found: Found) -> str:
    """Return the figures as a table."""
    lines = ["| load | " + " | ".join(METRICS) + " |", "|---" * (len(METRICS) + 1) + "|"]
    for load, figures in found.items():
        lines.append(f"| {load} | " + " | ".join(_cell(column, figures[column]) for column in METRICS) + " |")
    return "\n".join(lines)


def _entity(journals: list[Journal], uuid: str) -> str:
    """Return the GPU of that uuid, which torch writes without its prefix; without a uuid, the first GPU."""
    uuids = {key: value for journal in journals for key, value in journal.words.facts.items()}
    names = sorted(
        key.removesuffix("/uuid") for key in uuids if key.startswith("gpu/") and key.endswith("/uuid")
    )
    same = [name for name in names if uuids[f"{name}/uuid"].endswith(uuid or "nowhere")]
    return (same or names or ["gpu/0"])[0]


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "-"
    if column == "pcie":
        return f"{value / GIGABYTE:.1f} GB/s"
    return f"{value:.0f} W" if column == "watts" else f"{value:.1%}"


def _samples(journals: list[Journal], gpu: str, metric: str, begin: int, end: int) -> tuple[Any, Any]:
    """Return times and values of a series in that time."""
    pairs = [journal.series(gpu, metric) for journal in journals]
    times, values = (np.concatenate([pair[place] for pair in pairs] or [np.empty(0)]) for place in range(2))
    inside = (times >= begin) & (times <= end)
    return times[inside], values[inside]


def _mean(journals: list[Journal], gpu: str, metric: str, begin: int, end: int) -> float | None:
    values = _samples(journals, gpu, metric, begin, end)[1]
    return float(values.mean()) if values.size else None


def _counted_watts(journals: list[Journal], gpu: str, begin: int, end: int) -> float | None:
    """Return the mean power by the energy counter, in watts; None without two samples of it."""
    times, joules = _samples(journals, gpu, "energy_joules", begin, end)
    return float((joules[-1] - joules[0]) / (times[-1] - times[0]) * 1e9) if times.size > 1 else None
