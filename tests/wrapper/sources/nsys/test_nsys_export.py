"""The nsys source: every version's tables end in the same timeline, and damage costs only what it hit."""

from __future__ import annotations

import gzip
import itertools
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.sources import SOURCES
from perfwrap.sources.nsys import nsys_export, nsys_file, nsys_gpu
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import host_clock
from perfwrap.timeline.model import Timeline

WALL = 1_700_000_000_000_000_000
"""When the sessions of these tests began."""

PLACE = (
    "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER"
)
CALL = "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, nameId INTEGER"
TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{PLACE}, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,"
    " mangledName INTEGER, gridX INTEGER, registersPerThread INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{PLACE}, globalPid INTEGER, bytes INTEGER, copyKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{PLACE}, globalPid INTEGER, value INTEGER, bytes INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{PLACE}, globalPid INTEGER, graphId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"{CALL}, correlationId INTEGER, returnValue INTEGER, callchainId INTEGER",
    "OSRT_API": f"{CALL}, returnValue INTEGER, nestingLevel INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,"
    " textId INTEGER, domainId INTEGER",
    "ThreadNames": "nameId INTEGER, priority INTEGER, globalTid INTEGER",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, busLocation TEXT, totalMemory INTEGER, smCount INTEGER,"
    " uuid TEXT, cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT",
    "ANALYSIS_DETAILS": "globalVid INTEGER, duration INTEGER, startTime INTEGER, stopTime INTEGER",
    "DIAGNOSTIC_EVENT": "timestamp INTEGER, timestampType INTEGER, source INTEGER, severity INTEGER,"
    " text TEXT, globalPid INTEGER",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "META_DATA_CAPTURE": "name TEXT, value TEXT",
    "EXPORT_META_DATA": "name TEXT, value TEXT",
    "ENUM_CUDA_MEMCPY_OPER": "id INTEGER, name TEXT, label TEXT",
    "ENUM_NSYS_EVENT_TYPE": "id INTEGER, name TEXT, label TEXT",
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": "id INTEGER, name TEXT, label TEXT",
}
"""The tables as NVIDIA's schema reference describes them, shortened to the columns that are read."""


class Export:
    """A small export; tables come into being with their first row, as nsys makes them."""

    def __init__(self, path: Path, schema: str = "3.25.0") -> None:
        self.path = path
        self._connection = sqlite3.connect(path)
        self._made: set[str] = set()
        self._ids: dict[str, int] = {}
        self._correlations = itertools.count(1)
        version = "EXPORT_META_DATA" if schema.startswith(("2.", "3.0")) else "META_DATA_EXPORT"
        self.add(version, name="EXPORT_SCHEMA_VERSION", value=schema)
        self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=WALL)
        if not schema.startswith("2."):
            copies = ["UNKNOWN", *nsys_gpu.COPIES, "UVM_HTOD"]
            self.enumerate(
                "ENUM_CUDA_MEMCPY_OPER", {f"CUDA_MEMCPY_KIND_{n}": i for i, n in enumerate(copies)}
            )
            self.enumerate(
                "ENUM_NSYS_EVENT_TYPE",
                {
                    "NvtxMark": 34,
                    "NvtxThread": 39,
                    "NvtxPushPopRange": 59,
                    "NvtxStartEndRange": 60,
                    "NvtxDomainCreate": 75,
                },
            )

    def run(self, sql: str) -> None:
        """Run any statement."""
        self._connection.execute(sql)

    def add(self, table: str, **values: object) -> None:
        """Add a row."""
        if table not in self._made:
            self.run(f"CREATE TABLE IF NOT EXISTS {table} ({TABLES[table]})")
            self._made.add(table)
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))

    def enumerate(self, table: str, numbers: dict[str, int]) -> None:
        """Replace an enumeration."""
        self.run(f"DROP TABLE IF EXISTS {table}")
        self._made.discard(table)
        for name, number in numbers.items():
            self.add(table, id=number, name=name, label=name)

    def text(self, value: str) -> int:
        """Return the id of a text."""
        if value not in self._ids:
            self._ids[value] = len(self._ids) + 1
            self.add("StringIds", id=self._ids[value], value=value)
        return self._ids[value]

    def call(
        self, start: int, end: int, name: str = "cudaLaunchKernel_v7000", pid: int = 100, tid: int = 100
    ) -> int:
        """Add a call of CUDA; return its correlation id."""
        number = next(self._correlations)
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start, end=end, globalTid=thread(pid, tid), nameId=self.text(name), correlationId=number,
        )  # fmt: skip
        return number

    def kernel(
        self,
        start: int,
        end: int,
        correlation: int = 0,
        name: str = "gemm",
        pid: int = 100,
        device: int = 0,
        stream: int = 7,
    ) -> None:
        """Add a kernel."""
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=start, end=end, deviceId=device, contextId=1, streamId=stream, correlationId=correlation,
            globalPid=thread(pid, 0), demangledName=self.text(f"void {name}<float>(int)"), shortName=self.text(name),
        )  # fmt: skip

    def copy(self, start: int, end: int, kind: int, size: int) -> None:
        """Add a copy."""
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            start=start, end=end, deviceId=0, contextId=1, streamId=7, correlationId=0, globalPid=thread(100, 0),
            copyKind=kind, bytes=size,
        )  # fmt: skip

    def nvtx(self, start: int, end: int | None, text: str | None, **columns: object) -> None:
        """Add an NVTX range, or another event of that type."""
        values = {"eventType": 59, "globalTid": thread(100, 100), "domainId": 0, **columns}
        self.add("NVTX_EVENTS", start=start, end=end, text=text, **values)

    def write(self) -> Path:
        """Write the file and return where it is."""
        self._connection.commit()
        self._connection.close()
        return self.path


