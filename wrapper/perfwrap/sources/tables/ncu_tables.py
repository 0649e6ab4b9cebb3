"""Reads Nsight Compute's metrics of single kernels from its CSV, in either layout.

The layouts are those of ``ncu --csv --page raw`` (a column for each metric, units in the second row) and of
``--page details`` (a row for each metric), described in NVIDIA's Nsight Compute CLI guide; metrics are in its
Profiling Guide, "Metrics Structure". Seen: ncu 2022.3 to 2025.

Each kernel becomes a mark named ``ncu`` on its process's track, whose detail is a JSON object (see ``Kernel``) and
whose value is the kernel's duration in nanoseconds. ncu replays kernels one at a time with locked clocks: the
durations are not those of the run, and the marks have no time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from perfwrap.errors import PerfwrapError
from perfwrap.sources.tables.csv_text import decoded, nanoseconds_in, number, read_text, rows
from perfwrap.timeline.builder import TimelineBuilder

SOURCE = "ncu"
MARK = "ncu"
HEADER = ("ID", "Process ID", "Process Name")
LAYOUT = "Metric Name"
"""The column that only the details layout has."""
REPORT_MAGIC = b"NVR\0"
"""First bytes of ncu reports (.ncu-rep), which only ncu can read."""

DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
SHARES = {
    "compute_share": (
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "Compute (SM) Throughput",
        "SM [%]",
        "SOL SM",
    ),
    "memory_share": (
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed",
        "Memory Throughput",
        "Memory [%]",
        "SOL Memory",
    ),
    "dram_share": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "DRAM Throughput",
        "SOL DRAM",
    ),
    "occupancy_share": ("sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"),
    "possible_occupancy_share": ("sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy"),
}
"""Metrics in percent of the GPU's peak, by their names in the raw and in the details layout."""
TENSOR = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_imma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_dmma.avg.pct_of_peak_sustained_active",
)
"""Utilization of tensor cores; which of these exist depends on the GPU and on ncu."""
ARITHMETIC = {"fp64": "dfma", "fp32": "ffma", "fp16": "hfma"}
STALL, STALL_END = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
SAMPLED = "smsp__pcsamp_warps_issue_stalled_"
NO_STALL = {"selected", "not_selected"}
"""States of a warp that is not waiting."""


class Kernel(Struct, frozen=True):
    """One launch of a kernel; shares are of the GPU's peak, and None means not measured.

    ``stall`` is the longest wait of its warps (in ncu's terms, for example long_scoreboard: memory) and
    ``stall_share`` its share of their time; ``arithmetic`` is the type of most multiply-adds outside of tensor cores.
    """

    kernel: str
    grid: str | None
    block: str | None
    compute_capability: str | None
    duration_ns: int | None
    compute_share: float | None
    memory_share: float | None
    dram_share: float | None
    occupancy_share: float | None
    possible_occupancy_share: float | None
    tensor_share: float | None
    stall: str | None
    stall_share: float | None
    arithmetic: str | None


@dataclass
class Measured:
    """The data of one launch: cells by column, and metrics with their units."""

    cells: dict[str, str]
    metrics: dict[str, tuple[str, str]]


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is an ncu table or report; ``head`` are the first bytes of its content."""
    return head.startswith(REPORT_MAGIC) or _header(decoded(head)) is not None


def add(builder: TimelineBuilder, path: Path) -> None:
    """Add a mark for each kernel that was measured; PerfwrapError if the file is not an ncu table."""
    with path.open("rb") as file:
        if file.read(len(REPORT_MAGIC)) == REPORT_MAGIC:
            raise PerfwrapError(
                f"{path} is an ncu report, which only ncu can read.",
                f"Export it first: ncu --import {path.name} --page raw --csv > {path.stem}.csv",
            )
    text = read_text(path)
    begin = _header(text)
    if begin is None:
        raise PerfwrapError(f"{path} is not an ncu table.", "Create one with: ncu --csv --page raw")
    count = 0
    for measured in _launches(text[begin:]):
        count += 1
        pid = number(measured.cells.get("Process ID"))
        host = measured.cells.get("Host Name") or "host"
        process = builder.latest_process(host, int(pid)) if pid is not None else builder.host(host)
        kernel = _kernel(measured)
        builder.add_row(
            "marks",
            time=0,
            track=process,
            name=MARK,
            detail=json.dumps(asdict(kernel)),
            value=kernel.duration_ns,
            source=SOURCE,
        )
    if not count:
        builder.warn(f"{path.name} contains no kernels: ncu measured none.")


def _header(text: str) -> int | None:
    """Return where the table's header begins, after the output of ncu and the program; None if there is none."""
    place = 0
    for line in text.splitlines(keepends=True):
        cells = line.strip().lstrip("\ufeff").replace('"', "").split(",")
        if tuple(cells[: len(HEADER)]) == HEADER:
            return place
        place += len(line)
    return None


