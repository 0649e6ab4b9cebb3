from __future__ import annotations

import os
import re
from pathlib import Path

import polars as pl
import pytest
from perfwrap.sources.tables.nvidia_smi import add, recognises
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.lookup import samples_of
from perfwrap.timeline.model import Timeline

MIB = 1 << 20
SHARED = (
    Path(os.environ.get("PERFWRAP_SHARED_DATA", Path(__file__).parents[5] / "shared" / "data")) / "nvidia-smi"
)

HEADER = (
    "timestamp, name, index, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], "
    "power.draw [W], temperature.gpu, clocks.current.sm [MHz], power.limit [W]\n"
)
UNITS = f"""{HEADER}\
2026/01/01 12:00:00.000, NVIDIA H100, 0, 50 %, 10 %, 1000 MiB, 81559 MiB, 300.50 W, 60, 1980 MHz, 700.00 W
2026/01/01 12:00:00.002, NVIDIA H100, 1, 70 %, 20 %, 2000 MiB, 81559 MiB, [N/A], 61, 1980 MHz, 700.00 W
2026/01/01 12:00:01.000, NVIDIA H100, 0, 100 %, 30 %, 3000 MiB, 81559 MiB, 500.50 W, 62, 1980 MHz, 700.00 W
"""
NO_HEADER = """\
2026/01/01 12:00:00.000, 0 %, 0 %, 2 MiB, 20146 MiB, 27, 11.64 W
2026/01/01 12:00:05.000, 40 %, 20 %, 148 MiB, 20000 MiB, 30, 50.00 W
"""
OWN_HEADER = """\
timestamp,gpu_index,temperature_C,utilization_gpu_percent,power_W
2026-01-01T12:00:00.487Z,0, 23, 25, 73.41
2026-01-01T12:00:00.487Z,1, 42, 75, 81.42
"""
DMON = """\
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk     fb
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %      %    MHz    MHz     MB
 20260101   12:00:00      0    300     60      -     90     40      0      0   2619   1980   1000
 20260101   12:00:00      1     70     30      -      0      0      0      0   2619    345      0
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk     fb
 20260101   12:00:01      0    310     61      -    100     50      0      0   2619   1980   2000
"""


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "gpu.log"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path) -> Timeline:
    assert recognises(path, path.read_bytes()[:4096])
    builder = TimelineBuilder()
    add(builder, path)
    return builder.build({})


def values(timeline: Timeline, metric: str, gpu: int = 0) -> list[float]:
    return [round(value, 6) for value in samples_of(timeline, f"gpu/{gpu}", metric)["value"].to_list()]


def facts(timeline: Timeline) -> dict[str, str]:
    return dict(timeline.facts.select("key", "value").iter_rows())


def test_a_query_with_units_becomes_the_series_of_the_monitor(tmp_path: Path) -> None:
    timeline = read(written(tmp_path, UNITS))
    assert values(timeline, "utilization_share") == [0.5, 1.0]
    assert values(timeline, "utilization_share", 1) == [0.7]
    assert values(timeline, "memory_activity_share") == [0.1, 0.3]
    assert values(timeline, "memory_used_bytes") == [1000 * MIB, 3000 * MIB]
    assert values(timeline, "power_watts") == [300.5, 500.5]
    assert values(timeline, "power_watts", 1) == []
    assert values(timeline, "temperature_celsius") == [60, 62]
    assert values(timeline, "sm_clock_hertz") == [1.98e9, 1.98e9]
    assert facts(timeline) == {
        "name": "NVIDIA H100",
        "memory_total_bytes": str(81559 * MIB),
        "power_limit_watts": "700",
    }
    times = samples_of(timeline, "gpu/0", "power_watts")["time"].to_list()
    assert times == [1_767_268_800 * 10**9, 1_767_268_801 * 10**9]
    assert any("no time zone" in text for text in timeline.warnings)


def test_without_units_numbers_are_in_those_of_nvidia_smi(tmp_path: Path) -> None:
    bare = UNITS.split("\n")[1:]
    header = re.sub(r" \[.*?\]", "", HEADER).strip()
    rows = [line.replace(" %", "").replace(" MiB", "").replace(" W", "").replace(" MHz", "") for line in bare]
    with_units, without = (read(written(tmp_path, text)) for text in (UNITS, "\n".join([header, *rows])))
    assert without.samples.equals(with_units.samples)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
def test_other_encodings_and_line_ends_change_nothing(tmp_path: Path, encoding: str) -> None:
    other = read(written(tmp_path, UNITS.replace("\n", "\r\n").encode(encoding)))
    assert other.samples.equals(read(written(tmp_path, UNITS)).samples)


def test_columns_without_names_are_recognised_by_their_units(tmp_path: Path) -> None:
    timeline = read(written(tmp_path, NO_HEADER))
    assert values(timeline, "utilization_share") == [0, 0.4]
    assert values(timeline, "memory_activity_share") == [0, 0.2]
    assert values(timeline, "memory_used_bytes") == [2 * MIB, 148 * MIB]
    assert values(timeline, "temperature_celsius") == [27, 30]
    assert values(timeline, "power_watts") == [11.64, 50]
    assert facts(timeline) == {}
    assert any("identified by their units" in text for text in timeline.warnings)


def test_own_names_of_columns_are_understood(tmp_path: Path) -> None:
    timeline = read(written(tmp_path, OWN_HEADER))
    assert values(timeline, "utilization_share", 1) == [0.75]
    assert values(timeline, "power_watts") == [73.41]
    assert values(timeline, "temperature_celsius") == [23]
    assert timeline.warnings == ()


