"""Facts and coverage of an nsys capture: versions, GPUs, what was recorded, and which records were lost."""

from __future__ import annotations

import polars as pl

from perfwrap.sources.nsys.nsys_capture import SOURCE, Capture

VERSION_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""Names and values about the export: since 2023, and before."""
FACTS = {"EXPORT_PRODUCT_VERSION": "nsys_version", "EXPORT_SCHEMA_VERSION": "nsys_schema"}
WATCHED = (
    ("kernels", "CUPTI_ACTIVITY_KIND_KERNEL"),
    ("cuda_calls", "CUPTI_ACTIVITY_KIND_RUNTIME"),
    ("nvtx", "NVTX_EVENTS"),
    ("osrt", "OSRT_API"),
)
"""What a capture can contain, and the table that is missing if it does not."""
SEVERITIES = {"Warning": 2, "Error": 3}
LOSS = r"(?i)(cuda|gpu).*(lost|dropped|overflow|might have been collected)|(lost|dropped).*(cuda|gpu)"
"""Messages of nsys about lost GPU records."""
LOST_SHARE = 0.01
"""Share of the launches without a warning: their kernels usually ran after the capture's end."""
MAX_NOTES = 20
EARLY_NS = 50_000
"""Maximum time by which work may start before its launch: in correct captures it follows after at least 4 us."""


def add(
    capture: Capture, work: pl.DataFrame, calls: pl.DataFrame, unended: int, part: str | None = None
) -> None:
    """Add facts and coverage; ``work`` is the GPU work, ``calls`` are the CUDA calls, ``part`` is what was read."""
    start, end = _window(capture, work, calls)
    host = capture.builder.host(capture.host)
    _add_versions(capture, host, start)
    _add_gpus(capture, work, start)
    for what, table in WATCHED:
        _cover(capture, what, host, start, end, table in capture.file.columns, 0, None)
    if part is not None:
        _cover(capture, SOURCE, host, start, end, True, None, f"{capture.path.name} {part}")
    _add_lost(capture, work, calls, start)
    _add_early(capture, work, calls, start, end)
    if not work["is_kernel"].any():
        capture.builder.warn(
            f"nsys captured no kernels in {capture.path.name}, so GPU utilization is unknown."
        )
    if unended:
        note = f"{unended} NVTX ranges were open at the end of the capture; they were skipped"
        _cover(capture, "nvtx", host, start, end, True, unended, note)
    _add_diagnostics(capture, host, start, end)
    for problem in capture.file.problems:
        _cover(capture, SOURCE, host, start, end, True, None, problem)
        capture.builder.warn(f"{capture.path.name} is damaged: {problem}.")
    if not capture.start_wall and capture.clock is not None:
        capture.builder.warn(
            f"{capture.path.name} has no start time, so its times cannot be aligned with the recording."
        )


def _window(capture: Capture, work: pl.DataFrame, calls: pl.DataFrame) -> tuple[int, int]:
    """Return when the capture, or the part that was read, began and ended, on the run's clock."""
    details = capture.file.read("ANALYSIS_DETAILS", integers=("duration",)).drop_nulls()
    first, last = 0, int(details["duration"][0]) if details.height else 0
    if capture.file.part is not None:
        first, last = capture.file.part
    for rows in (work, calls):
        if rows.height:
            first = min(first, int(rows["start"].min()))  # type: ignore[arg-type]
            last = max(last, int(rows["end"].max()))  # type: ignore[arg-type]
    return capture.moment(first), capture.moment(last)


def _add_versions(capture: Capture, host: int, at: int) -> None:
    """Add the version of nsys that wrote the file."""
    for table in VERSION_TABLES:
        said = capture.file.named(table)
        for name, key in FACTS.items():
            if name in said:
                capture.builder.add_row(
                    "facts", time=at, track=host, key=key, value=said[name], source=SOURCE
                )


def _add_gpus(capture: Capture, work: pl.DataFrame, at: int) -> None:
    """Add facts about the GPUs that were used; a file can list all GPUs of the machine."""
    listed = capture.file.read(
        "TARGET_INFO_GPU",
        integers=("id", "cuDevice", "totalMemory", "smCount", "computeMajor", "computeMinor"),
        texts=("name", "uuid"),
    )
    for pid, device in work.select("pid", "deviceId").unique(maintain_order=True).iter_rows():
        number = capture.gpu(pid, device or 0)
        track = capture.builder.device(capture.host, f"gpu/{number}")
        found = listed.filter(pl.col("cuDevice").fill_null(pl.col("id")) == (device or 0))
        if found.height != 1 or number != (device or 0):
            continue  # It is uncertain which GPU this was.
        row = found.row(0, named=True)
        facts = {
            "name": row["name"],
            "uuid": row["uuid"],
            "memory_total_bytes": row["totalMemory"],
            "multiprocessors": row["smCount"],
            "compute_capability": row["computeMajor"] and f"{row['computeMajor']}.{row['computeMinor'] or 0}",
        }
        for key, value in facts.items():
            if value:
                capture.builder.add_row(
                    "facts", time=at, track=track, key=key, value=str(value), source=SOURCE
                )


