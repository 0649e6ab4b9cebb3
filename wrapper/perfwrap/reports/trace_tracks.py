"""Maps tracks of a timeline to processes and threads of a trace, with their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from perfwrap.shown_text import visible
from perfwrap.timeline.model import Timeline

MADE_UP = 10_000_000
"""Numbers from here on are not used by any process or thread: those of Linux end at 4,194,304."""

ROLE_ORDER = ("main", "worker", "agent", "helper", "other", "monitor")


@dataclass
class TraceTracks:
    """Places of the tracks, assigned at first use, each with its names."""

    timeline: Timeline
    _rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    _pids: Counter[int] = field(default_factory=Counter)
    _threads: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    _named: list[dict[str, Any]] = field(default_factory=list)
    _known_pids: set[int] = field(default_factory=set)
    _known_tids: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Count the process numbers: hosts of one run, and programs of one process, may share them."""
        self._rows = {row["id"]: row for row in self.timeline.tracks.iter_rows(named=True)}
        self._pids.update(row["pid"] for row in self._rows.values() if row["kind"] == "process")

    def kind(self, track: int) -> str:
        """Return the kind of a track."""
        return str(self._rows[track]["kind"])

    def thread(self, track: int, lane: str = "", order: int = 0) -> tuple[int, int]:
        """Return pid and tid of a track's lane; a track that is no thread has its lanes in its own process."""
        if (track, lane) not in self._threads:
            row = self._rows[track]
            pid = self.process(track)
            real = row["tid"] if row["kind"] == "thread" and not lane else None
            tid = real if real and (pid, real) not in self._known_tids else MADE_UP + len(self._threads)
            self._known_tids.add((pid, tid))
            name = " ".join(text for text in (str(row["name"]), lane) if text)
            self._name("thread_name", pid, tid, name=name)
            self._name("thread_sort_index", pid, tid, sort_index=track * 16 + order)
            self._threads[track, lane] = pid, tid
        return self._threads[track, lane]

    def process(self, track: int) -> int:
        """Return the pid of the process that a track belongs to; a device or a host is one of its own."""
        row = self._owner(self._rows[track])
        real = row["pid"] if row["kind"] == "process" else None
        pid = int(real) if real and self._pids[real] == 1 else MADE_UP + int(row["id"])
        if pid not in self._known_pids:
            self._known_pids.add(pid)
            self._name("process_name", pid, name=_process_name(row))
            self._name("process_sort_index", pid, sort_index=_order(row))
        return pid

    def counter_name(self, track: int) -> str:
        """Return a series' name; that of a part of a host begins with the part's."""
        row = self._rows[track]
        owner = self._rows[row["parent"]] if row["parent"] is not None else row
        part = "" if owner["kind"] in ("process", "gpu", "host") else f"{owner['name']} "
        return visible(f"{part}{row['name']}")

    def unit(self, track: int) -> str:
        """Return the unit of a series."""
        return str(self._rows[track]["unit"] or "value")

    def parent(self, track: int) -> int | None:
        """Return the track's parent."""
        found = self._rows[track]["parent"]
        return None if found is None else int(found)

    def named(self) -> Iterator[dict[str, Any]]:
        """Yield the metadata of all assigned places."""
        yield from self._named

    def _owner(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the process, the GPU or the host that a track belongs to."""
        while row["kind"] not in ("process", "gpu", "host") and row["parent"] is not None:
            row = self._rows[row["parent"]]
        return row

    def _name(self, what: str, pid: int, tid: int | None = None, **values: object) -> None:
        """Keep one event of metadata."""
        place = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
        arguments = {
            key: visible(value) if isinstance(value, str) else value for key, value in values.items()
        }
        self._named.append({"ph": "M", "name": what, "ts": 0, **place, "args": arguments})


def _process_name(row: dict[str, Any]) -> str:
    """Return e.g. ``rank 0: main 4711`` or ``gpu/0 of node7``."""
    if row["kind"] == "gpu":
        return f"{row['name']} of {row['host']}"
    if row["kind"] != "process":
        return f"{row['kind']} {row['name']}"
    return str(row["name"]) if row["rank"] is None else f"rank {row['rank']}: {row['name']}"


def _order(row: dict[str, Any]) -> int:
    """Return the order of a process: ranks first, then other processes by role, GPUs, hosts."""
    if row["kind"] == "gpu":
        return 100_000
    if row["kind"] != "process":
        return 200_000
    role = str(row["role"])
    place = ROLE_ORDER.index(role) if role in ROLE_ORDER else len(ROLE_ORDER)
    return place * 10_000 + (9_999 if row["rank"] is None else min(int(row["rank"]), 9_998))
