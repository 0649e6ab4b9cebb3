"""The ncu source: both layouts of its CSV give the same about a kernel."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.sources import SOURCES
from perfwrap.sources.tables import ncu_tables
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

SHARED = Path(os.environ.get("PERFWRAP_SHARED_DATA", Path(__file__).resolve().parents[5] / "shared" / "data"))
FACTS = json.loads((SHARED / "facts.json").read_text()) if (SHARED / "facts.json").exists() else {}
RAW = sorted(name for name in FACTS if name.startswith("ncu/") and name.endswith("_raw.csv"))
DETAILS = sorted(name for name in FACTS if name.startswith("ncu/") and name.endswith("_details.csv"))
NAMES = "ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device,CC"
recorded = pytest.mark.skipif(not RAW, reason=f"no recordings at {SHARED}; set PERFWRAP_SHARED_DATA")


def cells(*values: str) -> str:
    """Return a line of quoted cells, as ncu writes it."""
    return ",".join(f'"{value}"' for value in values) + "\n"


def launch(number: int, name: str = "gemm(float *, int)") -> list[str]:
    """Return the cells that both layouts begin with."""
    return [str(number), "77", "python", "node7", name, "1", "7", "(256, 1, 1)", "(64, 1, 1)", "0", "9.0"]


def raw(metrics: dict[str, tuple[str, str]], count: int = 1, name: str = "gemm(float *, int)") -> str:
    """Return a table in the raw layout."""
    header = cells(*NAMES.split(","), *metrics)
    units = cells(*[""] * 11, *(unit for unit, _ in metrics.values()))
    values = [value for _, value in metrics.values()]
    return header + units + "".join(cells(*launch(number, name), *values) for number in range(count))


def details(metrics: list[tuple[str, str, str]]) -> str:
    """Return a table in the layout of details; rules end it with rows without a metric."""
    header = cells(
        *NAMES.split(","), "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name"
    )
    lines = [cells(*launch(0), "GPU Speed Of Light Throughput", *metric) for metric in metrics]
    return header + "".join(lines) + cells(*launch(0), "SpeedOfLight", "", "", "", "SOLBottleneck")


def read(path: Path) -> Timeline:
    """Return the timeline of one file."""
    builder = TimelineBuilder()
    ncu_tables.add(builder, path)
    return builder.build({})


def kernels(path: Path) -> list[dict[str, Any]]:
    """Return what is said about each launch."""
    return [json.loads(detail) for detail in read(path).marks["detail"]]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


METRICS = {
    "gpu__time_duration.sum": ("us", "1,284.704000"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "37.46"),
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "89.10"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "80.32"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "n/a"),
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active": ("%", "41.5"),
    "smsp__average_warp_latency_per_inst_issued.ratio": ("cycle", "20"),
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": ("inst", "11"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "5"),
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": ("inst", "4"),
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": ("inst/cycle", "3"),
    "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum.per_cycle_elapsed": ("inst/cycle", "7"),
}


def test_ncu_is_a_listed_source() -> None:
    assert "ncu" in SOURCES


def test_the_raw_layout_has_all_about_a_kernel(table: Path) -> None:
    table.write_text(raw(METRICS, count=2))
    first, second = kernels(table)
    assert first == second
    assert (first["kernel"], first["grid"], first["compute_capability"]) == (
        "gemm(float *, int)",
        "(64, 1, 1)",
        "9.0",
    )
    assert first["duration_ns"] == 1_284_704
    assert (first["compute_share"], first["memory_share"]) == (0.3746, 0.891)
    assert (first["occupancy_share"], first["tensor_share"]) == (0.8032, 0.415)
    assert (first["stall"], first["stall_share"]) == ("long_scoreboard", 0.25)
    assert first["arithmetic"] == "fp16"
    timeline = read(table)
    assert timeline.marks["value"].to_list() == [1_284_704.0] * 2
    assert timeline.tracks["pid"].drop_nulls().to_list() == [77]


def test_the_layout_of_details_gives_the_same(table: Path) -> None:
    table.write_text(
        details(
            [
                ("Memory Throughput", "%", "89.10"),
                ("Duration", "us", "1,284.70"),
                ("Compute (SM) Throughput", "%", "37.46"),
                ("Memory Throughput", "Tbyte/s", "1.82"),
                ("Achieved Occupancy", "%", "80.32"),
            ]
        )
    )
    (kernel,) = kernels(table)
    assert (kernel["compute_share"], kernel["memory_share"]) == (0.3746, 0.891)
    assert (kernel["occupancy_share"], kernel["duration_ns"]) == (0.8032, 1_284_700)
    assert kernel["tensor_share"] is kernel["stall"] is kernel["arithmetic"] is None


def test_what_was_not_measured_is_not_zero(table: Path) -> None:
    table.write_text(raw({"launch__grid_size": ("", "64")}))
    (kernel,) = kernels(table)
    assert {key for key, value in kernel.items() if value is not None} == {
        "kernel",
        "grid",
        "block",
        "compute_capability",
    }


def test_samples_stand_in_where_there_are_no_exact_counters_of_stalls(table: Path) -> None:
    prefix = "smsp__pcsamp_warps_issue_stalled_"
    counted = {"selected": "50", "drain": "30", "wait": "20", "drain_not_issued": "900"}
    table.write_text(raw({prefix + name: ("warp", value) for name, value in counted.items()}))
    (kernel,) = kernels(table)
    assert (kernel["stall"], kernel["stall_share"]) == ("drain", 0.3)


def test_what_ncu_and_the_program_print_before_the_table_is_passed_over(table: Path) -> None:
    table.write_text(
        "epoch 1, loss 2\n==PROF== Connected to process 77\n" + raw(METRICS) + "==PROF== Disconnected\n"
    )
    assert ncu_tables.recognises(table, table.read_bytes()[:4096])
    assert len(kernels(table)) == 1


def test_a_table_that_powershell_redirected_is_read(table: Path) -> None:
    table.write_text(raw(METRICS), encoding="utf-16")
    assert ncu_tables.recognises(table, table.read_bytes()[:4096])
    assert len(kernels(table)) == 1


def test_ranges_in_columns_of_their_own_do_not_move_the_others(table: Path) -> None:
    lines = []
    for place, line in enumerate(raw(METRICS).splitlines()):
        front, behind = line.split('","', 4)[:4], line.split('","', 4)[4]
        extra = "thread Domain:Push/Pop_Range" if place == 0 else '77 ""<default domain>:run_test:none"" '
        lines.append('","'.join([*front, extra, behind]))
    table.write_text("\n".join(lines) + "\n")
    (kernel,) = kernels(table)
    assert (kernel["kernel"], kernel["compute_share"]) == ("gemm(float *, int)", 0.3746)


def test_a_long_name_of_a_template_is_kept(table: Path) -> None:
    name = "void f<" + "g<int>, " * 40_000 + "h>()"
    table.write_text(raw(METRICS, name=name))
    assert kernels(table)[0]["kernel"] == name


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_a_table_that_was_cut_short_gives_the_launches_before(table: Path, share: float) -> None:
    whole = raw(METRICS, count=50)
    table.write_text(whole[: int(len(whole) * share)])
    assert len(kernels(table)) < 50


def test_a_table_without_kernels_says_so(table: Path) -> None:
    table.write_text(raw(METRICS, count=0))
    assert any("contains no kernels" in warning for warning in read(table).warnings)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\x1f\x8b\0", b"{}", b"\xff\xfe\0"])
def test_other_files_are_not_recognised_and_refused(table: Path, content: bytes) -> None:
    table.write_bytes(content)
    assert not ncu_tables.recognises(table, content)
    with pytest.raises(PerfwrapError):
        ncu_tables.add(TimelineBuilder(), table)


def test_a_report_of_ncus_names_the_command_that_prints_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.ncu-rep"
    path.write_bytes(b"NVR\0" + bytes(50))
    assert ncu_tables.recognises(path, path.read_bytes())
    with pytest.raises(PerfwrapError) as refused:
        ncu_tables.add(TimelineBuilder(), path)
    assert "ncu --import mine.ncu-rep" in str(refused.value.hint)


@recorded
@pytest.mark.parametrize("name", RAW)
def test_recorded_raw_tables_show_what_was_measured(name: str) -> None:
    found = kernels(SHARED / name)
    expected = FACTS[name]["facts"]["kernels"]
    assert len(found) == len(expected) == FACTS[name]["facts"]["data_rows"]
    for kernel, (title, duration, *shares) in zip(found, expected, strict=True):
        assert title[:10] in kernel["kernel"]
        assert kernel["duration_ns"] == pytest.approx(float(duration.split()[0]) * 1_000, rel=1e-6)
        reported = [kernel["compute_share"], kernel["memory_share"], kernel["occupancy_share"]]
        assert reported == pytest.approx([float(share.split()[1]) / 100 for share in shares], rel=1e-6)


@recorded
@pytest.mark.parametrize("name", DETAILS)
def test_recorded_tables_of_both_layouts_agree(name: str) -> None:
    found = kernels(SHARED / name)
    same = kernels(SHARED / name.replace("_details", "_raw"))
    assert len(found) == len(same) == FACTS[name]["facts"]["kernel_ids"]
    for kernel, other in zip(found, same, strict=True):
        assert kernel["kernel"] == other["kernel"]
        for key in ("duration_ns", "compute_share", "memory_share", "dram_share", "occupancy_share"):
            assert kernel[key] == pytest.approx(other[key], rel=0.005)
