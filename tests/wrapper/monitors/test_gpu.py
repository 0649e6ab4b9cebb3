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
import sys
from importlib import import_module
from pathlib import Path
from perfwrap.monitors.journal import JournalWriter
journal = JournalWriter(Path(sys.argv[1]), "node")
names = sys.argv[3].split(",")
monitors = [import_module("perfwrap.monitors." + name).watch(journal) for name in names]
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
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
        return read_journal(next(journals.glob("*.pwj")))

    return run


def gpus(content: Any) -> set[str]:
    return {entity for entity, _ in content.samples if entity.startswith("gpu/")}


def test_all_that_nvml_tells_is_written_in_base_units(watch: Watch, driver: Path) -> None:
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
        "processes": [2.0] * 2,
        "process/4242/memory_used_bytes": [float(5 << 30)] * 2,
        "pcie_tx_bytes_per_s": [1e6] * 2,
        "pcie_rx_bytes_per_s": [2e6] * 2,
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
        "gpu/1/name": "Stand-In 1",
        "gpu/1/uuid": "GPU-1111-1234",
        "gpu/1/memory_total_bytes": str(80 << 30),
        "gpu/1/sm_clock_max_hertz": "1980000000",
        "gpu/1/memory_clock_max_hertz": "2619000000",
        "gpu/1/power_limit_watts": "700",
        "gpu/1/compute_capability": "9.0",
        "gpu/1/mig": "off",
        "gpu/1/pcie_generation_max": "5",
        "gpu/1/pcie_width_max": "16",
    }
    assert content.coverage == []


def test_clocks_that_somebody_chose_are_no_throttling(watch: Watch, driver: Path) -> None:
    content = watch(driver, reasons=0x1 | 0x2, gpus=1)
    assert content.values("gpu/0", "throttled_share") == [0.0] * 3
    assert {metric for _, metric in content.samples if metric.startswith("throttle/")} == {
        "throttle/application_clocks"
    }


def test_an_old_driver_is_asked_by_the_old_names_and_what_it_lacks_is_coverage(
    watch: Watch, old_driver: Path
) -> None:
    content = watch(old_driver, reasons=0x20, gpus=1)
    assert content.values("gpu/0", "throttle/heat") == [1.0] * 3
    assert content.values("gpu/0", "processes") == [2.0] * 2
    assert content.values("gpu/0", "utilization_share") == [0.4] * 3
    assert content.notes("gpu/0/pcie_width_max") == ["Function Not Found"]
    assert len(content.coverage) == 1


def test_what_a_gpu_does_not_support_is_one_line_and_the_rest_goes_on(watch: Watch, driver: Path) -> None:
    failing = "nvmlDeviceGetPowerUsage=3,nvmlDeviceGetPcieThroughput=4,nvmlDeviceGetTemperature=999"
    content = watch(driver, fail=failing, gpus=1)
    assert content.values("gpu/0", "power_watts") == []
    assert len(content.values("gpu/0", "utilization_share")) == 3
    assert len(content.values("gpu/0", "pcie_width")) == 2
    assert sorted((what, note) for what, _, _, note in content.coverage) == [
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
    notes = content.notes("gpu/0")
    assert set(notes) == {"lost: GPU is lost"}
    assert all(duration > 1 for what, _, duration, _ in content.coverage if what == "gpu/0")


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
    content = watch(driver, looks=1, gpus=3, visible=visible)
    assert gpus(content) == expected
    notes = [f"CUDA_VISIBLE_DEVICES={visible} shows the program no GPU"]
    assert content.notes("gpu") == ([] if expected else notes)


def test_a_gpu_in_slices_tells_what_it_can(watch: Watch, driver: Path) -> None:
    content = watch(driver, gpus=1, mig=0)
    assert content.facts["gpu/0/mig"] == "on"
    assert content.values("gpu/0", "utilization_share") == []
    assert content.notes("gpu/0/utilization") == ["Not Supported"]
    assert len(content.values("gpu/0", "memory_used_bytes")) == 3


def test_a_gpu_that_cannot_be_opened_leaves_the_others(watch: Watch, driver: Path) -> None:
    content = watch(driver, fail="handle0=15")
    assert gpus(content) == {"gpu/1"}
    assert content.notes("gpu/0") == ["GPU is lost"]


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"init": 9}, "the NVIDIA driver does not answer: Driver Not Loaded"),
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