def thread(pid: int, tid: int) -> int:
    """Return the globalTid of a thread, as host 1 has it; with tid 0 the globalPid."""
    return (1 << 48) + (pid << 24) + tid


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "report.sqlite")


def read(path: Path, builder: TimelineBuilder | None = None, **options: Any) -> Timeline:
    """Return the timeline of one file."""
    builder = builder or TimelineBuilder()
    nsys_export.add(builder, path, **options)
    return builder.build({})


def spans(timeline: Timeline, **wanted: object) -> list[dict[str, Any]]:
    """Return the spans with these columns, with their tracks' columns beside them."""
    tracks = timeline.tracks.rename({"name": "track_name"}).drop("host", "parent", "rank", "unit", "role")
    found = timeline.spans.filter(*(pl.col(name) == value for name, value in wanted.items()))
    return found.join(tracks, left_on="track", right_on="id", how="left").to_dicts()


def test_nsys_is_a_listed_source() -> None:
    assert "nsys" in SOURCES


def test_a_kernel_is_on_its_stream_and_is_linked_to_its_call(export: Export) -> None:
    number = export.call(1_000, 1_010, tid=101)
    export.kernel(1_020, 1_070, number, "gemm", device=1, stream=13)
    timeline = read(export.write())
    (kernel,) = spans(timeline, category="kernel")
    (call,) = spans(timeline, operation="cudaLaunchKernel")
    assert (kernel["start"], kernel["duration"], kernel["operation"]) == (WALL + 1_020, 50, "kernel")
    assert (kernel["name"], kernel["kind"], kernel["track_name"]) == (
        "void gemm<float>(int)",
        "stream",
        "gpu/1 stream 13",
    )
    assert (call["category"], call["name"], call["kind"], call["tid"]) == (
        "other",
        "cudaLaunchKernel",
        "thread",
        101,
    )
    assert kernel["link"] == call["link"] is not None
    assert {"nsys"} == set(timeline.spans["source"])


