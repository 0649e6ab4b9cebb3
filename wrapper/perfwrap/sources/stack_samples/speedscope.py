"""Reads speedscope files: sampled stacks and recorded calls, of py-spy and other tools.

Described at https://www.speedscope.app/file-format-schema.json; seen: py-spy 0.4, and files of version 0.0.1 to 0.7.

A ``sampled`` profile has stacks with weights in its unit, an ``evented`` one frames that open and close. Their times
start at 0 at the profile's beginning, on an unknown clock. Times of py-spy are less accurate: it samples at random
intervals but writes each sample as if it had lasted the mean interval, so the error adds up to one or two seconds
per minute at 20 Hz.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from perfwrap.sources.stack_samples.frames import Frame, append, columns, make_frame
from perfwrap.sources.unpacked import whole
from perfwrap.timeline.builder import TimelineBuilder

SOURCE = "speedscope"
SCHEMA = b"speedscope.app/file-format-schema.json"
UNITS = {"seconds": 1e9, "milliseconds": 1e6, "microseconds": 1e3, "nanoseconds": 1.0}
"""Nanoseconds of each unit; weights in bytes or without a unit are not times."""
THREAD = re.compile(
    r'^(?:Process (?P<pid>[0-9]{1,18}) )?Thread (?P<id>0x[0-9A-Fa-f]+|[0-9]{1,18})(?: "(?P<name>.*)")?$'
)
"""py-spy's names of profiles."""
LONGEST_NS = float(1 << 62)
MAX_BYTES = 256 << 20
"""After decompression; py-spy writes some megabytes per hour."""
DAMAGED = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)
"""Exceptions of a profile that does not follow the format."""


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is a speedscope file, by its content."""
    return head.lstrip()[:1] == b"{" and SCHEMA in head.replace(b"\\/", b"/")


def add(builder: TimelineBuilder, path: Path) -> None:
    """Add every profile of the file; a profile that cannot be read is skipped with a warning."""
    try:
        content = json.loads(whole(path, MAX_BYTES))
        frames = [
            make_frame(frame["name"], frame.get("file"), frame.get("line"))
            for frame in content["shared"]["frames"]
        ]
        profiles = list(content["profiles"])
    except (OSError, EOFError, RecursionError, *DAMAGED) as error:
        builder.warn(f"{path.name} cannot be read as a speedscope file: {type(error).__name__}: {error}.")
        return
    for number, profile in enumerate(profiles):
        try:
            _add_profile(builder, path.name, number, profile, frames)
        except DAMAGED as error:
            builder.warn(f"Profile {number + 1} of {path.name} was skipped: {type(error).__name__}: {error}.")
    exporter = str(content.get("exporter") or "")
    doubt = (
        ", and may be off by seconds because py-spy samples at random intervals"
        if "py-spy" in exporter
        else ""
    )
    builder.warn(f"The times in {path.name} start at 0, on an unknown clock{doubt}.")


def _add_profile(
    builder: TimelineBuilder, file: str, number: int, profile: dict[str, Any], frames: list[Frame]
) -> None:
    """Add the stacks of one profile, on its own thread."""
    scale = UNITS.get(profile.get("unit", ""), 0.0)
    found = list(_sampled(profile) if profile["type"] == "sampled" else _evented(profile))
    period = median([weight for _, _, weight in found if weight > 0] or [1.0])
    first = float(profile.get("startValue") or 0.0)
    rows: dict[str, list[Any]] = {name: [] for name in ("time", "weight", *columns(()))}
    described = lru_cache(maxsize=None)(lambda places: columns([frames[place] for place in places]))
    for places, at, weight in found:
        if min(places, default=0) < 0:
            raise IndexError("a frame's number is negative")
        time = (at - (first if profile["type"] == "sampled" else 0.0)) * scale
        if not 0 <= time < LONGEST_NS:
            raise ValueError(f"a time is out of range: {at}")
        append(rows, {"time": round(time), "weight": max(1, round(weight / period)), **described(places)})
    size = len(rows["time"])
    if size:
        track = _thread(builder, file, number, str(profile.get("name") or f"profile {number + 1}"))
        builder.add("stacks", {**rows, "track": [track] * size, "source": [SOURCE] * size})


def _sampled(profile: dict[str, Any]) -> Iterator[tuple[tuple[int, ...], float, float]]:
    """Return frames, time and weight of each sample."""
    at = float(profile.get("startValue") or 0.0)
    for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
        if sample:
            yield tuple(sample), at, float(weight)
        at += float(weight)


def _evented(profile: dict[str, Any]) -> Iterator[tuple[tuple[int, ...], float, float]]:
    """Return frames, time and duration of each interval between two events."""
    stack: list[int] = []
    since = float(profile.get("startValue") or 0.0)
    begin = since
    for event in profile["events"]:
        at = float(event["at"])
        if at > since and stack:
            yield tuple(stack), since - begin, at - since
        since = max(since, at)
        if event["type"] == "O":
            stack.append(event["frame"])
        elif stack:
            stack.pop()


def _thread(builder: TimelineBuilder, file: str, number: int, name: str) -> int:
    """Return the track of a profile, with the thread's id if its name contains it."""
    found = THREAD.match(name)
    pid = int(found["pid"]) if found and found["pid"] else 0
    process = builder.process(SOURCE, pid, file)
    if not pid:
        builder.describe(process, name=file, pid=None)
    native = int(found["id"]) if found and found["id"].isdecimal() else None
    return builder.thread(process, number, (found["name"] if found else None) or name, native)
