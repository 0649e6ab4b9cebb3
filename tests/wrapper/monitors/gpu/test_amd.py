"""AMD's GPUs, through a stand-in for amdsmi with the functions and answers that its documentation describes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors.gpu.amd import visible_numbers

AMDSMI = """
import enum, os
class AmdSmiException(Exception): pass
class AmdSmiMemoryType(enum.IntEnum): VRAM = 0
class AmdSmiClkType(enum.IntEnum): GFX = 0; MEM = 4
class AmdSmiTemperatureType(enum.IntEnum): EDGE = 0; HOTSPOT = 1; VRAM = 2
class AmdSmiTemperatureMetric(enum.IntEnum): CURRENT = 0
def amdsmi_init():
    if os.environ.get("AMD_BROKEN"): raise AmdSmiException("no driver")
def amdsmi_get_processor_handles(): return [0, 1, 2]
def amdsmi_get_gpu_asic_info(gpu): return {"market_name": "AMD Instinct MI300X"}
def amdsmi_get_gpu_device_uuid(gpu): return f"uuid-{gpu}"
def amdsmi_get_gpu_memory_total(gpu, kind): return 192 << 30
def amdsmi_get_gpu_memory_usage(gpu, kind): return (gpu + 1) << 30
def amdsmi_get_gpu_activity(gpu):
    return {"gfx_activity": 70 + gpu, "umc_activity": 10 if gpu else "N/A", "mm_activity": "N/A"}
def amdsmi_get_power_info(gpu):
    old = {"current_socket_power": 400, "average_socket_power": "N/A"}
    return old if gpu else {"socket_power": 500, "current_socket_power": "N/A"}
def amdsmi_get_power_cap_info(gpu): return {"power_cap": 750_000_000 if gpu else 750}
def amdsmi_get_clock_info(gpu, kind):
    return {"clk" if gpu else "cur_clk": 1300 if kind == AmdSmiClkType.MEM else 2100, "max_clk": 2500}
def amdsmi_get_temp_metric(gpu, kind, metric):
    if kind == AmdSmiTemperatureType.VRAM: raise AmdSmiException("not supported")
    return 67500 if gpu else 52
def amdsmi_get_gpu_process_list(gpu):
    return [{"pid": os.getppid(), "name": "python", "mem": 5, "memory_usage": {"vram_mem": 7}}]
"""

WATCH = """
import sys
from pathlib import Path
from perfwrap.monitors.gpu import nvidia as gpu
from perfwrap.monitors.monitor_journal import JournalWriter
journal = JournalWriter(Path(sys.argv[1]), "node")
monitor = gpu.watch(journal)
for turn in range(20 if monitor else 0):
    monitor.quick(turn + 1)
    monitor.full(turn + 1)
journal.close()
"""

Watch = Callable[..., Any]


@pytest.fixture
def watch(tmp_path: Path, read_journal: Any) -> Watch:
    """Watch the GPUs of the stand-in, on a machine without NVIDIA's driver."""

    def run(**settings: str) -> Any:
        (tmp_path / "amdsmi.py").write_text(AMDSMI)
        journals = tmp_path / f"journal{len(list(tmp_path.iterdir()))}"
        journals.mkdir()
        hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
        environment = {name: value for name, value in os.environ.items() if name not in hidden} | settings
        paths = [str(tmp_path), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        # A library of NVIDIA's that cannot be loaded stands for none, also where there is one.
        (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
        environment["LD_LIBRARY_PATH"] = str(tmp_path)
        command = [sys.executable, "-c", WATCH, str(journals)]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
        return read_journal(next(journals.glob("*.pwj")))

    return run


def test_an_amd_gpu_gives_the_same_series_in_base_units(watch: Watch) -> None:
    content = watch()
    expected = {
        "utilization_share": 0.71,
        "memory_activity_share": 0.1,
        "memory_used_bytes": float(2 << 30),
        "power_watts": 400.0,
        "sm_clock_hertz": 2.1e9,
        "temperature_celsius": 67.5,
        "memory_clock_hertz": 1.3e9,
        "processes": 1.0,
        f"process/{os.getpid()}/memory_used_bytes": 7.0,
        "other_processes": 0.0,
        "other_memory_used_bytes": 0.0,
    }
    found = {
        metric: content.values(entity, metric)[0] for entity, metric in content.samples if entity == "gpu/1"
    }
    assert found == pytest.approx(expected)
    assert content.values("gpu/0", "power_watts")[0] == 500.0
    assert content.values("gpu/0", "temperature_celsius")[0] == 52.0
    assert content.values("gpu/0", "sm_clock_hertz")[0] == 2.1e9
    facts = {key: value for key, value in content.facts.items() if key.startswith("gpu/1/")}
    assert (
        facts.items()
        >= {
            "gpu/1/name": "AMD Instinct MI300X",
            "gpu/1/uuid": "uuid-1",
            "gpu/1/memory_total_bytes": str(192 << 30),
            "gpu/1/sm_clock_max_hertz": "2500000000",
            "gpu/1/power_limit_watts": "750",
        }.items()
    )
    assert content.facts["gpu/0/power_limit_watts"] == "750"


def test_what_amdsmi_does_not_report_is_one_line_each(watch: Watch) -> None:
    content = watch()
    assert content.values("gpu/0", "memory_activity_share") == []
    assert content.notes("gpu/0/memory_temperature_celsius") == ["not supported"]
    assert content.notes("gpu/0/ecc_errors") == ["this amdsmi has no such function"]
    assert len(content.notes("gpu/0/throttle_reasons")) == 1
    assert len(content.values("gpu/0", "utilization_share")) == 20


def test_only_visible_amd_gpus_are_watched(watch: Watch) -> None:
    content = watch(HIP_VISIBLE_DEVICES="1")
    assert {entity for entity, _ in content.samples} == {"gpu/1"}
    (note,) = watch(HIP_VISIBLE_DEVICES="").notes("gpu")
    assert note.endswith("no AMD GPU is visible to the program")


def test_a_driver_of_amd_s_that_does_not_work_is_one_line(watch: Watch) -> None:
    (note,) = watch(AMD_BROKEN="1").notes("gpu")
    assert note.startswith("no NVIDIA driver: ")
    assert note.endswith("the AMD driver does not respond: no driver")


@pytest.mark.parametrize(
    ("variables", "numbers"),
    [
        ({}, [0, 1, 2, 3]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, [3]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "3"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "1"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": "1,9,2"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-abc", "HIP_VISIBLE_DEVICES": "0"}, [0]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
    ],
)
def test_variables_of_rocm_and_hip_are_read_one_after_the_other(
    variables: dict[str, str], numbers: list[int]
) -> None:
    assert visible_numbers(4, variables) == numbers
