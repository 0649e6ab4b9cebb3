"""Reads collapsed stacks of ``py-spy record --format raw`` and other samplers.

One line per different stack, ``frame;frame;… count``, the outermost frame first; no times at all. Described at
https://github.com/brendangregg/FlameGraph; seen: py-spy 0.4, whose frames are ``function (file:line)``, with a frame
``thread (id): name`` before them with ``--threads`` and ``process pid:"command"`` with ``--subprocesses``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from perfwrap.sources.journals.log_lines import LogLines
from perfwrap.sources.stack_samples.frames import Frame, append, columns, make_frame
from perfwrap.sources.stack_samples.pyspy_trace import THREAD, thread_track
from perfwrap.timeline.builder import TimelineBuilder

SOURCE = "collapsed stacks"
FRAME = re.compile(r"^(?P<function>.*?)(?: \((?P<file>[^()]*?)(?::(?P<line>\d+))?\))?$")
LINE = re.compile(rb"^\S.*\(.*\)(;.*)? \d{1,15}$")
"""At least one frame has a file or a thread: otherwise any text with a number at its end would match."""
EMPTY = re.compile(rb"^ \d{1,15}$")
"""A sample without a stack: py-spy writes one where ``--nonblocking`` read a stack that was changing."""
HEAD_LINES = 5
PROCESS = "process "
MAX_BYTES, MAX_STACKS, LONGEST_LINE = 1 << 30, 10_000_000, 1 << 20
"""Maximum bytes of a file, and of a line, which is one stack."""


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file contains collapsed stacks, by its first lines."""
    lines = head.splitlines()[: HEAD_LINES + 1]
    # The head's last line may be truncated.
    whole = lines[:-1] if len(lines) > 1 and not head.endswith(b"\n") else lines
    stacks = [line for line in whole if not EMPTY.match(line)]
    return bool(stacks) and head[:1] not in (b"{", b"[") and all(LINE.match(line) for line in stacks)


def add(builder: TimelineBuilder, path: Path) -> None:
    """Add the stacks and how often each was sampled, without times."""
    process = builder.process("collapsed", 0, path.name)
    builder.describe(process, name=path.name, pid=None)
    rows: dict[str, list[Any]] = {name: [] for name in ("track", "weight", *columns(()))}
    bad = empty = 0
    for line in LogLines(builder, MAX_BYTES, MAX_STACKS, LONGEST_LINE).of(path):
        stack, _, count = line.rpartition(" ")
        if not (count.isascii() and count.isdecimal()) or len(count) > 15 or not (stack or line[:1] == " "):
            bad += bool(line.strip())
            continue
        if not stack:
            empty += int(count)
            continue
        thread, frames = split_threads([parse_frame(text) for text in stack.split(";")])
        track = thread_track(builder, process, thread)
        append(rows, {"track": track, "weight": int(count), **columns(frames)})
    size = len(rows["track"])
    if size:
        builder.add("stacks", {**rows, "time": [0] * size, "source": [SOURCE] * size})
    builder.warn(f"{path.name} contains no times: its stacks are counted, but not aligned with other data.")
    if empty:
        builder.warn(f"{empty} samples of {path.name} have no stack; they were not counted.")
    if bad:
        builder.warn(f"{bad} lines of {path.name} are not collapsed stacks; they were skipped.")


def split_threads(frames: list[Frame]) -> tuple[str, list[Frame]]:
    """Return the name of the thread, if an outermost frame contains it, and the frames below."""
    thread = "thread"
    while frames and (frames[0].function.startswith(PROCESS) or THREAD.match(frames[0].function)):
        thread = frames[0].function
        frames = frames[1:]
    return thread, frames


def parse_frame(text: str) -> Frame:
    """Return the frame of ``function (file:line)``; the file may be missing."""
    found = FRAME.match(text)
    if found is None or THREAD.match(text) or text.startswith(PROCESS):
        return Frame(text, "", 0)
    return make_frame(found["function"], found["file"] or "", int((found["line"] or "0")[:12]))
