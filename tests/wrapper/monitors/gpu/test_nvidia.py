"""The GPU monitors through NVIDIA's real binding, against a stand-in for the driver's library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("stand_in_nvml.c")

WATCH = """
import os
import sys
from importlib import import_module
from pathlib import Path
from perfwrap.monitors import MODULES
from perfwrap.monitors.gpu import nvml
from perfwrap.monitors.monitor_journal import JournalWriter
if "STAND_IN_SLOW" not in os.environ:
    nvml.CHEAP_NS = 10**9  # On a busy machine any answer may be expensive; here only intended pauses happen.
journal = JournalWriter(Path(sys.argv[1]), "node")
names = sys.argv[3].split(",")
monitors = [import_module("perfwrap.monitors." + MODULES[name]).watch(journal) for name in names]
monitors = [monitor for monitor in monitors if monitor is not None]
second = 1_000_000_000
for turn in range(1, int(sys.argv[2]) + 1):
    for monitor in monitors:
        monitor.quick(turn)
for turn in range(int(sys.argv[4])):
    for monitor in monitors:
        monitor.full((turn + 1) * second)
for monitor in monitors:
    monitor.close()
journal.close()
"""

SECOND = 1_000_000_000
OTHERS = ("gpm", "nvlink", "gpu_health", "pcie")

Watch = Callable[..., Any]


def build(folder: Path, *flags: str) -> Path:
    gcc = shutil.which("gcc") or shutil.which("cc")
    if gcc is None:
        pytest.skip("there is no C compiler to build the stand-in for the NVIDIA driver")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [gcc, "-shared", "-fPIC", "-O1", "-w", *flags, "-o", str(library), str(SOURCE)], check=True
    )
    return folder


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library such as a recent driver brings."""
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def old_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library that lacks what recent drivers added."""
    return build(tmp_path_factory.mktemp("old_driver"), "-DOLD_DRIVER")


@pytest.fixture
def watch(tmp_path: Path, read_journal: Any) -> Watch:
    """Watch some GPUs for some looks; return the journal's content."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")

    def run(
        folder: Path,
        *names: str,
        looks: int = 3,
        seconds: int = 2,
        visible: str | None = None,
        **settings: object,
    ) -> Any:
        environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        environment |= {f"STAND_IN_{name.upper()}": str(value) for name, value in settings.items()}
        environment["LD_LIBRARY_PATH"] = str(folder)
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        journals = tmp_path / f"journal{len(list(tmp_path.iterdir()))}"
        journals.mkdir()
        watched = ",".join(names or ("gpu", "pcie"))
        command = [sys.executable, "-c", WATCH, str(journals), str(looks), watched, str(seconds)]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
        return read_journal(next(journals.glob("*.pwj")))

    return run


def gpus(content: Any) -> set[str]:
    return {entity for entity, _ in content.samples if entity.startswith("gpu/")}


def test_all_that_nvml_reports_is_written_in_base_units(watch: Watch, driver: Path) -> None:
    content = watch(driver, reasons=0x4 | 0x2)
    assert gpus(content) == {"gpu/0", "gpu/1"}
    expected = {
        "utilization_share": [0.41] * 3,
        "memory_activity_share": [0.1] * 3,
        "memory_used_bytes": [float(2 << 30)] * 3,
        "power_watts": [350.5] * 3,
        "sm_clock_hertz": [1.41e9] * 3,
        "throttled_share": [1.0] * 3,
        "throttle/power_cap": [1.0] * 3,
        "throttle/application_clocks": [1.0] * 3,
        "temperature_celsius": [64.0] * 2,
        "memory_clock_hertz": [2.619e9] * 2,
        "memory_temperature_celsius": [71.0] * 2,
        "energy_joules": [1234.5] * 2,
        "processes": [2.0] * 2,
        "process/4000000/memory_used_bytes": [float(5 << 30)] * 2,
        "other_processes": [0.0] * 2,
        "other_memory_used_bytes": [0.0] * 2,
        "pcie_tx_bytes_per_s": [1e6],
        "pcie_rx_bytes_per_s": [2e6],
        "pcie_generation": [4.0] * 2,
        "pcie_width": [8.0] * 2,
    }
    found = {
        metric: content.values(entity, metric) for entity, metric in content.samples if entity == "gpu/1"
    }
    assert found == expected
    assert {key: value for key, value in content.facts.items() if not key.startswith("gpu/0")} == {
        "nvidia_driver": "999.1",
        "cuda_driver": "12040",
        "gpu/1/name": "Stand-In 0",
        "gpu/1/uuid": "GPU-1111-1234",
        "gpu/1/memory_total_bytes": str(80 << 30),
        "gpu/1/sm_clock_max_hertz": "1980000000",
        "gpu/1/memory_clock_max_hertz": "2619000000",
        "gpu/1/power_limit_watts": "700",
        "gpu/1/compute_capability": "9.0",
        "gpu/1/power_limit_default_watts": "750",
        "gpu/1/mig": "off",
        "gpu/1/ecc": "on",
        "gpu/1/slowdown_temperature_celsius": "91",
        "gpu/1/shutdown_temperature_celsius": "90",
        "gpu/1/memory_temperature_max_celsius": "92",
        "gpu/1/temperature_max_celsius": "93",
        "gpu/1/process/4000000/owner": "unknown",
        "gpu/1/process/4000001/owner": "unknown",
        "gpu/1/pcie_generation_max": "5",
        "gpu/1/pcie_width_max": "16",
    }
    assert [(what, note) for what, _, _, note in content.coverage] == [("gpu/0", ""), ("gpu/1", "")]


