"""Reads what was in a GPU's memory: torch's own snapshots, and what the recorder wrote when memory ran out.

A snapshot is a pickle of plain dictionaries, lists, tuples, numbers and texts. torch's is described at
``torch.cuda.memory._snapshot`` and written by ``_dump_snapshot`` (seen: PyTorch 2.6 to 2.8); the recorder's by
``probes/memory.py``. A pickle can run any code when it is loaded plainly, so these are loaded by an unpickler that
knows no class and no function at all: whatever asks for one is refused.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfwrap.errors import PerfwrapError

LIVE = "active_allocated"
LARGEST_FILE = 1 << 30
"""Bytes; a pickle needs a multiple of its size in memory."""

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


class PlainUnpickler(pickle.Unpickler):
    """Loads numbers, texts and containers, and refuses everything else."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Refuse any class or function."""
        raise pickle.UnpicklingError(f"asks for {module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> Any:
        """Refuse references to things outside of the file."""
        raise pickle.UnpicklingError("asks for something outside of the file")


def read_snapshot(path: Path) -> MemorySnapshot:
    """Return what a snapshot file says; PerfwrapError when it is none or would run code."""
    if path.stat().st_size > LARGEST_FILE:
        raise PerfwrapError(f"{path} is too large to be read as a memory snapshot", "Is it one?")
    return parse_snapshot(path.read_bytes(), str(path))


def parse_snapshot(data: bytes, name: str) -> MemorySnapshot:
    """Return what the bytes of a snapshot say; ``name`` is for the message of what is refused."""
    try:
        content = PlainUnpickler(io.BytesIO(data)).load()
        return _recorded(content) if "perfwrap" in content else _dumped(content)
    except (
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise PerfwrapError(
            f"{name} is not a memory snapshot that can be read: {error}",
            "Snapshots hold plain data only; a file that asks for code is never loaded.",
        ) from error


def _recorded(content: dict[str, Any]) -> MemorySnapshot:
    counters = content["counters"]
    groups = [Group(int(size), int(count), _stack(stack)) for size, count, stack in content["top"]]
    return MemorySnapshot(
        counters.get("allocated_bytes"),
        counters.get("reserved_bytes"),
        tuple(groups),
        content["device"],
        content["asked_bytes"],
        content["limit_bytes"],
        content["free_bytes"],
    )


def _dumped(content: dict[str, Any]) -> MemorySnapshot:
    sums: dict[tuple[Frame, ...], list[int]] = {}
    allocated = reserved = 0
    for segment in content["segments"]:
        reserved += int(segment["total_size"])
        for block in segment["blocks"]:
            if block["state"] == LIVE:
                allocated += int(block["size"])
                frames = [
                    (frame["filename"], frame["line"], frame["name"]) for frame in block.get("frames", ())
                ]
                total = sums.setdefault(_stack(frames), [0, 0])
                total[0] += int(block["size"])
                total[1] += 1
    groups = [Group(size, count, stack) for stack, (size, count) in sums.items()]
    groups.sort(key=lambda group: -group.size)
    return MemorySnapshot(allocated, reserved, tuple(groups))


def _stack(frames: Any) -> tuple[Frame, ...]:
    """Return the Python frames; C++'s, which have no line, say nothing to a reader."""
    return tuple(
        (str(file), int(line), str(name)) for file, line, name in frames if str(file).endswith(".py")
    )