def test_the_same_correlation_in_two_processes_is_two_links(export: Export) -> None:
    for pid in (100, 200):
        export.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=1, end=2, globalTid=thread(pid, pid), nameId=export.text("cuLaunchKernel"), correlationId=5,
        )  # fmt: skip
        export.kernel(10, 20, 5, pid=pid)
    timeline = read(export.write())
    kernels = spans(timeline, category="kernel")
    assert len({kernel["link"] for kernel in kernels}) == 2
    for kernel in kernels:
        (call,) = spans(timeline, link=kernel["link"], category="other")
        assert call["pid"] == kernel["pid"]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaMemcpyAsync_ptsz_v7000", "cudaMemcpyAsync"),
        ("cudaGetDeviceProperties_v2_v12000", "cudaGetDeviceProperties_v2"),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2"),
    ],
)
def test_a_call_has_its_name_without_the_version_of_the_interface(
    export: Export, name: str, operation: str
) -> None:
    export.call(1, 2, name)
    timeline = read(export.write())
    assert timeline.spans["operation"].to_list() == [operation]


def test_copies_have_direction_and_bytes(export: Export) -> None:
    for number, kind in enumerate((1, 2, 8, 9, 10, 3, 0, 11)):
        export.copy(number * 10, number * 10 + 5, kind, 1_000 + number)
    copies = read(export.write()).spans
    assert copies["operation"].to_list() == ["h2d", "d2h", "d2d", "h2h", "p2p", "h2d", "copy", "h2d"]
    assert copies["value"].to_list() == list(range(1_000, 1_008))
    assert set(copies["category"]) == {"copy"}


def test_numbers_of_enumerations_are_those_of_the_file(export: Export) -> None:
    export.enumerate("ENUM_CUDA_MEMCPY_OPER", {"CUDA_MEMCPY_KIND_DTOH": 1, "CUDA_MEMCPY_KIND_HTOD": 2})
    export.enumerate("ENUM_NSYS_EVENT_TYPE", {"NvtxPushPopRange": 7})
    export.copy(0, 5, 1, 64)
    export.nvtx(10, 20, "mine", eventType=7)
    export.nvtx(30, 40, "not a range here", eventType=59)
    timeline = read(export.write())
    assert timeline.spans["operation"].to_list() == ["d2h", "nvtx"]


def test_an_export_without_enumerations_is_read_by_the_documented_numbers(tmp_path: Path) -> None:
    old = Export(tmp_path / "old.sqlite", schema="2.9.1")
    old.copy(0, 5, 2, 64)
    old.nvtx(10, 20, "mine")
    timeline = read(old.write())
    assert timeline.spans["operation"].to_list() == ["d2h", "nvtx"]
    assert "2.9.1" in timeline.facts["value"].to_list()


def test_memory_sets_have_their_bytes(export: Export) -> None:
    export.add(
        "CUPTI_ACTIVITY_KIND_MEMSET", start=1, end=3, deviceId=0, streamId=7, globalPid=thread(9, 0), bytes=32
    )
    (span,) = spans(read(export.write()))
    assert (span["category"], span["operation"], span["value"], span["pid"]) == ("memset", "memset", 32, 9)


def test_a_graph_that_was_seen_as_a_whole_keeps_the_gpu_busy(export: Export) -> None:
    export.add(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        start=1,
        end=90,
        deviceId=0,
        streamId=7,
        globalPid=thread(9, 0),
        graphId=4,
    )
    timeline = read(export.write())
    (span,) = spans(timeline)
    assert (span["category"], span["operation"], span["name"]) == ("kernel", "graph", "CUDA graph 4")
    assert any("graph as a whole" in warning for warning in timeline.warnings)


def test_ranges_have_their_text_inline_or_by_its_number(export: Export) -> None:
    export.nvtx(10, 20, "inline")
    export.nvtx(30, 40, None, textId=export.text("registered"))
    assert read(export.write()).spans["name"].to_list() == ["inline", "registered"]


@pytest.mark.parametrize(
    "name", ["step 12", "Iteration_12", "train_step 12", "ProfilerStep#12", "iter=12", "batch 12"]
)
def test_ranges_around_steps_are_steps_with_their_number(export: Export, name: str) -> None:
    export.nvtx(10, 90, name)
    (span,) = spans(read(export.write()))
    assert (span["operation"], span["category"], span["step"], span["name"]) == ("step", "step", 12, name)


