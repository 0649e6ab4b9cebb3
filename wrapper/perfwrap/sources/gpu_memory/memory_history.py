"""Allocated and reserved memory of a device over time, from the events in a torch snapshot.

The events may begin anywhere in the run, but they end at the snapshot, whose content is known: so the sums are
computed backwards from there. Events contain the requested sizes. Blocks that are still alive count with their real
size, others with their size rounded up to ROUNDED, as the allocator does for all but the largest blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from perfwrap.sources.gpu_memory.memory_snapshot import DeviceMemory, Group, MemoryEvent, Stack

ROUNDED = 512
"""Bytes; ``kMinBlockSize`` of CUDACachingAllocator."""
ALLOCATED = {"alloc": 1, "free_requested": -1}
RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
"""Whether an event adds to the sum or subtracts from it; all other events do neither."""


def find_history(
    events: Sequence[MemoryEvent], memory: DeviceMemory, live: dict[tuple[int, int], int]
) -> pl.DataFrame:
    """Return a row for each event of one device: time, allocated and reserved after it; time is null if unknown."""
    sizes = _sizes(events, live)
    columns = {
        name: _backwards(
            [sign.get(event.action, 0) * size for event, size in zip(events, sizes, strict=True)], last
        )
        for name, sign, last in (
            ("allocated", ALLOCATED, memory.allocated),
            ("reserved", RESERVED, memory.reserved),
        )
    }
    time = pl.Series([event.time for event in events], dtype=pl.Int64)
    return pl.DataFrame({"time": time, **columns})


def find_peak(
    events: Sequence[MemoryEvent],
    history: pl.DataFrame,
    live: dict[tuple[int, int], int],
    held: dict[tuple[int, int], Stack],
) -> tuple[Group, ...]:
    """Return what was allocated on one device at the maximum of its history, by what requested it, most bytes first.

    ``history`` is that of ``find_history``, ``held`` what requested the blocks that are still alive. Blocks that were
    allocated before the history, and freed in it, have no stack.
    """
    if not events:
        return ()
    peak = int(history["allocated"].arg_max() or 0)
    sizes = _sizes(events, live)
    begun = {(event.device, event.address) for event in events if event.action == "alloc"}
    known: dict[tuple[int, int], tuple[int, Stack]] = {
        place: (size, held.get(place, ()))
        for place, size in live.items()
        if place not in begun and place[0] == events[0].device
    }
    seen = set()
    for number, event in enumerate(events):
        place = event.device, event.address
        if event.action == "alloc":
            seen.add(place)
            if number <= peak:
                known[place] = sizes[number], event.stack
        elif event.action == "free_requested":
            if number <= peak:
                known.pop(place, None)
            elif place not in seen:
                known[place] = sizes[number], ()
    sums: dict[Stack, list[int]] = {}
    for size, stack in known.values():
        total = sums.setdefault(stack, [0, 0])
        total[0] += size
        total[1] += 1
    found = [Group(size, count, stack) for stack, (size, count) in sums.items()]
    return tuple(sorted(found, key=lambda group: -group.size))


def _sizes(events: Sequence[MemoryEvent], live: dict[tuple[int, int], int]) -> list[int]:
    """Return the size of each event as the allocator counts it."""
    sizes = [-(-event.size // ROUNDED) * ROUNDED for event in events]
    for place, size in _still_alive(events, live).items():
        sizes[place] = size
    return sizes


def _still_alive(events: Sequence[MemoryEvent], live: dict[tuple[int, int], int]) -> dict[int, int]:
    """Return the positions of the events that allocated blocks that are still alive, and the sizes of these blocks."""
    last = {
        (event.device, event.address): place for place, event in enumerate(events) if event.action == "alloc"
    }
    return {place: live[key] for key, place in last.items() if key in live}


def _backwards(changes: list[int], last: int) -> pl.Series:
    """Return the sum after each change, given the sum after the last one; never below 0."""
    sums = np.cumsum(np.array(changes, dtype=np.float64))
    end = sums[-1] if sums.size else 0.0
    return pl.Series(np.maximum(0.0, last - end + sums), dtype=pl.Float64)