def _add_lost(capture: Capture, work: pl.DataFrame, calls: pl.DataFrame, start: int) -> None:
    """Add how many launches have no kernel: nsys lost records, or stopped before the GPU had finished."""
    launched = calls.filter("is_launch").select("pid", "link", "start")
    links = work.select("link")
    lost = launched.join(links, on="link", how="anti")
    if capture.file.part is not None:
        # What was launched last ran after the part that was read.
        ran_last = launched.join(links, on="link", how="semi")["start"].max()
        lost = lost.filter(pl.col("start") < (ran_last or 0))
    for pid in lost["pid"].unique(maintain_order=True).to_list():
        own = lost.filter(pl.col("pid") == pid)
        ran = work.filter(pl.col("pid") == pid)["end"].max()
        process = capture.process(pid)
        note = (
            f"{own.height} launches of process {pid} have no kernel in {capture.path.name}: "
            "nsys lost their records, or stopped before they ran"
        )
        end = start if ran is None else capture.moment(int(ran))  # type: ignore[arg-type]
        capture.builder.add_row(
            "coverage",
            what="kernels",
            track=process,
            start=start,
            end=end,
            lost=own.height,
            note=note,
            source=SOURCE,
        )
        if own.height > LOST_SHARE * launched.filter(pl.col("pid") == pid).height:
            capture.builder.warn(f"{note}. Figures of that GPU are valid until its last recorded kernel.")


def _add_early(capture: Capture, work: pl.DataFrame, calls: pl.DataFrame, start: int, end: int) -> None:
    """Add where GPU work starts before its launch: nsys has a wrong GPU clock, so idle time has no known cause."""
    called = calls.select("link", pl.col("start").alias("called"))
    pairs = work.select("pid", "link", "start").join(called, on="link")
    early = pairs.group_by("pid", maintain_order=True).agg(
        (pl.col("called") - pl.col("start")).max().alias("by")
    )
    for pid, by in early.filter(pl.col("by") > EARLY_NS).iter_rows():
        process = capture.process(pid)
        note = f"GPU work of process {pid} starts before the calls that launched it: the GPU clock is wrong"
        capture.builder.add_row(
            "coverage", what="gpu_clock", track=process, start=start, end=end, note=note, source=SOURCE
        )
        capture.builder.add_row(
            "facts", time=start, track=process, key="gpu_clock_early_ns", value=str(by), source=SOURCE
        )
        capture.builder.warn(
            f"In {capture.path.name}, {note}. GPU utilization is valid, but do not compare GPU and host times."
        )


def _add_diagnostics(capture: Capture, host: int, start: int, end: int) -> None:
    """Add nsys's own warnings; those about lost records are shown to the user."""
    levels = capture.file.numbers(("ENUM_DIAGNOSTIC_SEVERITY_LEVEL",), SEVERITIES)
    rows = capture.file.read("DIAGNOSTIC_EVENT", integers=("severity",), texts=("text",)).drop_nulls()
    serious = [levels[name] for name in SEVERITIES if name in levels]
    counts = rows.filter(pl.col("severity").is_in(serious)).group_by("text", maintain_order=True).len()
    for text, count in counts.head(MAX_NOTES).iter_rows():
        note = " ".join(text.split())
        _cover(
            capture, SOURCE, host, start, end, True, None, note if count == 1 else f"{note} ({count} times)"
        )
    for text in counts.filter(pl.col("text").str.contains(LOSS))["text"].to_list():
        capture.builder.warn(f"nsys says about {capture.path.name}: {' '.join(text.split())}")


def _cover(
    capture: Capture,
    what: str,
    track: int,
    start: int,
    end: int,
    is_there: bool,
    lost: int | None,
    note: str | None,
) -> None:
    """Add a row of coverage; its duration is 0 if nothing was recorded."""
    capture.builder.add_row(
        "coverage",
        what=what,
        track=track,
        start=start,
        end=end if is_there else start,
        lost=lost if is_there else None,
        note=note if is_there else f"{capture.path.name} contains no {what}",
        source=SOURCE,
    )
