"""Reads the content of GPU memory: torch's snapshots, and the files that the recorder wrote when memory ran out.

A snapshot is a pickle of plain dictionaries, lists, tuples, numbers and texts. torch's is described at
``torch.cuda.memory._snapshot`` and written by ``_dump_snapshot`` (seen: PyTorch 2.6 to 2.8); the recorder's by
``probes/gpu/memory.py``. Python's unpickler can run any code, so perfwrap parses pickles with its own reader
(``plain_pickle``), which refuses all classes and functions.

Many blocks and events share one list of ``frames``, so each list is parsed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from perfwrap.errors import PerfwrapError
from perfwrap.sources.gpu_memory.plain_pickle import loads
from perfwrap.sources.kineto.trace_words import plain_text
from perfwrap.sources.unpacked import Damaged, Unpacked

LIVE = "active_allocated"
FREE = "inactive"
LARGEST_FILE = 1 << 30
"""Bytes; reading a pickle needs a multiple of its size in memory."""
PIECE = 1 << 22
LARGEST_SIZE = 1 << 50
"""Bytes; no GPU memory is larger."""
MAX_ITEMS = 4_000_000
"""Maximum number of blocks, and of events; a few bytes of a pickle can represent many."""
LONGEST_STACK = 1_000
LATEST_US = 9 * 10**15
"""Microseconds; as nanoseconds they fit into 64 bits."""
LAST_LINE = (1 << 31) - 1

NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "/torch/", "/lib/python", "<frozen")

Frame = tuple[str, int, str]
"""File, line and function."""
BACKWARD: Frame = ("", 0, "backward pass")
"""Represents requests from a thread of the autograd engine: usually gradients."""
ENGINE = "torch::autograd::Engine"
Stack = tuple[Frame, ...]
"""The innermost first; () if unknown."""


class Group(NamedTuple):
    """Live blocks that the same Python lines requested."""

    size: int
    blocks: int
    stack: Stack


class DeviceMemory(NamedTuple):
    """Memory of torch's allocator on one device, in bytes.

    ``free`` is reserved and unused memory, ``largest_free`` its largest block, ``stuck`` the part of it in segments
    with live blocks: only expandable segments could return that part to the driver.
    """

    device: int
    allocated: int
    reserved: int
    free: int
    largest_free: int
    stuck: int


class MemoryEvent(NamedTuple):
    """One event of the allocator; ``time`` is in nanoseconds since 1970, None before PyTorch 2.1.

    ``size`` is the requested size. Only ``oom`` events (memory ran out) have ``device_free``.
    """

    device: int
    action: str
    size: int
    address: int
    time: int | None
    device_free: int | None = None
    stack: Stack = ()


class MemorySnapshot(Struct, frozen=True):
    """The allocated memory; ``groups`` has the largest first, in a recorder's file only the largest.

    ``asked``, ``limit`` and ``free`` are bytes, known if the file was written because memory ran out.
    ``devices``, ``events``, ``live`` (the size of each live block by device and address), ``held`` (what requested it)
    and ``settings`` (of the allocator) are in torch's own snapshots only.
    """

    allocated: int | None
    reserved: int | None
    groups: tuple[Group, ...]
    device: int | None = None
    asked: int | None = None
    limit: int | None = None
    free: int | None = None
    devices: tuple[DeviceMemory, ...] = ()
    events: tuple[MemoryEvent, ...] = ()
    live: dict[tuple[int, int], int] = field(default_factory=dict)
    held: dict[tuple[int, int], Stack] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)


def users_line(stack: Stack) -> Frame | None:
    """Return the innermost frame of the user's code; the innermost of all if there is none."""
    own = [frame for frame in stack if not any(part in frame[0] for part in NOT_THE_USERS)]
    return next(iter(own or stack), None)


def read_snapshot(path: Path) -> MemorySnapshot:
    """Return the content of a snapshot file, compressed or not; PerfwrapError if it is not one or would run code."""
    found, size = [], 0
    try:
        with Unpacked(path) as file:
            while (piece := file.read(PIECE)) and size <= LARGEST_FILE:
                found.append(piece)
                size += len(piece)
    except Damaged as error:
        raise PerfwrapError(f"{path.name} is truncated: {error}", "Copy it again.") from error
    if size > LARGEST_FILE:
        raise PerfwrapError(f"{path.name} is too large for a memory snapshot", "Check that it is one.")
    return parse_snapshot(b"".join(found), path.name)