@pytest.mark.parametrize(
    "name", ["step", "stepping stone 3", "epoch 3", "optimizer step 3", "batchnorm 2", "step 1 of 2"]
)
def test_other_ranges_are_no_steps(export: Export, name: str) -> None:
    export.nvtx(10, 90, name)
    (span,) = spans(read(export.write()))
    assert (span["operation"], span["category"], span["step"]) == ("nvtx", "other", None)


def test_of_steps_inside_of_steps_the_outer_ones_count(export: Export) -> None:
    for step in range(2):
        export.nvtx(step * 100, step * 100 + 90, f"step {step}")
        for batch in range(2):
            export.nvtx(step * 100 + batch * 40, step * 100 + batch * 40 + 30, f"batch {batch}")
    export.nvtx(10, 20, "step 0", globalTid=thread(100, 101))
    timeline = read(export.write())
    steps = [(span["name"], span["tid"]) for span in spans(timeline, category="step")]
    assert steps == [("step 0", 100), ("step 0", 101), ("step 1", 100)]
    assert len(spans(timeline, operation="nvtx")) == 4


def test_phases_in_the_words_of_the_recorder_become_its_operations(export: Export) -> None:
    for start, name in enumerate(("data", "forward", "backward", "optimizer", "zero_grad")):
        export.nvtx(start * 10, start * 10 + 5, name)
    found = read(export.write()).spans
    assert found["operation"].to_list() == ["data", "forward", "backward", "optimizer", "zero_grad"]
    assert found["category"].to_list() == ["data", "forward", "backward", "optimizer", "optimizer"]


def test_a_librarys_domain_may_use_the_same_words(export: Export) -> None:
    export.nvtx(0, None, "DALI", eventType=75, domainId=3)
    export.nvtx(10, 20, "data", domainId=3)
    (span,) = spans(read(export.write()))
    assert (span["operation"], span["category"]) == ("nvtx", "other")


def test_functions_of_the_framework_are_distinguished(export: Export) -> None:
    export.nvtx(10, 20, "aten::mm, op_id = 42, sizes = [[2, 3], [3, 4]]")
    export.nvtx(30, 40, "AddmmBackward0, seq = 7")
    found = read(export.write()).spans
    assert found["name"].to_list() == ["aten::mm", "AddmmBackward0"]
    assert set(found["operation"]) == {"op"}


def test_a_range_without_an_end_is_left_out_and_counted(export: Export) -> None:
    export.nvtx(10, None, "epoch 1")
    timeline = read(export.write())
    assert timeline.spans.height == 0
    assert timeline.coverage.filter(pl.col("what") == "nvtx", pl.col("lost") == 1).height == 1


def test_a_mark_is_a_mark(export: Export) -> None:
    export.nvtx(10, None, "here", eventType=34)
    mark = read(export.write()).marks.row(0, named=True)
    assert (mark["time"], mark["name"], mark["detail"]) == (WALL + 10, "nvtx", "here")


def test_processes_and_threads_have_their_names(export: Export) -> None:
    export.add("PROCESSES", globalPid=thread(100, 0), pid=100, name="/usr/bin/python3")
    export.add("ThreadNames", nameId=export.text("python3"), priority=10, globalTid=thread(100, 101))
    export.add("ThreadNames", nameId=export.text("pin_memory"), priority=20, globalTid=thread(100, 101))
    export.call(1, 2, tid=101)
    tracks = read(export.write()).tracks
    assert tracks.filter(pl.col("kind") == "process")["name"].to_list() == ["python3 100"]
    assert tracks.filter(pl.col("kind") == "thread")["name"].to_list() == ["pin_memory"]


