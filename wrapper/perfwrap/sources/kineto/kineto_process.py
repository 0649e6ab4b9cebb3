"""The processes, threads and streams of a PyTorch trace as tracks, and its times on the timeline's clock."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from perfwrap.sources.kineto.trace_events import TraceEvents
from perfwrap.sources.kineto.trace_file import TraceFile
from perfwrap.sources.kineto.trace_words import KINDS, ON_GPU, OTHER_KIND, plain_text
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock

SOURCE = "kineto"

FILE_NAME = re.compile(r"(?P<host>.+)_(?P<pid>\d+)\.\d+\.pt\.trace\.json")
"""Names of the files of ``tensorboard_trace_handler``."""

HOST_KINDS = ("op", "call", "python", "range")
STREAMS = 1 << 80
"""First index of streams, above those of threads."""
DEVICE = 1 << 64
"""Distance between the indices of two devices' streams."""
CORRELATIONS = 1 << 32
"""Drivers count calls in 32 bits."""


@dataclass
class KinetoProcess:
    """One trace: its rows, and their tracks."""

    builder: TimelineBuilder
    file: TraceFile
    events: TraceEvents
    clock: HostClock | None = None
    """Clock of the run that the trace belongs to; None for a separate trace, which stays on the wall clock."""
    given_host: str | None = None
    tracks: dict[int, int] = field(default_factory=dict)
    """Tracks of processes by pid."""

    @property
    def alone(self) -> bool:
        """Whether these processes were recorded only by this trace."""
        return self.clock is None

    @cached_property
    def rows(self) -> pl.DataFrame:
        """All events with a duration, with ``kind`` as a word of KINDS and times on the timeline's clock."""
        rows = self.events.spans()
        words = pl.Series(self.events.kinds.values, dtype=pl.Enum(sorted({*KINDS.values(), OTHER_KIND})))
        return rows.with_columns(
            self.times(rows["start"]), words.gather(rows["kind"].cast(pl.UInt32)).alias("kind")
        )

    @cached_property
    def pids(self) -> list[int]:
        """The processes on the host, the one with the most events first."""
        host = self.rows.filter(pl.col("kind").is_in(HOST_KINDS))
        counted: Counter[int] = Counter()
        for thread, count in host["thread"].value_counts().iter_rows():
            pid = self.events.threads.values[thread][0]
            if isinstance(pid, int):
                counted[pid] += count
        named = [pid for pid in self.events.process_names if isinstance(pid, int)]
        return [pid for pid, _ in counted.most_common()] or named[:1] or [0]

    @cached_property
    def host(self) -> str:
        """The host's name: from the trace, from its file's name, or the file's name itself."""
        named = self.file.header.get("host_name") or self.file.header.get("hostname")
        if self.given_host or (isinstance(named, str) and named):
            return self.given_host or plain_text(named)[:200]
        found = FILE_NAME.match(self.file.path.name)
        if found and found["pid"] == str(self.pids[0]):
            return found["host"]
        return (
            plain_text(self.file.path.name)
            .removesuffix(".gz")
            .removesuffix(".json")
            .removesuffix(".pt.trace")
        )

    @cached_property
    def distributed(self) -> dict[str, Any]:
        """Rank, world size and backend, if the trace contains them."""
        found = self.file.header.get("distributedInfo")
        return found if isinstance(found, dict) else {}

    @property
    def rank(self) -> int | None:
        """The rank, None outside of a job."""
        found = self.distributed.get("rank")
        return found if isinstance(found, int) and 0 <= found < 1 << 31 else None

    def times(self, relative: pl.Series) -> pl.Series:
        """Return times of the trace on the timeline's clock."""
        base = self.file.header.get("baseTimeNanoseconds")
        start = base if isinstance(base, int) and 0 <= base < 1 << 62 else 0
        wall = relative.to_numpy().astype(np.int64) + start
        return pl.Series(relative.name, wall if self.clock is None else self.clock.from_wall(wall))

    def process(self, pid: int) -> int:
        """Return the track of a process: the recording's track if there is one."""
        if pid not in self.tracks:
            if self.clock is not None:
                self.tracks[pid] = self.builder.latest_process(self.host, pid)
            else:
                track = self.builder.process(self.host, pid, "" if self.rank is None else f"rank {self.rank}")
                name = self.events.process_names.get(pid, "process")
                self.builder.describe(track, name=f"{name} {pid}", role="main", rank=self.rank)
                self.tracks[pid] = track
        return self.tracks[pid]

    @property
    def main(self) -> int:
        """The track of the process that the trace is about."""
        return self.process(self.pids[0])

    def thread_tracks(self, threads: pl.Series) -> pl.Series:
        """Return the track of each row's thread."""
        known = threads.unique().to_list()
        tracks = [self._thread(number) for number in known]
        found: pl.Series = threads.replace_strict(known, tracks, return_dtype=pl.Int32)
        return found.rename("track")

    def stream_tracks(self, rows: pl.DataFrame) -> pl.Series:
        """Return the track of each row's stream by its owner, device and stream."""
        keys = ["owner", "device", "stream"]
        known = rows.select(keys).unique(maintain_order=True)
        tracks = [self.stream(*key) for key in known.iter_rows()]
        found = known.with_columns(pl.Series("track", tracks, dtype=pl.Int32))
        return rows.select(keys).join(found, on=keys, how="left", maintain_order="left")["track"]

    @cached_property
    def on_gpu(self) -> pl.DataFrame:
        """The work of the GPUs, with ``owner`` (the process's track), device and stream filled in."""
        rows = self.rows.filter(pl.col("kind").is_in(ON_GPU))
        places = [self._place(pid, tid) for pid, tid in self.events.threads.values]
        thread = rows["thread"].cast(pl.UInt32)
        device = pl.Series([place[0] for place in places], dtype=pl.Int64).gather(thread)
        stream = pl.Series([place[1] for place in places], dtype=pl.Int64).gather(thread)
        return rows.with_columns(
            pl.col("device").fill_null(device).fill_null(0),
            pl.col("stream").fill_null(stream).fill_null(0),
            self._owners(rows["link"]).alias("owner"),
        )

    def links(self, owners: pl.Series, correlations: pl.Series) -> pl.Series:
        """Return numbers that connect a call with the work that it launched, different for each process of the run."""
        found: pl.Series = owners.cast(pl.Int64) * CORRELATIONS + correlations % CORRELATIONS
        return found.rename("link")

    def _owners(self, correlations: pl.Series) -> pl.Series:
        """Return the process that launched each: the one with a call of that number, else the main one."""
        if len(self.pids) < 2:
            return pl.Series(np.full(correlations.len(), self.main, dtype=np.int32))
        calls = self.rows.filter(pl.col("kind") == "call", pl.col("link").is_not_null())
        owner = self.owner_tracks(calls["thread"])
        known = calls.select("link", owner.alias("owner")).unique("link", keep="first")
        found = pl.DataFrame({"link": correlations}).join(known, on="link", how="left", maintain_order="left")
        owners: pl.Series = found["owner"].fill_null(self.main)
        return owners

    def owner_tracks(self, threads: pl.Series) -> pl.Series:
        """Return the track of each row's process."""
        known = threads.unique().to_list()
        tracks = [self._owner(number) for number in known]
        found: pl.Series = threads.replace_strict(known, tracks, return_dtype=pl.Int32)
        return found

    def _owner(self, number: int) -> int:
        """Return the track of the process that a thread belongs to."""
        pid = self.events.threads.values[number][0]
        return self.process(pid) if pid in self.pids else self.main

    def _thread(self, number: int) -> int:
        """Return the track of a thread."""
        pid, tid = self.events.threads.values[number]
        name = self.events.thread_names.get((pid, tid), "")
        owner = self._owner(number)
        if not isinstance(tid, int):
            return self.builder.thread(owner, -1 - number, name or plain_text(tid), None)
        return self.builder.native_thread(owner, tid, name)

    def stream(self, owner: int, device: int, stream: int) -> int:
        """Return the track of a stream."""
        self.builder.device(self.host, f"gpu/{device}")
        return self.builder.stream(owner, STREAMS + device * DEVICE + stream, f"gpu/{device} stream {stream}")

    @staticmethod
    def _place(pid: Any, tid: Any) -> tuple[int | None, int | None]:
        """Return device and stream from pid and tid of a GPU event."""
        stream = str(tid).removeprefix("stream ")
        number = int(stream) if stream.isdecimal() and len(stream) < 19 else None
        return (pid if isinstance(pid, int) and 0 <= pid < 1 << 31 else None), number