def parse_snapshot(data: bytes, name: str) -> MemorySnapshot:
    """Return the content of a snapshot; ``name`` is used in error messages."""
    try:
        content = loads(data)
        return _recorded(content) if "perfwrap" in content else _dumped(content)
    except (
        AttributeError,
        IndexError,
        KeyError,
        MemoryError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise PerfwrapError(
            f"{name} cannot be read as a memory snapshot: {error}",
            "perfwrap loads plain data only. It refuses pickles that run code.",
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


def _dumped(content: dict[str, Any] | list[Any]) -> MemorySnapshot:
    """Return torch's own snapshot; ``torch.cuda.memory_snapshot()`` returns its segments alone."""
    whole: dict[str, Any] = {"segments": content} if isinstance(content, list) else content
    stacks = Stacks()
    blocks = Blocks(stacks)
    _refuse_many(segment["blocks"] for segment in whole["segments"])
    for segment in whole["segments"]:
        blocks.take(segment)
    settings = whole.get("allocator_settings") or {}
    devices = blocks.devices()
    return MemorySnapshot(
        sum(memory.allocated for memory in devices),
        sum(memory.reserved for memory in devices),
        blocks.groups(),
        devices=devices,
        events=tuple(_events(whole.get("device_traces") or (), stacks)),
        live=blocks.live,
        held=blocks.held,
        settings={
            key: value for key, value in settings.items() if isinstance(key, str) and isinstance(value, str)
        },
    )


class Blocks:
    """Sums the blocks of segments."""

    def __init__(self, stacks: Stacks) -> None:
        self.live: dict[tuple[int, int], int] = {}
        self.held: dict[tuple[int, int], Stack] = {}
        self._stacks = stacks
        self._groups: dict[Stack, list[int]] = {}
        self._devices: dict[int, list[int]] = {}

    def take(self, segment: dict[str, Any]) -> None:
        """Add the blocks of one segment."""
        device = int(segment.get("device") or 0)
        allocated, free = 0, [0]
        used = False
        for block in segment["blocks"]:
            size, state = _size(block["size"]), block["state"]
            used |= state != FREE
            if state == FREE:
                free.append(size)
            elif state == LIVE:
                allocated += size
                self._keep(device, size, block)
        held = self._devices.setdefault(device, [0, 0, 0, 0, 0])
        held[0] += allocated
        held[1] += _size(segment["total_size"])
        held[2] += sum(free)
        held[3] = max(held[3], *free)
        held[4] += sum(free) if used else 0

    def devices(self) -> tuple[DeviceMemory, ...]:
        """Return the memory of each device."""
        return tuple(DeviceMemory(device, *held) for device, held in sorted(self._devices.items()))

    def groups(self) -> tuple[Group, ...]:
        """Return the live blocks grouped by the lines that requested them, the most memory first."""
        found = [Group(size, count, stack) for stack, (size, count) in self._groups.items()]
        return tuple(sorted(found, key=lambda group: -group.size))

    def _keep(self, device: int, size: int, block: dict[str, Any]) -> None:
        """Keep one live block."""
        place = device, int(block.get("address") or 0)
        stack = _block_stack(block, self._stacks)
        self.live[place], self.held[place] = size, stack
        total = self._groups.setdefault(stack, [0, 0])
        total[0] += size
        total[1] += 1


def _refuse_many(parts: Iterable[Any]) -> None:
    """Raise ValueError for too many parts: a small file can repeat the same part many times."""
    if sum(1 + len(part) for part in parts) > MAX_ITEMS:
        raise ValueError("it contains too many blocks or events")


def _block_stack(block: dict[str, Any], stacks: Stacks) -> Stack:
    """Return the stack that requested a block; before PyTorch 2.1 it was in the block's history."""
    history: Any = block.get("history") or ({},)
    return stacks.of(block.get("frames") or history[0].get("frames") or ())


def _events(traces: Any, stacks: Stacks) -> Iterator[MemoryEvent]:
    """Return the events of each device, in order of time."""
    _refuse_many(traces)
    for device, trace in enumerate(traces):
        for entry in trace:
            action, time = entry["action"], entry.get("time_us")
            ended = action == "oom"
            yield MemoryEvent(
                device,
                str(action)[:40],
                _size(entry.get("size") or 0),
                int(entry.get("addr") or 0),
                time * 1000 if type(time) is int and 0 < time < LATEST_US else None,
                _size(entry.get("device_free") or 0) if ended else None,
                stacks.of(entry.get("frames") or ()),
            )


class Stacks:
    """Converts lists of frames to stacks, each list once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Stack]] = {}

    def of(self, frames: Any) -> Stack:
        """Return the stack of a list of torch's frames."""
        # Keep the list, so that no other list gets the same id().
        if id(frames) not in self._known:
            found = [(frame["filename"], frame["line"], frame["name"]) for frame in frames[:LONGEST_STACK]]
            self._known[id(frames)] = frames, _stack(found) or _engines(found)
        return self._known[id(frames)][1]


def _engines(frames: list[tuple[Any, Any, Any]]) -> Stack:
    """Return the frame that represents the backward pass, whose threads have no Python; () if it is not one."""
    return (BACKWARD,) if any(isinstance(name, str) and ENGINE in name for _, _, name in frames) else ()


def _size(value: Any) -> int:
    """Return a number of bytes; ValueError if it is not one."""
    if type(value) is not int or not 0 <= value <= LARGEST_SIZE:
        raise ValueError("one of its sizes is not a number of bytes")
    return value


def _stack(frames: Any) -> Stack:
    """Return the Python frames; C++ frames have no line and are dropped."""
    return tuple(
        (plain_text(file), min(max(0, int(line)), LAST_LINE), plain_text(name))
        for file, line, name in frames
        if isinstance(file, str) and isinstance(name, str) and file.endswith(".py")
    )
