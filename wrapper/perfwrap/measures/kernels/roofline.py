"""What limits each kernel that ncu measured: compute, memory, both, or neither.

The thresholds are those of ncu's own rule (``SpeedOfLight.py``, SOLBottleneck): below 60 % of both peaks a kernel waits
for something else, and peaks that are less than 10 points apart limit it together.
"""

from __future__ import annotations

import polars as pl

from perfwrap.measures.evidence import Evidence

MARK = "ncu"
LATENCY_BELOW = 0.60
"""Share of the peak; if compute and memory are both below, latency is the limit (ncu: latency_bound_threshold)."""
BALANCED_WITHIN = 0.10
"""Share of the peak; if they are closer together, compute and memory limit it together (ncu: balanced_threshold)."""
MIN_TENSOR_SHARE = 0.05
"""Share of the peak; the shared pipes of half-precision arithmetic show less even without a matrix product."""

SHARES = ("compute_share", "memory_share", "dram_share", "occupancy_share", "tensor_share", "stall_share")
SCHEMA: dict[str, pl.DataType] = {
    "kernel": pl.String(),
    "duration_ns": pl.Int64(),
    **dict.fromkeys(SHARES, pl.Float64()),
    "stall": pl.String(),
    "arithmetic": pl.String(),
}


def roofline(evidence: Evidence) -> pl.DataFrame:
    """Return a row for each kernel by name, the longest first; empty if ncu measured nothing.

    Columns: kernel, launches (measured ones), duration_ns (their sum), the shares of the GPU's peak as means over
    that time, stall and arithmetic of the longest launch, bound (compute, memory, balanced, latency; null if not
    measured) and uses_tensor_cores.
    """
    details = evidence.timeline.marks.filter(pl.col("name") == MARK)["detail"].drop_nulls()
    launches = pl.DataFrame({"detail": details}).select(
        pl.col("detail").str.json_decode(pl.Struct(SCHEMA)).alias("launch")
    )
    rows = launches.unnest("launch").filter(pl.col("kernel").is_not_null())
    # A kernel of unknown duration counts like one of 1 ns.
    weight = pl.col("duration_ns").fill_null(1).clip(lower_bound=1)
    means = [
        ((pl.col(name) * weight).sum() / weight.filter(pl.col(name).is_not_null()).sum()).alias(name)
        for name in SHARES
    ]
    found = rows.group_by("kernel", maintain_order=True).agg(
        pl.len().alias("launches"),
        pl.col("duration_ns").sum(),
        *means,
        *(pl.col(name).sort_by(weight, descending=True).first() for name in ("stall", "arithmetic")),
    )
    return found.with_columns(
        *(pl.col(name).fill_nan(None) for name in SHARES),
    ).with_columns(
        _bound().alias("bound"), (pl.col("tensor_share") >= MIN_TENSOR_SHARE).alias("uses_tensor_cores")
    ).sort("duration_ns", descending=True, maintain_order=True)  # fmt: skip


def _bound() -> pl.Expr:
    """Return what limits a kernel."""
    compute, memory = pl.col("compute_share"), pl.col("memory_share")
    return (
        pl.when(compute.is_null() | memory.is_null())
        .then(None)
        .when((compute < LATENCY_BELOW) & (memory < LATENCY_BELOW))
        .then(pl.lit("latency"))
        .when((compute - memory).abs() < BALANCED_WITHIN)
        .then(pl.lit("balanced"))
        .when(compute > memory)
        .then(pl.lit("compute"))
        .otherwise(pl.lit("memory"))
    )