def test_calls_of_the_system_stand_on_their_threads(export: Export) -> None:
    export.add("OSRT_API", start=5, end=9, globalTid=thread(100, 101), nameId=export.text("poll"))
    export.add(
        "OSRT_API",
        start=1,
        end=1,
        globalTid=thread(100, 0),
        nameId=export.text("OS runtime libraries profiling started"),
    )
    (span,) = spans(read(export.write()))
    assert (span["name"], span["operation"], span["category"], span["tid"]) == ("poll", "osrt", "other", 101)


def test_gpus_of_processes_that_each_see_one_are_distinguished(export: Export) -> None:
    for number, bus in enumerate(("0000:81:00.0", "0000:03:00.0")):
        export.add("TARGET_INFO_GPU", id=number, name="H100", busLocation=bus, cuDevice=number)
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=number, cudaId=0, pid=100 + number)
        export.kernel(1, 2, pid=100 + number, device=0)
    found = {span["pid"]: span["track_name"] for span in spans(read(export.write()), category="kernel")}
    assert found == {100: "gpu/1 stream 7", 101: "gpu/0 stream 7"}


def test_only_gpus_that_did_something_have_tracks(export: Export) -> None:
    for number in range(4):
        export.add(
            "TARGET_INFO_GPU",
            id=3 - number,
            name=f"A100 number {number}",
            cuDevice=number,
            totalMemory=80 << 30,
        )
    export.kernel(1, 2, device=1)
    timeline = read(export.write())
    gpus = timeline.tracks.filter(pl.col("kind") == "gpu")
    assert gpus["name"].to_list() == ["gpu/1"]
    facts = timeline.facts.filter(pl.col("track") == gpus["id"][0])
    assert ("name", "A100 number 1") in set(zip(facts["key"], facts["value"], strict=True))


def test_columns_that_users_add_or_that_are_missing_do_not_matter(export: Export) -> None:
    export.run(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (note TEXT, streamId INTEGER, end INTEGER, start INTEGER,"
        " shortName INTEGER)"
    )
    export.add(
        "CUPTI_ACTIVITY_KIND_KERNEL", note="mine", streamId=3, end=20, start=10, shortName=export.text("add")
    )
    export.call(1, 2, pid=77, tid=77)
    (kernel,) = spans(read(export.write()), category="kernel")
    assert (kernel["start"], kernel["duration"], kernel["name"]) == (WALL + 10, 10, "add")
    assert (kernel["track_name"], kernel["pid"]) == ("gpu/0 stream 3", 77)


def test_a_capture_without_kernels_says_so_instead_of_idleness(export: Export) -> None:
    export.copy(0, 5, 1, 64)
    timeline = read(export.write())
    assert any("captured no kernels" in warning for warning in timeline.warnings)
    row = timeline.coverage.filter(pl.col("what") == "kernels").row(0, named=True)
    assert row["start"] == row["end"]


def test_launches_without_kernels_are_lost_records(export: Export) -> None:
    for number in range(10):
        call = export.call(number * 10, number * 10 + 5)
        if number < 7:
            export.kernel(number * 10 + 5, number * 10 + 9, call)
    timeline = read(export.write())
    lost = timeline.coverage.filter(pl.col("what") == "kernels", pl.col("lost") > 0).row(0, named=True)
    assert (lost["lost"], lost["end"]) == (3, WALL + 69)
    assert any("3 launches" in warning for warning in timeline.warnings)


@pytest.mark.parametrize(("kernel", "is_off"), [(500_000, True), (999_000, False), (1_000_100, False)])
def test_kernels_that_run_before_their_calls_show_that_the_gpus_clock_is_off(
    export: Export, kernel: int, is_off: bool
) -> None:
    export.kernel(kernel, kernel + 10, export.call(1_000_000, 1_000_010))
    timeline = read(export.write())
    assert timeline.coverage.filter(pl.col("what") == "gpu_clock").height == is_off
    assert any("clock is wrong" in warning for warning in timeline.warnings) == is_off


def test_what_nsys_complained_about_is_in_the_coverage(export: Export) -> None:
    export.enumerate("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", {"Info": 5, "Warning": 6, "Error": 7})
    for severity, text in (
        (5, "all fine"),
        (6, "Not all CUDA events might have been collected."),
        (6, "No GL."),
        (6, "No GL."),
    ):
        export.add("DIAGNOSTIC_EVENT", timestamp=1, severity=severity, text=text)
    timeline = read(export.write())
    notes = timeline.coverage.filter(pl.col("what") == "nsys")["note"].to_list()
    assert notes == ["Not all CUDA events might have been collected.", "No GL. (2 times)"]
    assert any("Not all CUDA events" in warning for warning in timeline.warnings)


def test_values_of_the_environment_reach_no_table(export: Export) -> None:
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="node7")
    export.add("TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value="TOKEN=hunter2;A=1")
    export.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value='TOKEN="hunter2"')
    export.kernel(1, 2)
    timeline = read(export.write())
    tables = [getattr(timeline, name) for name in ("tracks", "spans", "marks", "facts", "coverage")]
    assert not any("hunter2" in table.write_csv() for table in tables)
    assert timeline.tracks["host"].drop_nulls().unique().to_list() == ["node7"]


