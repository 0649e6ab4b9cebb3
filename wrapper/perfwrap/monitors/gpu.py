"""Watch each GPU that the job can see: utilisation, memory, power, clocks, what slows it down, who uses it.

Utilisation is a duty cycle: the share of time in which any kernel ran, however small. NVML renews it and the
power some ten times a second at most. All numbers are NVML's; what a GPU does not tell becomes coverage.
"""

from __future__ import annotations

from typing import Any

from perfwrap.monitors import nvml as library
from perfwrap.monitors.journal import JournalWriter
from perfwrap.monitors.nvml import Gpu

MEGAHERTZ = 1_000_000
SM_CLOCK, MEMORY_CLOCK = 1, 2
"""NVML_CLOCK_SM and NVML_CLOCK_MEM."""
CORE_TEMPERATURE = 0
"""NVML_TEMPERATURE_GPU."""

SLOWED = {
    "power_cap": 0x4,
    "hardware_slowdown": 0x8,
    "heat": 0x20,
    "hardware_heat": 0x40,
    "power_brake": 0x80,
}
"""Reasons that count as throttling: nvmlClocksEventReasonSwPowerCap, HwSlowdown, SwThermalSlowdown,
HwThermalSlowdown, HwPowerBrakeSlowdown."""
CHOSEN = {"application_clocks": 0x2, "sync_boost": 0x10}
"""Reasons that somebody chose; written down, but no throttling."""
REASONS = SLOWED | CHOSEN


class GpuMonitor:
    """Writes the series and facts of ``gpu/N``."""

    def __init__(self, journal: JournalWriter, gpus: list[Gpu]) -> None:
        self._journal, self._gpus = journal, gpus
        self._processes: dict[tuple[int, int], int] = {}
        self._reasons: dict[int, set[str]] = {gpu.number: set() for gpu in gpus}
        for gpu in gpus:
            for key, value in _facts(gpu).items():
                journal.fact(f"{gpu.name}/{key}", value)

    def quick(self, now_ns: int) -> None:
        """Write what changes from step to step."""
        for gpu in self._gpus:
            found = _quick_values(gpu) + _throttling(gpu, self._reasons[gpu.number])
            values = [(gpu.series(metric), value) for metric, value in found]
            self._journal.samples(now_ns, values)

    def full(self, now_ns: int) -> None:
        """Write temperature, memory clock and the processes on each GPU."""
        for gpu in self._gpus:
            values = [(gpu.series(metric), value) for metric, value in _full_values(gpu)]
            self._journal.samples(now_ns, values + self._process_values(gpu))

    def close(self) -> None:
        """Leave NVML open: shutting it down can take longer than the process has left."""

    def _process_values(self, gpu: Gpu) -> list[tuple[int, float]]:
        """Return how many processes use the GPU, and the memory of each by its pid.

        In a container the pids are those of the host.
        """
        functions = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")
        found = gpu.ask("processes", functions)
        if found is None:
            return []
        known, self._processes = (
            self._processes,
            {k: v for k, v in self._processes.items() if k[0] != gpu.number},
        )
        values = [(gpu.series("processes"), float(len(found)))]
        for process in found:
            key = gpu.number, process.pid
            series = known.get(key)
            if series is None:
                metric = f"process/{process.pid}/memory_used_bytes"
                series = self._journal.series(gpu.name, metric, keep=False)
            self._processes[key] = series
            if process.usedGpuMemory is not None:
                values.append((series, float(process.usedGpuMemory)))
        return values


def watch(journal: JournalWriter) -> GpuMonitor | None:
    """Start to watch the visible GPUs, or write down why there are none."""
    nvml = library.start(journal)
    if nvml is None:
        return None
    gpus = library.find_gpus(nvml, journal)
    if not gpus:
        return None
    for key, function in (
        ("nvidia_driver", "nvmlSystemGetDriverVersion"),
        ("cuda_driver", "nvmlSystemGetCudaDriverVersion"),
    ):
        try:
            journal.fact(key, library.call(nvml, (function,)))
        except nvml.NVMLError as error:
            journal.not_watched(key, str(error))
    return GpuMonitor(journal, gpus)


def _quick_values(gpu: Gpu) -> list[tuple[str, float]]:
    values: list[tuple[str, float]] = []
    use = gpu.ask("utilization", ("nvmlDeviceGetUtilizationRates",))
    if use is not None:
        values += [("utilization_share", use.gpu / 100), ("memory_activity_share", use.memory / 100)]
    memory = gpu.ask("memory", ("nvmlDeviceGetMemoryInfo",))
    if memory is not None:
        values.append(("memory_used_bytes", float(memory.used)))
    milliwatts = gpu.ask("power", ("nvmlDeviceGetPowerUsage",))
    if milliwatts is not None:
        values.append(("power_watts", milliwatts / 1000))
    clock = gpu.ask("sm_clock", ("nvmlDeviceGetClockInfo",), SM_CLOCK)
    if clock is not None:
        values.append(("sm_clock_hertz", float(clock * MEGAHERTZ)))
    return values


def _throttling(gpu: Gpu, seen: set[str]) -> list[tuple[str, float]]:
    """Return whether the GPU is slowed down, and each reason from when it was ``seen`` first on."""
    functions = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    reasons = gpu.ask("throttle_reasons", functions)
    if reasons is None:
        return []
    active = {name for name, bit in REASONS.items() if reasons & bit}
    seen |= active
    return [
        ("throttled_share", float(bool(active & SLOWED.keys()))),
        *((f"throttle/{name}", float(name in active)) for name in REASONS if name in seen),
    ]


def _full_values(gpu: Gpu) -> list[tuple[str, float]]:
    values = []
    temperature = gpu.ask("temperature", ("nvmlDeviceGetTemperature",), CORE_TEMPERATURE)
    if temperature is not None:
        values.append(("temperature_celsius", float(temperature)))
    clock = gpu.ask("memory_clock", ("nvmlDeviceGetClockInfo",), MEMORY_CLOCK)
    if clock is not None:
        values.append(("memory_clock_hertz", float(clock * MEGAHERTZ)))
    return values


def _facts(gpu: Gpu) -> dict[str, str]:
    """Return what the GPU is; a fact that it does not tell is absent."""
    memory = gpu.ask("memory", ("nvmlDeviceGetMemoryInfo",))
    clocks = [
        gpu.ask(f"{name}_clock_max", ("nvmlDeviceGetMaxClockInfo",), kind)
        for name, kind in (("sm", SM_CLOCK), ("memory", MEMORY_CLOCK))
    ]
    limit = gpu.ask("power_limit", ("nvmlDeviceGetEnforcedPowerLimit",))
    capability = gpu.ask("compute_capability", ("nvmlDeviceGetCudaComputeCapability",))
    slices = gpu.ask("mig", ("nvmlDeviceGetMigMode",))
    found: dict[str, Any] = {
        "name": gpu.ask("name", ("nvmlDeviceGetName",)),
        "uuid": gpu.ask("uuid", ("nvmlDeviceGetUUID",)),
        "memory_total_bytes": memory and memory.total,
        "sm_clock_max_hertz": clocks[0] and clocks[0] * MEGAHERTZ,
        "memory_clock_max_hertz": clocks[1] and clocks[1] * MEGAHERTZ,
        "power_limit_watts": limit and f"{limit / 1000:g}",
        "compute_capability": capability and "{}.{}".format(*capability),
        "mig": slices and ("on" if slices[0] else "off"),
    }
    return {key: str(value) for key, value in found.items() if value is not None}