def test_clocks_that_a_user_set_are_no_throttling(watch: Watch, driver: Path) -> None:
    content = watch(driver, reasons=0x1 | 0x2, gpus=1)
    assert content.values("gpu/0", "throttled_share") == [0.0] * 3
    assert {metric for _, metric in content.samples if metric.startswith("throttle/")} == {
        "throttle/application_clocks",
        "throttle/idle",
    }


def test_a_reason_without_a_name_is_reported_by_its_bit_without_a_cause(watch: Watch, driver: Path) -> None:
    content = watch(driver, reasons=0x800, gpus=1)
    assert content.values("gpu/0", "throttle/bit_11") == [1.0] * 3
    assert content.values("gpu/0", "throttled_share") == [0.0] * 3


def test_an_old_driver_is_asked_by_the_old_names_and_what_it_lacks_is_coverage(
    watch: Watch, old_driver: Path
) -> None:
    content = watch(old_driver, reasons=0x20, gpus=1)
    assert content.values("gpu/0", "throttle/heat") == [1.0] * 3
    assert content.values("gpu/0", "processes") == [2.0] * 2
    assert content.values("gpu/0", "utilization_share") == [0.4] * 3
    assert sorted((what, note) for what, _, _, note in content.coverage) == [
        ("gpu/0", ""),
        ("gpu/0/memory_temperature_celsius", "Function Not Found"),
        ("gpu/0/pcie_width_max", "Function Not Found"),
    ]


def test_what_a_gpu_does_not_support_is_one_line_and_the_rest_goes_on(watch: Watch, driver: Path) -> None:
    failing = "nvmlDeviceGetPowerUsage=3,nvmlDeviceGetPcieThroughput=4,nvmlDeviceGetTemperature=999"
    content = watch(driver, fail=failing, gpus=1)
    assert content.values("gpu/0", "power_watts") == []
    assert len(content.values("gpu/0", "utilization_share")) == 3
    assert len(content.values("gpu/0", "pcie_width")) == 2
    assert sorted((what, note) for what, _, _, note in content.coverage) == [
        ("gpu/0", ""),
        ("gpu/0/pcie_rx_bytes_per_s", "Insufficient Permissions"),
        ("gpu/0/pcie_tx_bytes_per_s", "Insufficient Permissions"),
        ("gpu/0/power", "Not Supported"),
    ]


def test_a_failure_that_may_pass_is_a_gap_until_it_repeats_too_often(watch: Watch, driver: Path) -> None:
    few = watch(driver, looks=5, fail="nvmlDeviceGetPowerUsage=999", gpus=1)
    assert few.notes("gpu/0/power") == []
    many = watch(driver, looks=50, fail="nvmlDeviceGetPowerUsage=999", gpus=1)
    assert many.notes("gpu/0/power") == ["Unknown Error"]


