"""Reads what was in a GPU's memory: torch's own snapshots, and what the recorder wrote when memory ran out.

A snapshot is a pickle of plain dictionaries, lists, tuples, numbers and texts. torch's is described at
``torch.cuda.memory._snapshot`` and written by ``_dump_snapshot`` (seen: PyTorch 2.6 to 2.8); the recorder's by
``probes/memory.py``. A pickle can run any code when it is loaded plainly, so these are never loaded: ``plain_pickle``
reads what is plain data in them, and refuses all else.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from perfwrap.errors import PerfwrapError
from perfwrap.sources.plain_pickle import loads

LIVE = "active_allocated"
LARGEST_FILE = 128 << 20
"""Bytes; a pickle needs a multiple of its size in memory."""
LEAST_BYTES = 8
"""A block takes so many in a file at least; a file with more blocks names the same ones again and again."""
MOST_FRAMES = 10_000
"""Of a stack."""
LARGEST = 1 << 62

Frame = tuple[str, int, str]
"""File, line and function."""


@dataclass(frozen=True)
class Group:
    """Live blocks that the same Python lines asked for; ``stack`` has the innermost first, () when unknown."""

    size: int
    count: int
    stack: tuple[Frame, ...]


@dataclass(frozen=True)
class MemorySnapshot:
    """What was allocated; ``groups`` has the largest first, and for a recorder's file only the top.

    ``asked``, ``limit`` and ``free`` are bytes, known where the file was written because memory had run out.
    """

    allocated: int | None
    reserved: int | None
    groups: tuple[Group, ...]
    device: int | None = None
    asked: int | None = None
    limit: int | None = None
    free: int | None = None


def read_snapshot(path: Path) -> MemorySnapshot:
    """Return what a snapshot file says; PerfwrapError when it is none or would run code."""
    if path.stat().st_size > LARGEST_FILE:
        raise PerfwrapError(f"{path} is too large to be read as a memory snapshot", "Is it one?")
    return parse_snapshot(path.read_bytes(), str(path))


def parse_snapshot(data: bytes, name: str) -> MemorySnapshot:
    """Return what the bytes of a snapshot say; ``name`` is for the message of what is refused."""
    try:
        content = loads(data)
        most = len(data) // LEAST_BYTES
        return _recorded(content, most) if "perfwrap" in content else _dumped(content, most)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise PerfwrapError(
            f"{name} is not a memory snapshot that can be read: {error}",
            "Snapshots hold plain data only; a file that asks for code is never loaded.",
        ) from error


def _recorded(content: dict[str, Any], most: int) -> MemorySnapshot:
    counters = content["counters"]
    stacks = _Stacks()
    groups = [
        Group(_number(size), _number(count), stacks(stack))
        for size, count, stack in islice(content["top"], most)
    ]
    return MemorySnapshot(
        counters.get("allocated_bytes"),
        counters.get("reserved_bytes"),
        tuple(groups),
        content["device"],
        content["asked_bytes"],
        content["limit_bytes"],
        content["free_bytes"],
    )


def _dumped(content: dict[str, Any], most: int) -> MemorySnapshot:
    reserved = sum(_number(segment["total_size"]) for segment in islice(content["segments"], most))
    blocks = (block for segment in content["segments"] for block in segment["blocks"])
    # Blocks that the same lines asked for share their frames.
    sums: dict[int, list[int]] = {}
    frames: dict[int, Any] = {}
    for block in islice(blocks, most):
        if block["state"] == LIVE:
            own = block.get("frames", ())
            frames[id(own)] = own
            total = sums.setdefault(id(own), [0, 0])
            total[0] += _number(block["size"])
            total[1] += 1
    stacks = _Stacks()
    merged: dict[tuple[Frame, ...], list[int]] = {}
    for number, (size, count) in sums.items():
        total = merged.setdefault(stacks(frames[number]), [0, 0])
        total[0] += size
        total[1] += count
    groups = [Group(size, count, stack) for stack, (size, count) in merged.items()]
    groups.sort(key=lambda group: -group.size)
    return MemorySnapshot(sum(size for size, _ in sums.values()), reserved, tuple(groups))


class _Stacks:
    """Gives the Python frames of a stack; C++'s, which have no line, say nothing to a reader."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Frame, ...]] = {}

    def __call__(self, frames: Any) -> tuple[Frame, ...]:
        """Return file, line and function of each frame; the same list is looked at once."""
        if id(frames) not in self._known:
            places = (
                (frame["filename"], frame["line"], frame["name"]) if isinstance(frame, dict) else frame
                for frame in islice(frames, MOST_FRAMES)
            )
            self._known[id(frames)] = tuple(
                (file, _number(line), name)
                for file, line, name in places
                if isinstance(file, str) and isinstance(name, str) and file.endswith(".py")
            )
        return self._known[id(frames)]


def _number(value: Any) -> int:
    """Return a number of bytes, of blocks, or of a line; ValueError for what is none."""
    if not isinstance(value, (int, float)) or not -LARGEST < value < LARGEST:
        raise ValueError("a number in it is none, or impossible")
    return int(value)
