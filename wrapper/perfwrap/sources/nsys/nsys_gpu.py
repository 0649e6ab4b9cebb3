"""GPU work in an nsys capture: kernels, copies, memory sets and whole graphs, on the streams' tracks."""

from __future__ import annotations

import polars as pl

from perfwrap.sources.nsys.nsys_capture import SOURCE, Capture

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH)
PLACE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")

COPIES = {
    "HTOD": "h2d",
    "DTOH": "d2h",
    "HTOA": "h2d",
    "ATOH": "d2h",
    "ATOA": "d2d",
    "ATOD": "d2d",
    "DTOA": "d2d",
    "DTOD": "d2d",
    "HTOH": "h2h",
    "PTOP": "p2p",
}
"""Operations by the endings of the names of directions; an array is GPU memory."""
COPY_KIND = "CUDA_MEMCPY_KIND_"
KNOWN_COPIES = {f"{COPY_KIND}{name}": number for number, name in enumerate(COPIES, start=1)}
"""CUPTI's CUpti_ActivityMemcpyKind, for exports without enumeration tables (before 3.0)."""


def add(capture: Capture) -> pl.DataFrame:
    """Add all GPU work; return pid, deviceId, link, start, end and is_kernel of each row."""
    pieces = [_kernels(capture), _copies(capture), _memsets(capture), _graphs(capture)]
    return pl.concat(pieces)


def _kernels(capture: Capture) -> pl.DataFrame:
    """Add the kernels with their most specific name: a template's short name is often just ``Kernel``."""
    names = {"demangledName": ("shortName", "mangledName")}
    added = []
    for rows in capture.file.pieces(KERNEL, integers=(*PLACE, *names), instead=names):
        name = capture.file.strings(rows["demangledName"]).fill_null("kernel without a name")
        added.append(_add(capture, rows.with_columns(name=name), "kernel", operation=pl.lit("kernel")))
    return pl.concat(added)


def _copies(capture: Capture) -> pl.DataFrame:
    """Add the copies with their direction and bytes."""
    rows = capture.file.read(MEMCPY, integers=(*PLACE, "copyKind", "bytes"))
    kinds = capture.file.numbers(("ENUM_CUDA_MEMCPY_OPER",), KNOWN_COPIES)
    operations = {
        number: COPIES.get(name.removeprefix(COPY_KIND).removeprefix("UVM_"), "copy")
        for name, number in kinds.items()
    }
    # A copy without a direction is kept.
    operation = pl.col("copyKind").replace_strict(
        list(operations), list(operations.values()), default="copy", return_dtype=pl.String
    )
    rows = rows.with_columns(operation.fill_null("copy").alias("name"))
    return _add(capture, rows, "copy", operation=pl.col("name"), value=pl.col("bytes"))


def _memsets(capture: Capture) -> pl.DataFrame:
    """Add memory sets with their bytes."""
    rows = capture.file.read(MEMSET, integers=(*PLACE, "bytes")).with_columns(name=pl.lit("memset"))
    return _add(capture, rows, "memset", operation=pl.lit("memset"), value=pl.col("bytes"))


def _graphs(capture: Capture) -> pl.DataFrame:
    """Add CUDA graphs that nsys recorded as a whole: one span represents all kernels of a launch."""
    rows = capture.file.read(GRAPH, integers=(*PLACE, "graphId"))
    name = pl.concat_str(pl.lit("CUDA graph "), pl.col("graphId").cast(pl.String).fill_null(""))
    if rows.height:
        capture.builder.warn(
            "nsys recorded each CUDA graph as a whole, without its kernels. "
            "`--nsys=--cuda-graph-trace=node` records each kernel."
        )
    return _add(capture, rows.with_columns(name=name), "kernel", operation=pl.lit("graph"))


def _add(
    capture: Capture,
    rows: pl.DataFrame,
    category: str,
    operation: pl.Expr,
    value: pl.Expr | None = None,
) -> pl.DataFrame:
    """Add the rows that have a start and an end, and return them as ``add`` does."""
    rows = rows.filter(pl.col("start").is_not_null(), pl.col("end") >= pl.col("start"))
    rows = rows.with_columns(capture.pids(rows["globalPid"]))
    rows = rows.with_columns(capture.links(rows["pid"], rows["correlationId"]))
    if rows.height:
        capture.builder.add(
            "spans",
            rows.select(
                capture.times(rows["start"]),
                (pl.col("end") - pl.col("start")).alias("duration"),
                capture.stream_tracks(rows).alias("track"),
                "name",
                pl.lit(category).alias("category"),
                operation.alias("operation"),
                "link",
                (pl.lit(None, pl.Int64) if value is None else value).alias("value"),
                pl.lit(SOURCE).alias("source"),
            ),
        )
    is_kernel = pl.lit(category == "kernel").alias("is_kernel")
    return rows.select(pl.col("pid").cast(pl.Int32), "deviceId", "link", "start", "end", is_kernel)
