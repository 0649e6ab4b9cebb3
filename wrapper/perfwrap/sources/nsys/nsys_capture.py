"""The capture as a whole: its time, host, processes, threads and GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from perfwrap.sources.nsys.nsys_tables import NsysTables
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock

SOURCE = "nsys"
ID_BITS = 24
"""A globalTid is host and virtual machine, then 24 bits of pid and 24 bits of tid; a globalPid has no tid."""
VERSIONS = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""Tables with the exporter's version: since 2023, and before."""
STREAM_INDEX = 1 << 40
"""First index of streams, above those of a process's threads."""


@dataclass
class Capture:
    """Adds one export to the timeline."""

    file: NsysTables
    builder: TimelineBuilder
    path: Path
    clock: HostClock | None
    """The clock of the run that the capture belongs to; None for a separate capture."""
    host: str
    start_wall: int
    """Wall time of the session's start, which all times are relative to; 0 if unknown."""
    threads: dict[int, str]
    """Names of threads by globalTid."""
    programs: dict[int, str]
    """Names of processes by pid."""
    physical: dict[tuple[int, int], int]
    """The GPU's number on the machine, by pid and number in the process."""
    only_process: int | None
    """The only process of a file whose tables do not have columns for the process."""
    processes: dict[int, int] = field(default_factory=dict)
    """Tracks by pid."""

    def times(self, column: pl.Series) -> pl.Series:
        """Return times of the file on the run's clock, or on the wall clock for a separate capture."""
        wall = column.to_numpy().astype(np.int64) + self.start_wall
        return pl.Series(column.name, wall if self.clock is None else self.clock.from_wall(wall))

    def moment(self, time: int) -> int:
        """Return one time of the file on the run's clock."""
        return int(self.times(pl.Series([time]))[0])

    def process(self, pid: int) -> int:
        """Return the track of a process: the recording's track if there is one."""
        if pid not in self.processes:
            builder = self.builder
            if self.clock is None:
                track = builder.process(self.host, pid, f"{SOURCE} {self.path.name}")
                name = Path(self.programs.get(pid, "").split("\0")[0]).name
                builder.describe(track, name=f"{name or 'process'} {pid}", role="main")
            else:
                track = builder.latest_process(self.host, pid)
            self.processes[pid] = track
        return self.processes[pid]

    def thread_tracks(self, global_tids: pl.Series) -> pl.Series:
        """Return the track of the thread of each row."""
        known = global_tids.unique().to_list()
        tracks = [self._thread(thread) for thread in known]
        found: pl.Series = global_tids.replace_strict(known, tracks, return_dtype=pl.Int32)
        return found

    def stream_tracks(self, rows: pl.DataFrame) -> pl.Series:
        """Return the track of the stream of each row, by its pid, deviceId, contextId and streamId."""
        keys = ["pid", "deviceId", "contextId", "streamId"]
        known = rows.select(keys).unique(maintain_order=True)
        tracks = [self._stream(*key) for key in known.iter_rows()]
        found = known.with_columns(pl.Series("track", tracks, dtype=pl.Int32))
        return rows.select(keys).join(found, on=keys, how="left", nulls_equal=True, maintain_order="left")[
            "track"
        ]

    def gpu(self, pid: int, number: int) -> int:
        """Return the machine's number of the GPU that has ``number`` in a process."""
        return self.physical.get((pid, number), number)

    def pids(self, column: pl.Series) -> pl.Series:
        """Return the pid of each globalPid or globalTid; that of the only process if the file has none."""
        pids: pl.Series = (column // (1 << ID_BITS)) % (1 << ID_BITS)
        return pids.fill_null(self.only_process or 0).alias("pid")

    def links(self, pids: pl.Series, correlations: pl.Series) -> pl.Series:
        """Return numbers that connect a call with the work that it launched, different for each process of the run."""
        known = pids.unique().to_list()
        process = pids.replace_strict(known, [self.process(pid) for pid in known], return_dtype=pl.Int64)
        # Drivers count in 32 bits.
        links: pl.Series = process * (1 << 32) + correlations % (1 << 32)
        return links.alias("link")

    def _thread(self, global_tid: int | None) -> int:
        """Return the track of a thread; that of the process if the thread is unknown."""
        if global_tid is None:
            return self.process(self.only_process or 0)
        pid, tid = (global_tid >> ID_BITS) % (1 << ID_BITS), global_tid % (1 << ID_BITS)
        name = self.threads.get(global_tid, "")
        return self.builder.native_thread(self.process(pid), tid, name)

    def _stream(self, pid: int, device: int | None, context: int | None, stream: int | None) -> int:
        """Return the track of a stream."""
        gpu = self.gpu(pid, device or 0)
        # One number for each stream of each context of each device, above those of threads.
        index = STREAM_INDEX + ((((device or 0) << 16) + (context or 0)) << 32) + (stream or 0)
        return self.builder.stream(self.process(pid), index, f"gpu/{gpu} stream {stream or 0}")


def begin(
    file: NsysTables, builder: TimelineBuilder, path: Path, clock: HostClock | None, host: str | None
) -> Capture:
    """Return the capture with its names."""
    system = _system(file)
    started = file.read("TARGET_INFO_SESSION_START_TIME", integers=("utcEpochNs",)).drop_nulls()
    names = file.read("ThreadNames", integers=("globalTid", "nameId", "priority")).drop_nulls("globalTid")
    names = names.sort("priority", nulls_last=False)
    texts = file.strings(names["nameId"]).fill_null("").to_list()
    programs = file.read("PROCESSES", integers=("pid",), texts=("name",)).drop_nulls()
    return Capture(
        file,
        builder,
        path,
        clock,
        host=host or system.get("Hostname") or "host",
        start_wall=started["utcEpochNs"][0] if started.height else 0,
        threads=dict(zip(names["globalTid"].to_list(), texts, strict=True)),
        programs=dict(zip(programs["pid"].to_list(), programs["name"].to_list(), strict=True)),
        physical=_physical(file),
        only_process=_only_process(file),
    )


def _system(file: NsysTables) -> dict[str, str]:
    """Return facts about the machine: only these names, because others contain environment variables."""
    wanted = ("Hostname", "OsDescription", "CudaDriverVersion", "NvDriverVersion", "CpuDescription")
    rows = file.read("TARGET_INFO_SYSTEM_ENV", texts=("name", "value"), only={"name": wanted}).drop_nulls()
    return dict(zip(rows["name"].to_list(), rows["value"].to_list(), strict=True))


def _physical(file: NsysTables) -> dict[tuple[int, int], int]:
    """Return the GPU's position on the PCI bus by pid and CUDA's number, which CUDA_VISIBLE_DEVICES changes."""
    places = file.read("TARGET_INFO_GPU", integers=("id",), texts=("busLocation",)).drop_nulls()
    places = places.sort("busLocation").with_row_index("place")
    order = dict(zip(places["id"].to_list(), places["place"].to_list(), strict=True))
    devices = file.read("TARGET_INFO_CUDA_DEVICE", integers=("gpuId", "cudaId", "pid")).drop_nulls()
    return {(pid, cuda): order.get(gpu, gpu) for gpu, cuda, pid in devices.iter_rows()}


def _only_process(file: NsysTables) -> int | None:
    """Return the pid of the threads that called CUDA if there is only one."""
    table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    # Only reduced files have no globalPid.
    if "globalPid" in file.columns.get("CUPTI_ACTIVITY_KIND_KERNEL", {"globalPid"}):
        return None
    threads = file.read(table, integers=("globalTid",))["globalTid"].drop_nulls()
    pids = ((threads // (1 << ID_BITS)) % (1 << ID_BITS)).unique()
    return int(pids[0]) if pids.len() == 1 else None