def test_dmon_is_read_with_its_repeated_headers(tmp_path: Path) -> None:
    timeline = read(written(tmp_path, DMON))
    assert values(timeline, "utilization_share") == [0.9, 1.0]
    assert values(timeline, "memory_used_bytes") == [1000 * MIB, 2000 * MIB]
    assert values(timeline, "power_watts", 1) == [70]
    assert values(timeline, "memory_temperature_celsius") == []
    assert samples_of(timeline, "gpu/0", "power_watts")["time"][0] == 1_767_268_800 * 10**9


def test_dmon_without_dates_counts_seconds_and_says_so(tmp_path: Path) -> None:
    lines = [line[:1] + line[24:] if line.startswith("#") else line[24:] for line in DMON.splitlines()]
    timeline = read(written(tmp_path, "\n".join(lines)))
    assert samples_of(timeline, "gpu/0", "power_watts")["time"].to_list() == [10**9, 2 * 10**9]
    assert any("one line per second" in text for text in timeline.warnings)


def test_what_is_no_number_is_missing_and_never_zero(tmp_path: Path) -> None:
    for word in ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "ERR!", "-", ""):
        timeline = read(written(tmp_path, UNITS.replace("100 %", word)))
        assert values(timeline, "utilization_share") == [0.5]
        assert values(timeline, "power_watts") == [300.5, 500.5]


def test_lines_that_make_no_sense_are_counted(tmp_path: Path) -> None:
    noise = "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.\n2026/01/01 12:0"
    timeline = read(written(tmp_path, UNITS + noise))
    assert timeline.samples.height == read(written(tmp_path, UNITS)).samples.height
    assert any(text.startswith("2 lines of gpu.log") for text in timeline.warnings)


def test_reasons_for_lowered_clocks_become_the_series_of_the_monitor(tmp_path: Path) -> None:
    reasons = "clocks_event_reasons.sw_power_cap, clocks_throttle_reasons.active"
    header = f"timestamp, power.draw [W], {reasons}, clocks.max.sm"
    lines = [
        "2026/01/01 12:00:00.000, 90 W, Active, 0x0000000000000004, 1980 MHz",
        "2026/01/01 12:00:01.000, 90 W, Not Active, 0x0000000000000020, 1980 MHz",
        "2026/01/01 12:00:02.000, 90 W, [N/A], [N/A], 1980 MHz",
    ]
    timeline = read(written(tmp_path, "\n".join([header, *lines, ""])))
    assert values(timeline, "throttle/power_cap") == [1.0, 0.0]
    assert values(timeline, "throttle/heat") == [0.0, 1.0]
    assert values(timeline, "throttled_share") == [1.0, 1.0]
    assert facts(timeline)["sm_clock_max_hertz"] == "1980000000"


def test_columns_that_only_sound_alike_are_left_alone(tmp_path: Path) -> None:
    header = (
        "timestamp, utilization.encoder [%], temperature.gpu.tlimit, power.max_limit [W], clocks.max.memory [MHz], "
        "clocks_event_reasons.supported, power.draw [W], mem_util_percent"
    )
    timeline = read(
        written(tmp_path, header + "\n2026/01/01 12:00:00.000, 7 %, 30, 700 W, 1980 MHz, Active, 90 W, 5\n")
    )
    assert timeline.tracks.filter(pl.col("kind") == "counter")["name"].to_list() == ["power_watts"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 64,
        b"epoch,time,loss\n1,2,0.5\n",
        b"ID,Kernel Name,gpu__time_duration.sum,sm__throughput.avg\n0,k,1,2\n",
        b"Start (ns),Duration (ns),Name\n1,2,k\n",
        b'{"timestamp": 1, "utilization.gpu": 2}',
        b"2026/01/01 12:00:00.000, hello, 5 %\n",
        b"\xff\xfe",
    ],
)
def test_other_files_are_not_taken_for_a_log(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content)
    assert not recognises(path, content[:4096])


@pytest.mark.parametrize("cut", range(1, 700, 37))
def test_a_log_cut_anywhere_is_read_as_far_as_it_goes(tmp_path: Path, cut: int) -> None:
    builder = TimelineBuilder()
    add(builder, written(tmp_path, UNITS.encode()[:cut]))
    whole = set(read(written(tmp_path, UNITS)).samples["value"].to_list())
    cells = builder.build({}).samples["value"].to_list()
    assert len(set(cells) - whole) <= 1  # A number that is cut is another number.


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared logs are not beside the repository")
@pytest.mark.parametrize(
    ("name", "gpus", "rows", "mean", "peak"),
    [
        ("nanogpt_8xh100_100ms.csv", 8, 780, 0.848, ("power_watts", 694.91)),
        ("idle_then_bursts_noheader_units.csv", 1, 1923, 0.0143, ("temperature_celsius", 46)),
        ("vae3d_rtx2080ti_utf16.csv", 1, 434, 0.2746, ("memory_used_bytes", 10611 * MIB)),
    ],
)
def test_logs_of_others_give_the_figures_that_are_known_of_them(
    name: str, gpus: int, rows: int, mean: float, peak: tuple[str, float]
) -> None:
    timeline = read(SHARED / name)
    assert timeline.tracks.filter(pl.col("kind") == "gpu").height == gpus
    found = values(timeline, "utilization_share")
    assert len(found) == rows
    assert sum(found) / rows == pytest.approx(mean, rel=0.005)
    assert max(values(timeline, peak[0])) == pytest.approx(peak[1], rel=0.001)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared logs are not beside the repository")
def test_of_all_shared_files_only_the_logs_are_recognised() -> None:
    files = [path for path in SHARED.parent.rglob("*") if path.is_file()]
    found = {path for path in files if recognises(path, path.open("rb").read(4096))}
    assert found == set(SHARED.iterdir())
