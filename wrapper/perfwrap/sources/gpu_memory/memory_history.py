"""Allocated and reserved memory of a device over time, from the events in a torch snapshot.

The events may begin anywhere in the run, but they end at the snapshot, whose content is known: so the sums are
computed backwards from there. Events contain the requested sizes. Blocks that are still alive count with their real
size, others with their size rounded up to ROUNDED, as the allocator does for all but the largest blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from perfwrap.sources.gpu_memory.memory_snapshot import DeviceMemory, MemoryEvent

ROUNDED = 512
"""Bytes; ``kMinBlockSize`` of CUDACachingAllocator."""
ALLOCATED = {"alloc": 1, "free_requested": -1}
RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
"""Whether an event adds to the sum or subtracts from it; all other events do neither."""


def find_history(
    events: Sequence[MemoryEvent], memory: DeviceMemory, live: dict[tuple[int, int], int]
) -> pl.DataFrame:
    """Return a row for each event of one device: time, allocated and reserved after it; time is null if unknown."""
    sizes = [-(-event.size // ROUNDED) * ROUNDED for event in events]
    for place, size in _still_alive(events, live).items():
        sizes[place] = size
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