def test_times_before_the_session_began_stay_where_they_are(export: Export) -> None:
    export.kernel(-75, 25)
    timeline = read(export.write())
    assert timeline.spans["start"].to_list() == [WALL - 75]
    assert timeline.coverage["start"].min() == WALL - 75


def test_in_a_run_the_capture_is_on_the_runs_clock_and_tracks(export: Export) -> None:
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="node7")
    export.nvtx(0, None, "perfwrap", eventType=75, domainId=2)
    export.nvtx(10, 90, "forward", domainId=2)
    export.nvtx(20, 30, "backward")
    export.kernel(2_000_000, 2_000_100, export.call(1_000, 1_100, tid=101))
    builder = TimelineBuilder()
    process = builder.process("node7", 100, "ticks")
    recorded = builder.thread(process, 1, "MainThread", 101)
    # The wall clock runs 1 ms faster than the monotonic one over a second.
    clock = host_clock([(5_000_000, WALL), (1_004_000_000, WALL + 1_000_000_000)])
    timeline = read(export.write(), builder, clock=clock)
    (kernel,) = spans(timeline, category="kernel")
    (call,) = spans(timeline, operation="cudaLaunchKernel")
    assert kernel["start"] == 5_000_000 + 2_000_000 - 2_000
    assert call["track"] == recorded
    assert timeline.tracks.filter(pl.col("kind") == "process")["id"].to_list() == [process]
    assert [span["operation"] for span in spans(timeline, name="backward")] == ["nvtx"]
    assert spans(timeline, name="forward") == []


def test_a_compressed_export_is_read_as_the_plain_one(export: Export, tmp_path: Path) -> None:
    export.kernel(1, 2, export.call(0, 1))
    plain = export.write()
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert nsys_export.recognises(packed, packed.read_bytes()[:4096])
    assert nsys_export.recognises(plain, plain.read_bytes()[:4096])
    assert read(packed).spans.equals(read(plain).spans)


def test_a_table_that_is_read_in_many_pieces_is_as_one_that_is_read_at_once(
    export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        export.kernel(
            10 * number + 5, 10 * number + 8, export.call(10 * number, 10 * number + 2), f"gemm{number}"
        )
    path = export.write()
    at_once = read(path)
    monkeypatch.setattr(nsys_file, "ROWS_AT_ONCE", 2)
    in_pieces = read(path)
    assert at_once.spans.height == 14
    assert in_pieces.spans.equals(at_once.spans)
    assert in_pieces.coverage.equals(at_once.coverage)


def test_a_text_that_is_not_utf_8_costs_only_its_own_letters(export: Export) -> None:
    export.nvtx(1, 2, "epoch")
    export.nvtx(3, 4, None)
    export.nvtx(5, 6, "Läufe")
    export.run(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text) VALUES (7, 8, 59, CAST(x'4cff66' AS TEXT))"
    )
    names = read(export.write()).spans["name"].to_list()
    assert names == ["epoch", "range without a name", "Läufe", "L\ufffdf"]


