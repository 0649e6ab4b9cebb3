"""Work of threads in an nsys capture: calls of CUDA, its libraries and the system, and NVTX ranges."""

from __future__ import annotations

import polars as pl

from perfwrap.sources.nsys.nsys_capture import SOURCE, Capture
from perfwrap.sources.nvtx_ranges import MARK, may_be_step, ranges

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"
CALL = ("start", "end", "globalTid", "nameId")
LIBRARIES = (
    ("OSRT_API", "osrt"),
    ("CUDNN_EVENTS", "cudnn"),
    ("CUBLAS_EVENTS", "cublas"),
    ("PROFILER_OVERHEAD", "overhead"),
    ("CUPTI_ACTIVITY_KIND_OVERHEAD", "overhead"),
)
"""Tables of calls, and the operation of each: the system, cuDNN, cuBLAS, and the profiler's own overhead."""
LAUNCH = r"(LaunchKernel|LaunchCooperativeKernel|GridAsync)"
"""Calls that start one kernel each; if the kernel is missing, its record was lost."""
VERSION_SUFFIX = r"(_ptsz|_ptds)?(_v\d{4,})?$"
"""nsys writes cudaLaunchKernel_v7000; _ptsz is the same call on a per-thread default stream."""
TABLES = (RUNTIME, NVTX, *(table for table, _ in LIBRARIES))
BEGAN = " profiling started"
"""Ending of the names of rows that are not calls."""

NVTX_TYPES = ("ENUM_NSYS_EVENT_TYPE", "ENUM_NVTX_EVENT_TYPE")
KNOWN_TYPES = {
    "NvtxMark": 34,
    "NvtxThread": 39,
    "NvtxPushPopRange": 59,
    "NvtxStartEndRange": 60,
    "NvtxDomainCreate": 75,
}
"""For exports without enumeration tables (before 3.0)."""
DOMAIN_BITS = 20


def add_calls(capture: Capture) -> pl.DataFrame:
    """Add the calls of the CUDA runtime and driver; return pid, link, start, end and is_launch of each."""
    added = []
    for rows in capture.file.pieces(RUNTIME, integers=(*CALL, "correlationId")):
        names = capture.file.strings(rows["nameId"], VERSION_SUFFIX).fill_null("CUDA call without a name")
        whole = _whole(rows.with_columns(names.alias("name")))
        whole = whole.with_columns(capture.pids(whole["globalTid"]))
        whole = whole.with_columns(capture.links(whole["pid"], whole["correlationId"]))
        _add(capture, whole, operation=pl.col("name"), link=pl.col("link"))
        known = whole["name"].unique()
        is_launch = (
            pl.col("name").is_in(known.filter(known.str.contains(LAUNCH)).implode()).alias("is_launch")
        )
        added.append(whole.select(pl.col("pid").cast(pl.Int32), "link", "start", "end", is_launch))
    return pl.concat(added)


def add_library_calls(capture: Capture) -> None:
    """Add the calls of the system and of CUDA libraries, and the profiler's own overhead."""
    for table, operation in LIBRARIES:
        for rows in capture.file.pieces(table, integers=CALL):
            if rows.is_empty():
                continue
            whole = _whole(rows.with_columns(capture.file.strings(rows["nameId"]).alias("name")))
            whole = whole.filter(~pl.col("name").fill_null("").str.ends_with(BEGAN))
            _add(capture, whole, operation=pl.lit(operation))


def add_nvtx(capture: Capture) -> int:
    """Add NVTX ranges and marks; return how many ranges had no end."""
    kinds = capture.file.numbers(NVTX_TYPES, KNOWN_TYPES)
    domains = _domains(capture, kinds)
    is_range = pl.col("eventType").is_in(
        [kinds.get("NvtxPushPopRange", -1), kinds.get("NvtxStartEndRange", -1)]
    )
    columns = ("start", "end", "eventType", "globalTid", "textId", "domainId")
    steps, unended = [], 0
    for piece in capture.file.pieces(NVTX, integers=columns, texts=("text",)):
        domain = _domain_keys(capture, piece).replace_strict(
            list(domains), list(domains.values()), default="", return_dtype=pl.String
        )
        rows = piece.select(
            "start", "end", "eventType", "globalTid", domain.alias("domain"), _names(capture, piece)
        )
        rows = rows.drop_nulls("start")
        unended += rows.filter(is_range, pl.col("end").is_null()).height
        whole = _whole(rows.filter(is_range))
        # Which of the steps are outermost, only all of them together show.
        is_step = may_be_step(whole["name"])
        steps.append(whole.filter(is_step))
        _add_ranges(capture, whole.filter(~is_step))
        _add_marks(capture, rows.filter(pl.col("eventType") == kinds.get("NvtxMark", -1)))
    _add_ranges(capture, pl.concat(steps))
    return unended


def _add_ranges(capture: Capture, rows: pl.DataFrame) -> None:
    """Add ranges with their meaning."""
    found = ranges(rows, is_recorded=capture.clock is not None)
    _add(
        capture,
        found,
        operation=pl.col("operation"),
        category=pl.col("category"),
        step=pl.col("step"),
    )


def _add_marks(capture: Capture, marks: pl.DataFrame) -> None:
    """Add moments that the program marked."""
    if marks.height:
        capture.builder.add(
            "marks",
            {
                "time": capture.times(marks["start"]),
                "track": capture.thread_tracks(marks["globalTid"]),
                "name": pl.repeat(MARK, marks.height, eager=True),
                "detail": marks["name"],
                "source": pl.repeat(SOURCE, marks.height, eager=True),
            },
        )


def _names(capture: Capture, rows: pl.DataFrame) -> pl.Series:
    """Return the name of each row: its own text or the one that it refers to."""
    texts = pl.coalesce("text", capture.file.strings(rows["textId"])).fill_null("range without a name")
    return rows.select(texts.alias("name"))["name"]


def _domains(capture: Capture, kinds: dict[str, int]) -> dict[int, str]:
    """Return the names of domains other than the default one by ``_domain_keys``; each process has its own numbers."""
    made = {"eventType": (kinds.get("NvtxDomainCreate", -1),)}
    # Without their starts: they may be before the part that is read.
    rows = capture.file.read(NVTX, integers=("globalTid", "textId", "domainId"), texts=("text",), only=made)
    keys = _domain_keys(capture, rows)
    return dict(zip(keys.to_list(), _names(capture, rows).to_list(), strict=True))


def _domain_keys(capture: Capture, rows: pl.DataFrame) -> pl.Series:
    """Return one number for each domain of each process."""
    keys: pl.Series = capture.pids(rows["globalTid"]) * (1 << DOMAIN_BITS) + rows["domainId"].fill_null(0)
    return keys


def _whole(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that have a start and an end."""
    return rows.filter(pl.col("start").is_not_null(), pl.col("end") >= pl.col("start"))


def _add(capture: Capture, rows: pl.DataFrame, operation: pl.Expr, **columns: pl.Expr) -> None:
    """Add the rows as spans of their threads."""
    if not rows.height:
        return
    category = columns.pop("category", pl.lit("other"))
    capture.builder.add(
        "spans",
        rows.select(
            capture.times(rows["start"]),
            (pl.col("end") - pl.col("start")).alias("duration"),
            capture.thread_tracks(rows["globalTid"]).alias("track"),
            pl.col("name"),
            category.alias("category"),
            operation.alias("operation"),
            *(value.alias(name) for name, value in columns.items()),
            pl.lit(SOURCE).alias("source"),
        ),
    )
