"""The matrix operations of one GPU with recorded sizes: their FLOPs, their kernels' time, and MFU.

A kernel belongs to the operation during which it was launched, by the host's clock.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import KERNEL, GpuActivity
from perfwrap.measures.kernels.gpu_peaks import Peaks, peaks_of
from perfwrap.measures.kernels.kernel_classes import MATRIX
from perfwrap.measures.kernels.matrix_shapes import HALF, Matrix, forward_flops, matrix_of

MARK = "matrix"

COLUMNS: dict[str, Any] = {
    "op": pl.String,
    "sizes": pl.String,
    "kind": pl.String,
    "precision": pl.String,
    "calls": pl.Int64,
    "flops": pl.Float64,
    "bytes": pl.Float64,
    "ns": pl.Int64,
    "unaligned": pl.Boolean,
    "kernel": pl.String,
}

MIN_COUNTED_SHARE = 0.9
"""Share of the matrix kernels' time with counted FLOPs that the MFU needs."""


class MatrixWork(Struct, frozen=True, dict=True):
    """``table`` has the columns of COLUMNS, one row per function and set of sizes, most time first.

    ``flops`` are those of all its calls, null if the sizes do not give them; ``ns`` is the total time of its kernels.
    """

    table: pl.DataFrame
    window_ns: int
    matrix_ns: int
    """The time of all kernels of matrix classes, including those of unknown size."""
    peaks: Peaks | None

    @cached_property
    def counted_share(self) -> float:
        """The share of the matrix kernels' time with counted FLOPs."""
        counted = int(self.table.filter(pl.col("flops").is_not_null())["ns"].sum())
        return min(1.0, counted / self.matrix_ns) if self.matrix_ns else 0.0

    @cached_property
    def flops(self) -> float:
        """All counted FLOPs."""
        return float(self.table["flops"].sum())

    @cached_property
    def mfu(self) -> float | None:
        """Model FLOPs utilization: the time of these FLOPs at the peak of their precision, over the recorded time.

        None if the GPU's peak is unknown, too few FLOPs were counted, or the result is above the peak:
        ``why_no_mfu`` says which.
        """
        return None if self.why_no_mfu else self._at_peak

    @cached_property
    def why_no_mfu(self) -> str:
        """Why ``mfu`` is None; empty if it is known."""
        if self.peaks is None:
            return "the peak of this GPU is not in perfwrap's table"
        if self.counted_share < MIN_COUNTED_SHARE:
            return f"FLOPs are known for only {100 * self.counted_share:.0f} % of the matrix kernels' time"
        if self._at_peak is None:
            return "some kernels use a precision without a known peak on this GPU"
        if self._at_peak > 1.0:
            return (
                f"the result is {100 * self._at_peak:.0f} %, more than is possible: the recording misses kernels, "
                "the shapes include skipped work, or the GPU model is wrong"
            )
        return ""

    @cached_property
    def _at_peak(self) -> float | None:
        """Return the time at the peak over the recorded time; None if a precision has no peak."""
        if self.peaks is None or not self.window_ns:
            return None
        total = 0.0
        known = self.table.filter(pl.col("flops").is_not_null())
        for precision, flops in known.group_by("precision").agg(pl.col("flops").sum()).iter_rows():
            peak = self.peaks.flops(precision or "")
            if not peak:
                return None
            total += flops / peak
        return total / (self.window_ns / 1e9)

    def bound(self, row: dict[str, Any]) -> str | None:
        """Return compute or memory, from a row's distance to the balance point; None if unknown."""
        balance = self.peaks.balance(row["precision"] or "") if self.peaks else 0.0
        if not balance or not row["flops"] or not row["bytes"]:
            return None
        return "compute" if row["flops"] / row["bytes"] >= balance else "memory"


def find_matrix_work(evidence: Evidence, gpu: GpuActivity) -> MatrixWork | None:
    """Return the matrix work of a GPU; None if no sizes were recorded."""
    timeline = evidence.timeline
    threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent").is_in(gpu.processes))["id"]
    marks = timeline.marks.filter(pl.col("name") == MARK, pl.col("track").is_in(threads.to_list()))
    if marks.is_empty():
        return None
    end = (pl.col("start") + pl.col("duration")).alias("until")
    spans = timeline.spans.filter(pl.col("operation") == "op").select(
        pl.col("start").alias("time"), "track", pl.col("name").alias("op"), end
    )
    named = marks.select("time", "track", "detail").with_columns(
        pl.col("detail").str.json_path_match("$.op").alias("op")
    )
    calls = named.join(spans, on=["time", "track", "op"]).unique(["time", "track"]).sort("time")
    kernels = gpu.events.table.filter(KERNEL)
    length = (pl.col("end") - pl.col("start")).alias("ns")
    launched = kernels.filter(pl.col("launched").is_not_null()).select(
        "launched", pl.col("thread").alias("track"), length, "class", "tensor", "name"
    )
    joined = launched.sort("launched").join_asof(
        calls, left_on="launched", right_on="time", by="track", strategy="backward", check_sortedness=False
    )
    inside = joined.filter(pl.col("launched") < pl.col("until"))
    matrix_ns = int(kernels.filter(pl.col("class").is_in(MATRIX)).select(length.sum()).item() or 0)
    return MatrixWork(_table(inside), gpu.window_ns, matrix_ns, peaks_of(gpu))


def _table(inside: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of COLUMNS from the kernels that operations launched."""
    matrix = pl.col("class").is_in(MATRIX)
    groups = inside.group_by("detail").agg(
        pl.struct("time", "track").n_unique().alias("calls"),
        pl.col("ns").filter(matrix).sum().alias("ns"),
        # From the longest of its matrix kernels.
        pl.col("tensor").filter(matrix).sort_by(pl.col("ns").filter(matrix)).last().alias("tensor"),
        pl.col("name").filter(matrix).sort_by(pl.col("ns").filter(matrix)).last().alias("kernel"),
    )
    found = [(matrix_of(row["detail"]), row) for row in groups.iter_rows(named=True)]
    passes = forward_flops(matrix for matrix, _ in found if matrix is not None)
    rows = [_row(_completed(matrix, passes), row) for matrix, row in found if matrix is not None]
    table = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    return table.sort("ns", "op", "sizes", descending=[True, False, False])


def _completed(matrix: Matrix, passes: dict[Any, tuple[float, float | None]]) -> Matrix:
    """Return a convolution's forward pass with the FLOPs from its backward pass."""
    if matrix.kind != "conv" or matrix.flops is not None or matrix.key not in passes:
        return matrix
    flops, moved = passes[matrix.key]
    return replace(matrix, flops=flops, bytes=moved)


def _row(matrix: Matrix, row: dict[str, Any]) -> tuple[Any, ...]:
    """Return one row of COLUMNS."""
    calls = row["calls"]
    return (
        matrix.op,
        matrix.sizes,
        matrix.kind,
        _precision(matrix.bits, row["tensor"]),
        calls,
        matrix.flops and matrix.flops * calls,
        matrix.bytes and matrix.bytes * calls,
        row["ns"],
        bool(matrix.unaligned),
        row["kernel"],
    )


def _precision(bits: int | None, tensor: bool | None) -> str | None:
    """Return the precision of the work: half, tf32 or fp32; None if unknown."""
    if bits == HALF:
        return "half"
    if bits == 32:
        return "tf32" if tensor else "fp32"
    return None
