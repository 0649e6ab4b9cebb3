"""Watch AMD's GPUs through amdsmi, with the series of NVIDIA's as far as they are the same.

API: https://rocm.docs.amd.com/projects/amdsmi (Python). The library comes with ROCm and changes with it: names and
units of all its versions are supported. Values that it does not report have no series.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfwrap.monitors.gpu.gpu_processes import GpuProcesses, Owners
from perfwrap.monitors.monitor_journal import JournalWriter

DRIVER = Path("/dev/kfd")
MEGAHERTZ = 1_000_000
MAX_FAILURES = 10
POWER = ("socket_power", "current_socket_power", "average_socket_power")
CLOCK = ("clk", "cur_clk")
HIGHEST_CELSIUS, HIGHEST_WATTS = 1000, 100_000
"""Larger numbers are thousandths of a degree, or millionths of a watt."""
NOT_ASKED = "the library takes too long to answer"


class AmdGpu:
    """One GPU under its number in amdsmi."""

    def __init__(self, smi: Any, journal: JournalWriter, number: int, handle: Any) -> None:
        self.number, self.name = number, f"gpu/{number}"
        self._smi, self._journal, self._handle = smi, journal, handle
        self._failures: dict[str, int] = {}
        self._series: dict[str, int] = {}

    def write(self, now_ns: int, values: list[tuple[str, float]]) -> None:
        """Write one value for each of these metrics, with the same time."""
        for metric, _ in values:
            if metric not in self._series:
                self._series[metric] = self._journal.series(self.name, metric)
        self._journal.samples(now_ns, [(self._series[metric], value) for metric, value in values])

    def ask(self, what: str, function: str, *arguments: object) -> Any:
        """Return the result of an amdsmi function for this GPU, or None; the coverage says why, once."""
        if self._failures.get(what, 0) >= MAX_FAILURES:
            return None
        work = getattr(self._smi, function, None)
        try:
            answer = work(self._handle, *arguments) if work is not None else None
            why = "this amdsmi has no such function"
        except self._smi.AmdSmiException as error:
            answer, why = None, str(error) or type(error).__name__
        if answer is not None:
            self._failures[what] = 0
            return answer
        self._failures[what] = self._failures.get(what, 0) + 1 if work is not None else MAX_FAILURES
        if self._failures[what] == MAX_FAILURES:
            self._journal.not_watched(f"{self.name}/{what}", why)
        return None


class AmdMonitor:
    """Writes the series and facts of ``gpu/N``."""

    def __init__(self, smi: Any, journal: JournalWriter, gpus: list[AmdGpu], owners: Owners) -> None:
        self._smi, self._gpus = smi, gpus
        self._processes = {gpu.number: GpuProcesses(journal, gpu, owners) for gpu in gpus}
        for gpu in gpus:
            journal.watched(gpu.name, time.monotonic_ns())
            journal.not_watched(f"{gpu.name}/throttle_reasons", NOT_ASKED)
            for key, value in _facts(smi, gpu).items():
                journal.fact(f"{gpu.name}/{key}", value)

    def quick(self, now_ns: int) -> None:
        """Write the values that change from step to step."""
        for gpu in self._gpus:
            gpu.write(now_ns, _quick_values(self._smi, gpu))

    def full(self, now_ns: int) -> None:
        """Write temperatures, memory clock, errors and the processes."""
        for gpu in self._gpus:
            gpu.write(now_ns, _full_values(self._smi, gpu))
            found = gpu.ask("processes", "amdsmi_get_gpu_process_list")
            if found is not None:
                self._processes[gpu.number].write(now_ns, [_process(process) for process in found])

    def close(self) -> None:
        """Leave the library open, like the monitor of NVIDIA GPUs."""


def watch_instead(journal: JournalWriter, owners: Owners, why: str) -> AmdMonitor | None:
    """Start to watch the visible AMD GPUs; if there are none, record ``why`` NVIDIA GPUs are not watched."""
    try:
        # Imported here because few hosts have it. With an incomplete ROCm it raises any of these errors.
        import amdsmi
    except (ImportError, OSError, KeyError) as error:
        if DRIVER.exists():
            why = f"{why}; this machine has an AMD GPU, but ROCm's Python library amdsmi cannot be used: {error}"
        journal.not_watched("gpu", why)
        return None
    try:
        amdsmi.amdsmi_init()
        handles = amdsmi.amdsmi_get_processor_handles()
    except amdsmi.AmdSmiException as error:
        journal.not_watched("gpu", f"{why}; the AMD driver does not respond: {error}")
        return None
    numbers = visible_numbers(len(handles))
    if not numbers:
        unseen = "no AMD GPU is visible to the program" if handles else "no AMD GPU found"
        journal.not_watched("gpu", f"{why}; {unseen}")
        return None
    gpus = [AmdGpu(amdsmi, journal, number, handles[number]) for number in numbers]
    return AmdMonitor(amdsmi, journal, gpus, owners)


def visible_numbers(count: int, environment: Mapping[str, str] = os.environ) -> list[int]:
    """Return the numbers of the visible GPUs: those of ROCR_VISIBLE_DEVICES, and of them those of HIP's variable.

    UUIDs are not supported; then all GPUs count as visible, because too many are noticed and too few are not.
    https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html
    """
    numbers = list(range(count))
    hip = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environment else "CUDA_VISIBLE_DEVICES"
    for variable in ("ROCR_VISIBLE_DEVICES", hip):
        text = environment.get(variable)
        if text is None or any(word.strip().startswith("GPU-") for word in text.split(",")):
            continue
        chosen = []
        for word in text.split(","):
            if not word.strip().isdecimal() or int(word) >= len(numbers):
                break
            chosen.append(numbers[int(word)])
        numbers = chosen
    return numbers


def _quick_values(smi: Any, gpu: AmdGpu) -> list[tuple[str, float]]:
    use = gpu.ask("utilization", "amdsmi_get_gpu_activity") or {}
    memory = gpu.ask("memory", "amdsmi_get_gpu_memory_usage", smi.AmdSmiMemoryType.VRAM)
    power = gpu.ask("power", "amdsmi_get_power_info") or {}
    clock = gpu.ask("sm_clock", "amdsmi_get_clock_info", smi.AmdSmiClkType.GFX) or {}
    return _known(
        ("utilization_share", _number(use, ("gfx_activity",)), 0.01),
        ("memory_activity_share", _number(use, ("umc_activity",)), 0.01),
        ("memory_used_bytes", memory, 1),
        ("power_watts", _number(power, POWER), 1),
        ("sm_clock_hertz", _number(clock, CLOCK), MEGAHERTZ),
    )


def _full_values(smi: Any, gpu: AmdGpu) -> list[tuple[str, float]]:
    now = smi.AmdSmiTemperatureMetric.CURRENT
    heat = {
        name: gpu.ask(name, "amdsmi_get_temp_metric", kind, now)
        for name, kind in (
            ("temperature_celsius", smi.AmdSmiTemperatureType.HOTSPOT),
            ("memory_temperature_celsius", smi.AmdSmiTemperatureType.VRAM),
        )
    }
    clock = gpu.ask("memory_clock", "amdsmi_get_clock_info", smi.AmdSmiClkType.MEM) or {}
    errors = gpu.ask("ecc_errors", "amdsmi_get_gpu_total_ecc_count") or {}
    return _known(
        *((name, value, 1e-3 if _is_above(value, HIGHEST_CELSIUS) else 1) for name, value in heat.items()),
        ("memory_clock_hertz", _number(clock, CLOCK), MEGAHERTZ),
        ("ecc_corrected_errors", _number(errors, ("correctable_count",)), 1),
        ("ecc_uncorrected_errors", _number(errors, ("uncorrectable_count",)), 1),
    )


def _facts(smi: Any, gpu: AmdGpu) -> dict[str, str]:
    """Return the facts about the GPU; those that it does not report are absent."""
    clock = gpu.ask("sm_clock", "amdsmi_get_clock_info", smi.AmdSmiClkType.GFX) or {}
    cap = gpu.ask("power_limit", "amdsmi_get_power_cap_info") or {}
    limit = _number(cap, ("power_cap",))
    highest = _number(clock, ("max_clk",))
    found = {
        "name": (gpu.ask("name", "amdsmi_get_gpu_asic_info") or {}).get("market_name"),
        "uuid": gpu.ask("uuid", "amdsmi_get_gpu_device_uuid"),
        "memory_total_bytes": gpu.ask(
            "memory_total", "amdsmi_get_gpu_memory_total", smi.AmdSmiMemoryType.VRAM
        ),
        "sm_clock_max_hertz": None if highest is None else round(highest * MEGAHERTZ),
        "power_limit_watts": limit and f"{limit * (1e-6 if limit > HIGHEST_WATTS else 1):g}",
    }
    return {key: str(value) for key, value in found.items() if value is not None}


def _process(process: Mapping[str, Any]) -> tuple[int, float | None]:
    """Return a process's pid and its memory in the GPU."""
    memory = process.get("memory_usage")
    used = _number(memory, ("vram_mem",)) if isinstance(memory, Mapping) else None
    return int(process["pid"]), _number(process, ("mem",)) if used is None else used


def _number(answer: Mapping[str, Any], keys: tuple[str, ...]) -> float | None:
    """Return the first of these that is a number; amdsmi returns "N/A" for unknown values."""
    values = [answer.get(key) for key in keys]
    return next((float(value) for value in values if isinstance(value, (int, float))), None)


def _known(*values: tuple[str, Any, float]) -> list[tuple[str, float]]:
    """Return those that are numbers, in base units."""
    return [(name, value * unit) for name, value, unit in values if isinstance(value, (int, float))]


def _is_above(value: Any, limit: float) -> bool:
    return isinstance(value, (int, float)) and value > limit
