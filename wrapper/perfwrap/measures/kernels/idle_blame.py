"""Why a GPU was idle: the cause of each idle moment is what the threads that launch its work did then.

A gap ends with a kernel, copy or memory set. From the moment when the GPU became idle until the launch, the cause is
the activity of the launching threads; between the launch and the start of the work it is the launch itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from perfwrap.measures.account.intervals import Intervals, contain, distinct, without
from perfwrap.measures.account.loop_events import Flags, Integers
from perfwrap.measures.kernels.gpu_events import DeviceEvents
from perfwrap.measures.kernels.host_activity import HostActivity, find_host_activity
from perfwrap.timeline.model import Timeline

BLAMES = (
    "data",
    "sync",
    "transfer",
    "dispatch",
    "python",
    "allocation",
    "checkpoint",
    "validation",
    "collective",
    "compile",
    "gc",
    "profiler",
    "waiting",
    "between_steps",
    "queued",
    "host",
    "unknown",
)
"""The causes of idle moments.

data: waiting for a batch. sync: after the host waited for the GPU, until it launched again. transfer: a copy was being
prepared. dispatch: launching, in the framework or the driver. python: the program's own code. allocation: cudaMalloc,
cudaFree and similar. waiting: blocked in the system, for an unknown reason. between_steps: outside the steps that the
program marks. queued: the work had been launched before the GPU became idle. host: on the host, where nothing was
recorded. unknown: the launch was not recorded, or the clocks of host and GPU do not match.
"""

CODES = {name: np.uint8(code) for code, name in enumerate(BLAMES)}
"""The number of each cause in columns: a text per piece takes ten times the memory."""

PIECE_COLUMNS: dict[str, Any] = {
    "start": pl.Int64,
    "end": pl.Int64,
    "blame": pl.Enum(BLAMES),
    "inferred": pl.Boolean,
}

AFTERMATH = ("dispatch", "python", "host")
"""Activities of the host while it refills the queue after a wait."""


def find_idle(timeline: Timeline, events: DeviceEvents) -> pl.DataFrame:
    """Return pieces of PIECE_COLUMNS that tile the idle time in a GPU's windows, sorted by start."""
    gaps = without(events.windows, events.intervals())
    table = events.table
    # A gap ends with the first event that starts there.
    last = np.searchsorted(table["start"].to_numpy(), gaps[1], side="left")
    ending = table.select("process", "launched", "category", "operation")[last]
    if events.clock_is_off:
        return _unknown(gaps)
    pieces = [pl.DataFrame(schema=PIECE_COLUMNS)]
    for process in ending["process"].unique(maintain_order=True).to_list():
        own = (ending["process"] == process).to_numpy()
        of_process = table.select("process", "category", "thread").filter(pl.col("process") == process)
        host = find_host_activity(timeline, of_process, process)
        pieces.append(_blamed((gaps[0][own], gaps[1][own]), ending.filter(pl.Series(own)), host))
    return pl.concat(pieces).sort("start")


def _unknown(gaps: Intervals) -> pl.DataFrame:
    """Return the gaps as pieces of unknown cause."""
    start, end = gaps
    rows = pl.DataFrame({"start": start, "end": end}).with_columns(blame=pl.lit("unknown"), inferred=False)
    return rows.cast(PIECE_COLUMNS)  # type: ignore[arg-type]


def _blamed(gaps: Intervals, ending: pl.DataFrame, host: HostActivity) -> pl.DataFrame:
    """Return the pieces of the gaps that one process's work ended."""
    start, end = gaps
    known = ending["launched"].is_not_null().to_numpy()
    launched = ending["launched"].fill_null(0).to_numpy()
    # From here on the cause is the launch itself; small clock differences must not reverse a gap.
    handed = np.where(known, np.clip(launched, start, end), end)
    cuts = [start, end, handed]
    for begins, ends in (*host.layers.values(), host.between_steps):
        cuts += [begins, ends]
    edges = distinct(np.concatenate(cuts))
    moments = edges[:-1]
    inside = contain(gaps, moments)
    moments, until = moments[inside], edges[1:][inside]
    gap = np.searchsorted(start, moments, side="right") - 1
    blame, inferred = _labels(moments, gap, gaps, ending, host)
    on_launch = moments >= handed[gap]
    is_copy = (ending["category"] == "copy").to_numpy()
    blame[on_launch] = np.where(is_copy, CODES["transfer"], CODES["dispatch"])[gap[on_launch]]
    blame[(known & (launched < start))[gap]] = CODES["queued"]
    blame[~known[gap]] = CODES["unknown"]
    named = pl.Series(BLAMES, dtype=PIECE_COLUMNS["blame"]).gather(blame)
    inferred &= blame == CODES["data"]
    return pl.DataFrame({"start": moments, "end": until, "blame": named, "inferred": inferred})


def _labels(
    moments: Integers, gap: Integers, gaps: Intervals, ending: pl.DataFrame, host: HostActivity
) -> tuple[NDArray[np.uint8], Flags]:
    """Return the code of the host's activity at each moment, and whether it is inferred and not recorded."""
    blame = np.full(moments.size, CODES[host.otherwise], dtype=np.uint8)
    for name, intervals in reversed(host.layers.items()):
        blame[contain(intervals, moments)] = CODES[name]
    # If a loop marks its steps around everything but `for batch in loader`, only that is between them; a copy to the
    # GPU at the start of the next step shows that a batch had arrived.
    between = contain(host.between_steps, moments) & np.isin(blame, _codes("python", "host", "waiting"))
    brought = (ending["operation"] == "h2d").to_numpy()[gap]
    blame[between] = np.where(brought, CODES["data"], CODES["between_steps"])[between]
    dry_in_sync = contain(host.blocked, gaps[0])[gap]
    blame[dry_in_sync & np.isin(blame, _codes(*AFTERMATH))] = CODES["sync"]
    return blame, between


def _codes(*names: str) -> list[np.uint8]:
    """Return the codes of some causes."""
    return [CODES[name] for name in names]


def idle_ns(pieces: pl.DataFrame) -> dict[str, int]:
    """Return how long a GPU was idle for each cause, longest first."""
    length = (pl.col("end") - pl.col("start")).sum().alias("ns")
    rows = pieces.group_by("blame").agg(length).sort("ns", "blame", descending=True)
    return dict(zip(rows["blame"].cast(pl.String).to_list(), rows["ns"].to_list(), strict=True))