def _launches(table: str) -> Iterable[Measured]:
    """Return each launch of a table of either layout."""
    lines = rows(table)
    header = next(lines)
    if LAYOUT not in header:
        units = next(lines, [])
        for cells in lines:
            if len(cells) == len(header) and cells[0].isdecimal():
                row = dict(zip(header, cells, strict=True))
                metrics = zip(header, zip(units, cells, strict=False), strict=False)
                yield Measured(row, {name: (unit, value) for name, (unit, value) in metrics})
        return
    found: dict[tuple[str, ...], Measured] = {}
    for cells in lines:
        row = dict(zip(header, cells, strict=False))
        if not row.get("ID", "").isdecimal():
            continue
        key = tuple(row.get(name, "") for name in ("ID", "Process ID", "Host Name"))
        launch = found.setdefault(key, Measured(row, {}))
        name, unit, value = (row.get(column) or "" for column in (LAYOUT, "Metric Unit", "Metric Value"))
        # Memory Throughput occurs twice, in percent and in bytes: the first section has the summary.
        if name and name not in launch.metrics:
            launch.metrics[name] = unit, value
    yield from found.values()


def _kernel(measured: Measured) -> Kernel:
    """Return the metrics of one launch."""
    stall, share = _stall(measured)
    shares = {key: _per_cent(measured, names) for key, names in SHARES.items()}
    return Kernel(
        kernel=measured.cells.get("Kernel Name") or "kernel without a name",
        grid=measured.cells.get("Grid Size"),
        block=measured.cells.get("Block Size"),
        compute_capability=measured.cells.get("CC"),
        duration_ns=_duration(measured),
        tensor_share=_largest(_per_cent(measured, (name,)) for name in TENSOR),
        stall=stall,
        stall_share=share,
        arithmetic=_arithmetic(measured),
        **shares,
    )


def _duration(measured: Measured) -> int | None:
    """Return how long the kernel ran."""
    for name in DURATION:
        unit, value = measured.metrics.get(name, ("", ""))
        amount, scale = number(value), nanoseconds_in(unit)
        if amount is not None and scale is not None:
            return round(amount * scale)
    return None


def _per_cent(measured: Measured, names: tuple[str, ...]) -> float | None:
    """Return the first of these metrics that exists, as a share."""
    for name in names:
        unit, value = measured.metrics.get(name, ("", ""))
        amount = number(value)
        if amount is not None and unit == "%":
            return round(amount / 100, 8)
    return None


def _largest(values: Iterable[float | None]) -> float | None:
    """Return the largest known value."""
    return max((value for value in values if value is not None), default=None)


def _stall(measured: Measured) -> tuple[str | None, float | None]:
    """Return the longest wait of warps and its share of their time: exact counters before samples."""
    exact = _by_reason(measured, lambda name: name.startswith(STALL) and name.endswith(STALL_END))
    if exact:
        whole = number(measured.metrics.get(LATENCY, ("", ""))[1]) or sum(exact.values())
        return _longest(exact, whole)
    sampled = _by_reason(measured, lambda name: name.startswith(SAMPLED) and not name.endswith("_not_issued"))
    return _longest(sampled, sum(sampled.values()))


def _by_reason(measured: Measured, is_wanted: Callable[[str], bool]) -> dict[str, float]:
    """Return the counts of each state of a warp."""
    found = {}
    for name, (_, value) in measured.metrics.items():
        amount = number(value) if is_wanted(name) else None
        if amount is not None:
            reason = name.removeprefix(STALL).removeprefix(SAMPLED).removesuffix(STALL_END)
            found[reason] = amount
    return found


def _longest(states: dict[str, float], whole: float) -> tuple[str | None, float | None]:
    """Return the largest of the states that are waits."""
    waits = {reason: amount for reason, amount in states.items() if reason not in NO_STALL and amount > 0}
    if not waits or whole <= 0:
        return None, None
    reason = max(waits, key=lambda reason: waits[reason])
    return reason, round(waits[reason] / whole, 8)


def _arithmetic(measured: Measured) -> str | None:
    """Return the type of most multiply-adds; None if there were none, or they were not counted."""
    counts = {}
    for kind, word in ARITHMETIC.items():
        name = f"smsp__sass_thread_inst_executed_op_{word}_pred_on.sum.per_cycle_elapsed"
        counts[kind] = number(measured.metrics.get(name, ("", ""))[1]) or 0.0
    kind = max(counts, key=lambda kind: counts[kind])
    return kind if counts[kind] > 0 else None