def test_a_gpu_lost_in_the_middle_is_survived(watch: Watch, driver: Path) -> None:
    content = watch(driver, looks=10, lost=0)
    assert len(content.values("gpu/0", "utilization_share")) == 3
    assert len(content.values("gpu/1", "utilization_share")) == 10
    assert len(content.values("gpu/1", "temperature_celsius")) == 2
    assert [note for note in content.notes("gpu/0") if note] == ["lost: GPU is lost"]
    # The line of the end is about the same start, and so replaces the open one.
    begun, ended = [(start, duration) for what, start, duration, _ in content.coverage if what == "gpu/0"]
    assert begun[0] == ended[0]
    assert begun[1] == 0 < ended[1]
    assert [duration for what, _, duration, _ in content.coverage if what == "gpu/1"] == [0]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", {"gpu/1"}),
        ("1,0", {"gpu/0", "gpu/1"}),
        ("2, 1", {"gpu/1", "gpu/2"}),
        ("1,7,2", {"gpu/1"}),
        ("GPU-2222-1234", {"gpu/2"}),
        ("GPU-11", {"gpu/1"}),
        ("GPU-2,GPU-0", {"gpu/0", "gpu/2"}),
        ("GPU-", set()),
        ("MIG-00001", {"gpu/1"}),
        ("MIG-GPU-2222-1234/1/0", {"gpu/2"}),
        ("MIG-nonsense", set()),
        ("", set()),
        ("-1", set()),
        ("NoDevFiles", set()),
    ],
)
def test_only_visible_gpus_are_watched(watch: Watch, driver: Path, visible: str, expected: set[str]) -> None:
    content = watch(driver, "gpu", "gpm", "pcie", looks=1, gpus=3, gpm=1, visible=visible)
    assert gpus(content) == expected
    notes = [f"CUDA_VISIBLE_DEVICES={visible} shows the program no GPU"]
    assert content.notes("gpu") == ([] if expected else notes)


def test_gpus_of_several_kinds_may_have_other_numbers_which_is_said(watch: Watch, driver: Path) -> None:
    (note,) = watch(driver, looks=1, kinds=1, visible="1").notes("gpu/numbers")
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in note
    assert watch(driver, looks=1, kinds=1, visible="GPU-1111").notes("gpu/numbers") == []
    assert watch(driver, looks=1, visible="1").notes("gpu/numbers") == []


def slices(content: Any) -> set[str]:
    return {entity for entity, _ in content.samples if entity.startswith("mig/")}


def test_a_gpu_in_slices_reports_what_it_can(watch: Watch, driver: Path) -> None:
    content = watch(driver, gpus=1, mig=0)
    assert content.facts["gpu/0/mig"] == "on"
    assert content.values("gpu/0", "utilization_share") == []
    assert content.notes("gpu/0/utilization") == ["Not Supported"]
    assert len(content.values("gpu/0", "memory_used_bytes")) == 3
    assert slices(content) == {"mig/0-7-0", "mig/0-8-0"}
    assert content.values("mig/0-7-0", "memory_used_bytes") == [float(1 << 29)] * 3
    assert content.values("mig/0-7-0", "processes") == [2.0] * 2
    facts = {key: value for key, value in content.facts.items() if key.startswith("mig/0-8-0/")}
    assert (
        facts.items()
        >= {
            "mig/0-8-0/gpu": "0",
            "mig/0-8-0/name": "Stand-In 0 MIG 1g.10gb",
            "mig/0-8-0/uuid": "MIG-10000",
            "mig/0-8-0/memory_total_bytes": str(9856 << 20),
            "mig/0-8-0/multiprocessors": "16",
        }.items()
    )


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0", {"mig/0-7-0", "mig/0-8-0"}),
        ("MIG-10000", {"mig/0-8-0"}),
        ("MIG-00000,MIG-10000", {"mig/0-7-0", "mig/0-8-0"}),
        ("MIG-GPU-0000-1234/8/0", {"mig/0-8-0"}),
        ("1", set()),
    ],
)
def test_only_visible_slices_are_watched(
    watch: Watch, driver: Path, visible: str, expected: set[str]
) -> None:
    content = watch(driver, "gpu", "gpm", looks=1, seconds=3, mig=0, gpm=1, visible=visible)
    assert slices(content) == expected
    assert all(content.values(entity, "sm_activity_share") for entity in expected)


