"""The source of nsys stats's tables: each of them finds its place, whatever its units are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.sources import SOURCES
from perfwrap.sources.tables import nsys_stats
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

SHARED = Path(os.environ.get("PERFWRAP_SHARED_DATA", Path(__file__).resolve().parents[5] / "shared" / "data"))
CLOVERLEAF = SHARED / "nsys" / "cloverleaf_a100_cuda_gpu_trace.csv"

GPU = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
    '1000,50,11,64,1,1,256,1,1,32,0.0,0.0,,,,,NVIDIA H100 (1),1,,7,"void gemm<float, 4>(int)"\n'
    "1100,20,12,,,,,,,,,,2.500,1000,Pageable,Device,NVIDIA H100 (1),1,,7,[CUDA memcpy Host-to-Device]\n"
    "1200,10,13,,,,,,,,,,0.001,1000,Device,,NVIDIA H100 (1),1,,13,[CUDA memset]\n"
    "1300,10,14,,,,,,,,,,0.001,1000,Device,Pinned,NVIDIA H100 (1),1,,13,[CUDA memcpy DtoH]\n"
)
API = (
    "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
    "900,40,cudaLaunchKernel_v7000,0,11,77,78,20,python\n"
)
RANGES = (
    "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId\n"
    "100,900,800,0,800,:step 3,77,78,0,0,1\n"
    "200,300,100,0,100,DALI:data,77,78,1,0,2\n"
    "400,500,100,0,100,aten::mm,77,78,1,0,3\n"
)
SUMS = (
    "Time (%),Total Time (us),Instances,Avg (us),Med (us),Min (us),Max (us),StdDev (us),Name\n"
    "80.0,12.5,4,3.1,3.1,3.0,3.2,0.1,gemm\n"
)


def read(path: Path, *texts: str) -> Timeline:
    """Return the timeline of one file, written first where texts are given."""
    if texts:
        path.write_text("".join(texts))
    builder = TimelineBuilder()
    nsys_stats.add(builder, path)
    return builder.build({})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "report1_cuda_gpu_trace.csv"


def test_the_tables_of_nsys_stats_are_a_listed_source() -> None:
    assert "nsys_stats" in SOURCES


def test_work_of_the_gpu_is_on_its_streams(table: Path) -> None:
    spans = read(table, GPU).spans
    assert spans["operation"].to_list() == ["kernel", "h2d", "memset", "d2h"]
    assert spans["category"].to_list() == ["kernel", "copy", "memset", "copy"]
    assert spans["value"].to_list() == [None, 2_500_000, 1_000, 1_000]
    assert spans["name"][0] == "void gemm<float, 4>(int)"
    assert (spans["start"][0], spans["duration"][0]) == (1_000, 50)
    streams = read(table, GPU).tracks.filter(pl.col("kind") == "stream")["name"].to_list()
    assert streams == ["gpu/1 stream 7", "gpu/1 stream 13"]


def test_tables_of_one_report_are_linked_and_others_are_not(tmp_path: Path) -> None:
    builder = TimelineBuilder()
    for name, text in (("a_cuda_gpu_trace", GPU), ("a_cuda_api_trace", API), ("b_cuda_api_trace", API)):
        path = tmp_path / f"{name}.csv"
        path.write_text(text)
        nsys_stats.add(builder, path)
    spans = builder.build({}).spans
    kernel = spans.filter(pl.col("category") == "kernel")["link"][0]
    calls = spans.filter(pl.col("operation") == "cudaLaunchKernel")
    assert (calls["link"] == kernel).sum() == 1


def test_ranges_are_distinguished_as_in_the_export(table: Path) -> None:
    spans = read(table, RANGES).spans
    assert spans["operation"].to_list() == ["step", "nvtx", "op"]
    assert spans["name"].to_list() == ["step 3", "data", "aten::mm"]
    assert spans["step"].to_list() == [3, None, None]


def test_a_summary_without_times_becomes_sums(table: Path) -> None:
    sums = read(table, SUMS).sums
    assert sums.select("name", "category", "count", "duration").row(0) == ("gemm", "kernel", 4, 12_500)


def test_tables_that_were_printed_one_after_the_other_are_all_read(table: Path) -> None:
    said = [
        "Generating SQLite file report1.sqlite\n",
        "Processing [report1.sqlite] with [cuda_gpu_trace.py]\n",
    ]
    spans = read(table, *said, GPU, "\nProcessing, please wait\n", API, "\n", RANGES).spans
    assert spans.height == 8


def test_times_in_other_units_are_the_same_times(table: Path) -> None:
    header, first, *_ = GPU.splitlines(keepends=True)
    text = header.replace("Start (ns)", "Start (ms)").replace("Duration (ns)", "Duration (us)")
    spans = read(table, text, first.replace("1000,50", "0.001,0.05", 1)).spans
    assert (spans["start"][0], spans["duration"][0]) == (1_000, 50)


def test_pairs_of_events_are_spans(table: Path) -> None:
    text = (
        "Name,streamId,type,bytes,Trace Type,Event Type,Timestamp (ns),_matching_event,_matching_timestamp\n"
        "gemm,7,kernel,,gpu_trace,Enter,100,1,150\n"
        "gemm,7,kernel,,gpu_trace,Leave,150,0,100\n"
        "CUDA_MEMCPY_KIND_HTOD,7,CUDA_MEMCPY_KIND_HTOD,64,gpu_trace,Enter,200,3,210\n"
    )
    spans = read(table, text).spans
    assert spans.select("operation", "start", "duration", "value").rows() == [
        ("kernel", 100, 50, None),
        ("h2d", 200, 10, 64),
    ]


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_a_table_that_was_cut_short_gives_the_rows_before(table: Path, share: float) -> None:
    assert read(table, GPU[: int(len(GPU) * share)]).spans.height in (0, 1, 2, 3)


@pytest.mark.parametrize("content", [b"", b"Name,Start\n", b"\x1f\x8b\0", b'{"a": 1}'])
def test_other_files_are_not_recognised_and_refused(table: Path, content: bytes) -> None:
    table.write_bytes(content)
    assert not nsys_stats.recognises(table, content)
    with pytest.raises(PerfwrapError, match="contains no nsys stats table"):
        read(table)


@pytest.mark.skipif(not CLOVERLEAF.exists(), reason=f"no recordings at {SHARED}; set PERFWRAP_SHARED_DATA")
def test_recorded_tables_show_what_the_export_of_the_same_run_does() -> None:
    facts = json.loads((SHARED / "facts.json").read_text())
    expected = facts["nsys/cloverleaf_a100__schema3.13.2.sqlite.gz"]["facts"]
    work = read(CLOVERLEAF).spans
    kernels = work.filter(pl.col("category") == "kernel")
    assert kernels.height == expected["kernels"]
    assert kernels["duration"].sum() / 1e6 == pytest.approx(expected["kernel_time_ms"], rel=0.005)
    for direction, reported in expected["memcpy"].items():
        own = work.filter(pl.col("operation") == direction.lower())
        assert (own.height, own["value"].sum()) == (reported["n"], reported["bytes"])
    calls = read(CLOVERLEAF.with_name("cloverleaf_a100_cuda_api_trace.csv")).spans
    assert calls.height == expected["runtime_calls"]
    for name, count, milliseconds in expected["top_runtime_ms"]:
        own = calls.filter(pl.col("name") == name)
        assert own.height == count
        assert own["duration"].sum() / 1e6 == pytest.approx(milliseconds, abs=0.01)
