"""Reads TraceML's ``final_summary.json``: averages of a whole run, for each rank.

The format is described in traceml's ``src/traceml_ai/reporting/SCHEMA.md``; written for schema 1.7 to 1.9, whose timing
metrics are null if not measured. It contains no single steps: total times of phases become ``sums`` on the thread of
each rank (by the GPU's clock if TraceML chose that), everything else facts (``traceml/<section>/<metric>``) of the
rank or the host. TraceML's own diagnosis is shown unchanged, as a mark and a warning. Times are those of the wall
clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfwrap.sources.wall_times import find_time
from perfwrap.timeline.builder import TimelineBuilder

SOURCE = "traceml"
KNOWN_SCHEMA = 1.9
MAX_BYTES = 64 << 20
"""Bytes; a summary has some kilobytes for each rank."""
UNKNOWN_HOST = "unknown"

PHASES = {
    "input_wait_ms": ("data", "data"),
    "h2d_ms": ("transfer", "transfer"),
    "forward_ms": ("forward", "forward"),
    "backward_ms": ("backward", "backward"),
    "optimizer_ms": ("optimizer", "optimizer"),
}
"""The phases of a step that are not nested: category and operation of each."""


def recognises(path: Path, head: bytes) -> bool:
    """Return whether the file with that beginning is a final summary of TraceML."""
    begin = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1024]
    # TraceML's manifest has the same beginning, and no duration.
    keys = (b'"schema_version"', b'"generated_at"', b'"duration_s"')
    return begin.startswith(b"{") and all(key in begin for key in keys)


def add(builder: TimelineBuilder, path: Path) -> None:
    """Add the summary; for a truncated or other file only a warning."""
    summary = _read(builder, path)
    if summary is None:
        return
    schema = summary.get("schema_version")
    if isinstance(schema, (int, float)) and schema > KNOWN_SCHEMA:
        builder.warn(f"{path.name} has TraceML schema {schema}; this perfwrap supports {KNOWN_SCHEMA}.")
    stamp = find_time(str(summary.get("generated_at") or ""))
    end = stamp.nanoseconds if stamp else 0
    start = end - int((_number(summary.get("duration_s")) or 0) * 1e9)
    for section in ("system", "process", "step_time", "step_memory"):
        for identity, metrics in _rows(summary.get(section)):
            _add_row(builder, section, identity, metrics, end)
    _add_phases(builder, _section(summary, "step_time"), start, end)
    _add_diagnosis(builder, path.name, _section(summary, "primary_diagnosis"), end)
    if stamp is not None and not stamp.zoned:
        builder.warn(f"The time in {path.name} has no time zone; UTC is assumed.")
    builder.warn(f"{path.name} contains only averages: no single steps, and no lines of the program.")


def _read(builder: TimelineBuilder, path: Path) -> dict[str, Any] | None:
    """Return the document; None, with a warning, if it is not a summary."""
    if path.stat().st_size > MAX_BYTES:
        builder.warn(f"{path.name} is too large for a TraceML summary; it was skipped.")
        return None
    try:
        summary = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        builder.warn(f"{path.name} is truncated or damaged; it was skipped.")
        return None
    if not isinstance(summary, dict):
        builder.warn(f"{path.name} is not a TraceML summary; it was skipped.")
        return None
    return summary


def _section(summary: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of the document, empty if it is not an object."""
    found = summary.get(name)
    return found if isinstance(found, dict) else {}


def _rows(section: object) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """Return identity and measured metrics of each rank, or of each node."""
    groups = _section(section, "groups") if isinstance(section, dict) else {}
    for row in _section(groups, "rows").values():
        if isinstance(row, dict):
            metrics = {key: _number(value) for key, value in _section(row, "metrics").items()}
            known = {key: value for key, value in metrics.items() if value is not None}
            yield _section(row, "identity"), known


def _add_row(
    builder: TimelineBuilder, section: str, identity: dict[str, Any], metrics: dict[str, float], time: int
) -> None:
    """Add the metrics of one rank, or of one node, as facts."""
    track = builder.host(_host(identity)) if section == "system" else _process(builder, identity)
    for metric, value in metrics.items():
        text = f"{value:.9g}"
        builder.add_row(
            "facts", time=time, track=track, key=f"traceml/{section}/{metric}", value=text, source=SOURCE
        )


def _add_phases(builder: TimelineBuilder, section: dict[str, Any], start: int, end: int) -> None:
    """Add the total times of the phases over all steps of the window, on each rank's thread."""
    window = _section(_section(section, "global"), "window")
    steps = _number(window.get("steps_analyzed")) or 0
    for identity, metrics in _rows(section):
        thread = builder.thread(_process(builder, identity), 1, "training", None)
        for metric, (category, operation) in PHASES.items():
            if steps >= 1 and metric in metrics:
                builder.add_row(
                    "sums",
                    start=start,
                    end=end,
                    track=thread,
                    name=operation,
                    category=category,
                    operation=operation,
                    count=int(steps),
                    duration=round(metrics[metric] * 1e6 * int(steps)),
                    rest=False,
                    source=SOURCE,
                )


def _add_diagnosis(builder: TimelineBuilder, name: str, diagnosis: dict[str, Any], time: int) -> None:
    """Add TraceML's own diagnosis."""
    status, summary = diagnosis.get("status") or diagnosis.get("kind"), diagnosis.get("summary")
    if isinstance(status, str):
        detail = f"{status}: {summary}" if isinstance(summary, str) and summary else status
        host = builder.host(UNKNOWN_HOST)
        builder.add_row(
            "marks", time=time, track=host, name="traceml_diagnosis", detail=detail, source=SOURCE
        )
        builder.warn(f"TraceML's diagnosis in {name}: {detail}")


def _process(builder: TimelineBuilder, identity: dict[str, Any]) -> int:
    """Return the track of a rank; its pid is unknown, so the identity contains the rank instead."""
    rank = _number(identity.get("global_rank"))
    number = None if rank is None else int(rank)
    process = builder.process(_host(identity), 0, f"{SOURCE}-{number}")
    builder.describe(process, name=f"rank {number}", role="main", rank=number, pid=None)
    return process


def _host(identity: dict[str, Any]) -> str:
    """Return the name of a row's host."""
    name = identity.get("hostname")
    return name if isinstance(name, str) and name else UNKNOWN_HOST


def _number(value: object) -> float | None:
    """Return a number; None for null, words, NaN and infinities."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e18:
        return None
    return float(value) if math.isfinite(value) else None