def test_a_gpu_that_cannot_be_opened_leaves_the_others(watch: Watch, driver: Path) -> None:
    content = watch(driver, fail="handle0=15")
    assert gpus(content) == {"gpu/1"}
    assert content.notes("gpu/0") == ["GPU is lost"]
    others = watch(driver, *OTHERS, fail="handle0=15", gpm=1)
    assert gpus(others) == {"gpu/1"}
    assert others.notes("gpu/0") == []


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"init": 9}, "the NVIDIA driver does not respond: Driver Not Loaded"),
        ({"fail": "nvmlDeviceGetCount_v2=999"}, "the GPUs cannot be counted: Unknown Error"),
    ],
)
def test_a_driver_that_does_not_work_is_one_line(
    watch: Watch, driver: Path, settings: dict[str, object], note: str
) -> None:
    content = watch(driver, **settings)
    assert [(what, text) for what, _, _, text in content.coverage] == [("gpu", note)]


def test_a_library_that_cannot_be_loaded_is_named(watch: Watch, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    (folder / "libnvidia-ml.so.1").write_text("not a library")
    (note,) = watch(folder).notes("gpu")
    assert note.startswith("no NVIDIA driver: ")
    assert "libnvidia-ml.so.1" in note


def test_what_nvml_sampled_itself_is_written_as_soon_as_it_is_finer(watch: Watch, driver: Path) -> None:
    content = watch(driver, "gpu", gpus=1, looks=3, seconds=1, samples=20)
    # The stand-in's twenty samples lie within a twentieth of a second, or at most on both sides of an edge.
    assert set(content.values("gpu/0", "buffered/power_watts")) == {300.0}
    assert len(content.values("gpu/0", "buffered/power_watts")) <= 2
    assert sum(content.values("gpu/0", "buffered/utilization_share")) >= 0.5
    ((time, _), *_) = content.samples["gpu/0", "buffered/power_watts"]
    assert content.header[3] <= time <= content.end[0]


def test_samples_that_are_no_shares_are_given_up(watch: Watch, driver: Path) -> None:
    content = watch(driver, "gpu", gpus=1, looks=3, seconds=2, samples=20, share=400_000)
    assert content.values("gpu/0", "buffered/utilization_share") == []
    assert content.notes("gpu/0/buffered/utilization_share") == ["its values are not between 0 and 1"]
    assert content.values("gpu/0", "buffered/power_watts")


def test_what_nvml_sampled_itself_is_left_alone_where_the_monitor_looks_as_often(
    watch: Watch, driver: Path
) -> None:
    for samples in (0, 3):
        content = watch(driver, "gpu", gpus=1, looks=3, seconds=1, samples=samples)
        assert not [metric for _, metric in content.samples if metric.startswith("buffered/")]
        assert not [what for what, *_ in content.coverage if "buffered" in what]


def test_gpm_reports_what_the_parts_of_a_gpu_do(watch: Watch, driver: Path) -> None:
    content = watch(driver, *OTHERS, gpus=1, seconds=4, gpm=1)
    expected = {
        "graphics_activity_share": 0.01,
        "sm_activity_share": 0.02,
        "sm_occupancy_share": 0.03,
        "integer_activity_share": 0.04,
        "tensor_activity_share": 0.05,
        "tensor_dfma_activity_share": 0.06,
        "tensor_hmma_activity_share": 0.07,
        "tensor_dmma_activity_share": 0.08,
        "tensor_imma_activity_share": 0.09,
        "dram_activity_share": 0.1,
        "fp32_activity_share": 0.12,
        "fp16_activity_share": 0.13,
        "pcie_tx_bytes_per_s": 20.0 * 2**20,
        "pcie_rx_bytes_per_s": 21.0 * 2**20,
        "nvlink_rx_bytes_per_s": 60.0 * 2**20,
        "nvlink_tx_bytes_per_s": 61.0 * 2**20,
    }
    for metric, value in expected.items():
        assert content.values("gpu/0", metric) == pytest.approx([value] * 3), metric
    # NVML had no number for it, which is neither an answer nor a defect.
    assert content.values("gpu/0", "fp64_activity_share") == []
    times = [time for time, _ in content.samples["gpu/0", "sm_activity_share"]]
    assert times == [2 * SECOND, 3 * SECOND, 4 * SECOND]
    assert content.coverage == []


def test_a_gpm_metric_that_a_gpu_lacks_costs_only_itself(watch: Watch, driver: Path) -> None:
    content = watch(driver, "gpm", gpus=1, seconds=4, gpm=1, lacks=5)
    assert content.values("gpu/0", "tensor_activity_share") == []
    assert content.values("gpu/0", "tensor_hmma_activity_share") == pytest.approx([0.07] * 3)
    assert content.notes("gpu/0/tensor_activity_share") == ["Not Supported"]
    assert len(content.coverage) == 1


def test_a_gpu_without_gpm_says_so_and_its_links_are_asked_the_older_way(
    watch: Watch, driver: Path, old_driver: Path
) -> None:
    content = watch(driver, *OTHERS, gpus=1, seconds=4)
    assert content.notes("gpu/0/gpm") == ["this GPU has no GPM (Hopper or later is required)"]
    assert content.values("gpu/0", "pcie_tx_bytes_per_s") == [1e6]
    assert content.values("gpu/0", "nvlink_tx_bytes_per_s") == [1024.0 * 1024] * 3
    assert content.values("gpu/0", "nvlink_rx_bytes_per_s") == [2048.0 * 1024] * 3
    old = watch(old_driver, *OTHERS, gpus=1)
    assert old.notes("gpu/0/gpm") == ["Function Not Found"]


def test_slow_questions_about_pcie_are_asked_every_five_seconds(watch: Watch, driver: Path) -> None:
    content = watch(driver, "pcie", gpus=1, seconds=12)
    times = [time // SECOND for time, _ in content.samples["gpu/0", "pcie_tx_bytes_per_s"]]
    assert times == [1, 6, 11]
    assert len(content.values("gpu/0", "pcie_width")) == 12


def test_an_expensive_query_is_made_rarely_and_the_others_as_before(watch: Watch, driver: Path) -> None:
    content = watch(driver, "gpu", gpus=1, looks=50, slow="nvmlDeviceGetPowerUsage=3000")
    assert len(content.values("gpu/0", "utilization_share")) == 50
    # The first answer may be expensive; after the second one it pauses for 3 ms / 0.08 %.
    assert len(content.values("gpu/0", "power_watts")) == 2
    (note,) = content.notes("gpu/0/power")
    assert note.startswith("read less often: each read takes ")


def test_expensive_readings_of_gpm_are_less_frequent_but_miss_nothing(watch: Watch, driver: Path) -> None:
    content = watch(driver, "gpm", gpus=1, seconds=6, gpm=1, slow="nvmlGpmSampleGet=2000")
    assert content.values("gpu/0", "sm_activity_share") == pytest.approx([0.02])
    assert [time for time, _ in content.samples["gpu/0", "sm_activity_share"]] == [2 * SECOND]


def test_nvlinks_report_how_many_work_and_when_they_had_to_repeat(watch: Watch, driver: Path) -> None:
    content = watch(driver, "nvlink", gpus=1, seconds=5)
    assert content.facts["gpu/0/nvlinks"] == "4"
    assert content.values("gpu/0", "nvlinks_active") == [3.0]
    assert content.samples["gpu/0", "nvlink_replay_errors"] == [(SECOND, 0.0), (3 * SECOND, 1.0)]


def test_a_field_that_a_gpu_lacks_costs_only_itself(watch: Watch, driver: Path) -> None:
    content = watch(driver, "nvlink", "gpu", gpus=1, seconds=3, lacks=82)
    assert content.notes("gpu/0/memory_temperature_celsius") == ["Not Supported"]
    content = watch(driver, "nvlink", "gpu", gpus=1, seconds=3, lacks=138)
    assert content.notes("gpu/0/nvlink_tx_bytes_per_s") == ["Not Supported"]
    assert content.values("gpu/0", "nvlink_rx_bytes_per_s") == [2048.0 * 1024] * 2
    assert content.values("gpu/0", "memory_temperature_celsius") == [71.0] * 3


def test_errors_of_the_memory_are_written_when_they_grow(watch: Watch, driver: Path) -> None:
    content = watch(driver, "gpu_health", gpus=1, seconds=12)
    assert content.values("gpu/0", "ecc_corrected_errors") == [3.0, 4.0]
    assert content.values("gpu/0", "ecc_uncorrected_errors") == [0.0]
    assert content.values("gpu/0", "rows_remapped_corrected") == [2.0]
    assert content.values("gpu/0", "row_remap_pending") == [0.0]
    assert content.values("gpu/0", "pcie_replays") == [5.0]
    assert content.values("gpu/0", "power_limit_watts") == [700.0]


def test_an_xid_is_a_mark_with_its_meaning(watch: Watch, driver: Path) -> None:
    content = watch(driver, "gpu_health", seconds=3, xid=79)
    assert content.marks == [
        ("xid", "gpu/0: 79, the GPU has fallen off the bus"),
        ("xid", "gpu/1: 79, the GPU has fallen off the bus"),
    ]
    assert content.samples["gpu/0", "xid"] == [(SECOND, 79.0)]
    unheard = watch(driver, "gpu_health", seconds=3, xid=777, gpus=1)
    assert unheard.marks == [("xid", "gpu/0: 777")]


@pytest.mark.parametrize(
    ("failing", "what"),
    [
        ("nvmlDeviceGetSupportedEventTypes=3", "events"),
        ("nvmlEventSetCreate=4", "events"),
        ("nvmlDeviceGetRemappedRows=3", "rows_remapped"),
        ("nvmlDeviceGetTotalEccErrors=3", "ecc_corrected_errors"),
    ],
)
def test_health_that_a_driver_does_not_report_is_one_line_each(
    watch: Watch, driver: Path, failing: str, what: str
) -> None:
    content = watch(driver, "gpu_health", gpus=1, seconds=12, xid=31, fail=failing)
    assert len(content.notes(f"gpu/0/{what}")) == 1
    assert content.values("gpu/0", "pcie_replays") == [5.0]
    assert bool(content.marks) == (what != "events")


def test_a_gpu_lost_while_gpm_is_read_leaves_the_others(watch: Watch, driver: Path) -> None:
    content = watch(driver, *OTHERS, seconds=6, gpm=1, lost=0)
    assert len(content.values("gpu/0", "sm_activity_share")) == 2
    assert len(content.values("gpu/1", "sm_activity_share")) == 5
    assert len(content.values("gpu/0", "pcie_width")) == 2
    assert len(content.values("gpu/1", "pcie_width")) == 6


def test_the_run_s_own_processes_are_distinguished_from_strangers(watch: Watch, driver: Path) -> None:
    # The parent of the monitors' process is what started the run's processes; this test plays it.
    content = watch(driver, "gpu", gpus=1, pids=f"{os.getpid()},1")
    assert content.facts[f"gpu/0/process/{os.getpid()}/owner"] == "run"
    assert content.facts["gpu/0/process/1/owner"] != "run"
    assert content.values("gpu/0", "processes") == [2.0] * 2


def test_the_sidecar_records_every_kind_of_gpu_series(
    start_sidecar: Any, driver: Path, run_python: Any
) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    own = run_python("import sys; sys.stdin.read()")
    settings = {"GPM": "1", "XID": "31", "MIG": "0", "GPUS": "3", "LOST": "2", "SAMPLES": "50"}
    environment = {f"STAND_IN_{name}": value for name, value in settings.items()}
    sidecar = start_sidecar(
        environment={**environment, "LD_LIBRARY_PATH": str(driver), "STAND_IN_PIDS": f"{own.pid},1"}
    )
    content = sidecar.wait_until(
        lambda content: (
            content.values("gpu/1", "sm_activity_share")
            and content.values("mig/0-7-0", "sm_activity_share")
            and content.values("gpu/1", "buffered/power_watts")
            and content.values("gpu/1", "nvlinks_active")
            and any(content.notes("gpu/2"))
            and len(content.marks) >= 3
        ),
        "series of every monitor",
    )
    assert content.facts[f"gpu/1/process/{own.pid}/owner"] == "run"
    content = sidecar.finish()
    assert {"gpu", "gpm", "nvlink", "gpu_health", "pcie"} <= {
        what for what, _, duration, _ in content.coverage if duration == 0
    }
    assert [note for note in content.notes("gpu/2") if note] == ["lost: GPU is lost"]
    assert not [text for what, _, _, text in content.coverage if text.startswith("stopped")]


def test_the_sidecar_records_gpus_beside_the_rest(
    start_sidecar: Any, driver: Path, read_journal: Any
) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    sidecar = start_sidecar(environment={"LD_LIBRARY_PATH": str(driver), "CUDA_VISIBLE_DEVICES": "1"})
    sidecar.wait_until(
        lambda content: (
            content.values("gpu/1", "utilization_share")
            and content.values("gpu/1", "pcie_width")
            and content.values("host", "cpu_cores_busy")
        ),
        "series of both",
    )
    content = sidecar.finish()
    assert gpus(content) == {"gpu/1"}
    assert {"gpu", "pcie", "host"} <= {what for what, _, duration, _ in content.coverage if duration == 0}