def test_a_file_is_recognised_by_its_content_alone(tmp_path: Path) -> None:
    for head in (b"", b"{}", b"\x1f\x8b", b"PK\x03\x04", gzip.compress(b"{}"), b"SQLite format 2"):
        assert not nsys_export.recognises(tmp_path / "report.sqlite", head)
    assert nsys_export.recognises(tmp_path / "x", b"NVIDIA Tegra Profiler Report 2026@1")


def test_reading_changes_neither_file_nor_folder(export: Export, tmp_path: Path) -> None:
    export.kernel(1, 2)
    path = export.write()
    before = path.read_bytes()
    path.chmod(0o400)
    read(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_a_report_of_nsys_names_the_command_that_exports_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 2026@1@1@204" + bytes(100))
    with pytest.raises(PerfwrapError) as refused:
        nsys_export.add(TimelineBuilder(), path)
    assert str(refused.value.hint) == f"Export it first: nsys export --type sqlite {path}"


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE users (name TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(PerfwrapError, match="not an nsys export"):
        nsys_export.add(TimelineBuilder(), path)


def test_a_view_in_place_of_a_table_is_never_asked(export: Export) -> None:
    export.call(1, 2)
    endless = "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start FROM n"
    export.run(f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless}")
    assert read(export.write()).spans.height == 1


@pytest.fixture
def large(export: Export) -> Path:
    for number in range(3_000):
        export.kernel(
            number * 10, number * 10 + 5, export.call(number * 10, number * 10 + 2), f"kernel_{number}"
        )
    return export.write()


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_of_a_file_that_was_cut_short_what_can_be_read_is_kept_and_the_rest_is_said(
    large: Path, tmp_path: Path, share: float
) -> None:
    content = large.read_bytes()
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(content[: int(len(content) * share)])
    try:
        timeline = read(cut)
    except PerfwrapError as refused:
        assert "damaged" in str(refused)
    else:
        assert any("damaged" in warning for warning in timeline.warnings)


def test_a_compressed_file_that_was_cut_short_costs_only_its_end(large: Path, tmp_path: Path) -> None:
    packed = gzip.compress(large.read_bytes())
    cut = tmp_path / "cut.sqlite.gz"
    cut.write_bytes(packed[: len(packed) * 3 // 4])
    timeline = read(cut)
    assert any("damaged" in warning for warning in timeline.warnings)
    assert 0 < timeline.spans.height < 6_000


def test_bytes_that_were_overwritten_raise_nothing_but_a_plain_error(large: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    content = bytearray(large.read_bytes())
    for _ in range(8):
        damaged = bytearray(content)
        for place in random.integers(100, len(content) - 64, 30):
            damaged[place : place + 64] = random.bytes(64)
        path = tmp_path / "damaged.sqlite"
        path.write_bytes(damaged)
        try:
            read(path)
        except PerfwrapError:
            continue


def test_a_file_that_unpacks_to_too_much_is_refused(
    export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys_file, "LARGEST_UNPACKED", 1 << 20)
    packed = tmp_path / "large.sqlite.gz"
    packed.write_bytes(gzip.compress(nsys_file.SQLITE_MAGIC + bytes(3 << 20)))
    with pytest.raises(PerfwrapError, match="too large"):
        nsys_export.add(TimelineBuilder(), packed)


def test_two_captures_side_by_side_keep_their_processes_apart(tmp_path: Path) -> None:
    builder = TimelineBuilder()
    for name in ("rank0.sqlite", "rank1.sqlite"):
        export = Export(tmp_path / name)
        export.kernel(1, 2, export.call(0, 1))
        nsys_export.add(builder, export.write())
    timeline = builder.build({})
    assert timeline.tracks.filter(pl.col("kind") == "process").height == 2
    assert timeline.spans.filter(pl.col("category") == "kernel")["link"].n_unique() == 2
