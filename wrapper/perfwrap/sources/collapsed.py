"""Reads collapsed stacks, as ``py-spy record --format raw`` and other samplers write them.

One line per different stack, ``frame;frame;… count``, the outermost frame first; no times at all. Described at
https://github.com/brendangregg/FlameGraph; seen: py-spy 0.4, whose frames are ``function (file:line)``, with a frame
``thread (id): name`` before them when it was asked for threads and ``process pid:"command"`` for subprocesses.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from perfwrap.sources.frames import Frame, append, columns, make_frame
from perfwrap.sources.log_lines import LogLines
from perfwrap.sources.pyspy import THREAD, thread_track
from perfwrap.timeline.builder import TimelineBuilder

SOURCE = "collapsed stacks"
FRAME = re.compile(r"^(?P<function>.*?)(?: \((?P<file>[^()]*?)(?::(?P<line>\d+))?\))?$")
LINE = re.compile(rb"^\S.*\(.*\)(;.*)? \d{1,15}$")
"""At least one frame tells its file or its thread: without that, any text with a number at its end would do."""
HEAD_LINES = 5
PROCESS = "process "
MOST_BYTES, MOST_STACKS, LONGEST_LINE = 1 << 30, 10_000_000, 1 << 20
"""Of a file, and of a line, which holds one stack."""


def recognises(path: Path, head: bytes) -> bool:
    """Say whether a file holds collapsed stacks, by its first lines."""
    lines = head.splitlines()[: HEAD_LINES + 1]
    # The head's last line may have been cut short.
    whole = lines[:-1] if len(lines) > 1 and not head.endswith(b"\n") else lines
    return bool(whole) and head[:1] not in (b"{", b"[") and all(LINE.match(line) for line in whole)


def add(builder: TimelineBuilder, path: Path) -> None:
    """Add the stacks: what was seen how often, at no known time."""
    process = builder.process("collapsed", 0, path.name)
    builder.describe(process, name=path.name, pid=None)
    rows: dict[str, list[Any]] = {name: [] for name in ("track", "weight", *columns(()))}
    bad = 0
    for line in LogLines(builder, MOST_BYTES, MOST_STACKS, LONGEST_LINE).of(path):
        stack, _, count = line.rpartition(" ")
        if not stack or not (count.isascii() and count.isdigit()) or len(count) > 15:
            bad += bool(line.strip())
            continue
        thread, frames = split_threads([parse_frame(text) for text in stack.split(";")])
        track = thread_track(builder, process, thread)
        append(rows, {"track": track, "weight": int(count), **columns(frames)})
    size = len(rows["track"])
    if size:
        builder.add("stacks", {**rows, "time": [0] * size, "source": [SOURCE] * size})
    builder.warn(f"{path.name} holds no times: its stacks can be counted but not set beside anything else.")
    if bad:
        builder.warn(f"{bad} lines of {path.name} are no collapsed stacks; they were left out.")


def split_threads(frames: list[Frame]) -> tuple[str, list[Frame]]:
    """Return the name of the thread, if the outermost frames tell it, and the frames below."""
    thread = "thread"
    while frames and (frames[0].function.startswith(PROCESS) or THREAD.match(frames[0].function)):
        thread = frames[0].function
        frames = frames[1:]
    return thread, frames


def parse_frame(text: str) -> Frame:
    """Return the frame that ``function (file:line)`` spells; the file may be missing."""
    found = FRAME.match(text)
    if found is None or THREAD.match(text) or text.startswith(PROCESS):
        return Frame(text, "", 0)
    return make_frame(found["function"], found["file"] or "", int((found["line"] or "0")[:12]))
