"""Watch each GPU that the job can see: utilisation, memory, power, clocks, throttling, processes.

Utilisation is a duty cycle: the share of time in which any kernel ran, however small. NVML updates it and the
power at most about ten times a second. All numbers are NVML's; values that a GPU does not report are noted in the
coverage. Without an NVIDIA driver, AMD GPUs are watched through amdsmi.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from perfwrap.monitors.gpu import amd, gpu_facts, gpu_processes, visible_gpus
from perfwrap.monitors.gpu import nvml as library
from perfwrap.monitors.gpu.clock_reasons import reasons
from perfwrap.monitors.gpu.gpu_facts import MEGAHERTZ, MEMORY_CLOCK, SM_CLOCK
from perfwrap.monitors.gpu.gpu_processes import GpuProcesses, Owners
from perfwrap.monitors.gpu.nvml import Gpu
from perfwrap.monitors.gpu.nvml_fields import Fields
from perfwrap.monitors.gpu.nvml_samples import BufferedSamples
from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.watcher import Monitor

CORE_TEMPERATURE = 0
"""NVML_TEMPERATURE_GPU."""
MEMORY_TEMPERATURE = {"memory_temperature_celsius": (82, 0)}
"""NVML_FI_DEV_MEMORY_TEMP; GPUs without a sensor in their memory do not report it."""
PROCESSES = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")


class GpuMonitor:
    """Writes the series and facts of ``gpu/N`` and of its slices, ``mig/N-INSTANCE-COMPUTE``."""

    def __init__(self, journal: JournalWriter, gpus: list[Gpu], owners: Owners) -> None:
        self._journal = journal
        self._gpus = [WatchedGpu(journal, gpu, owners) for gpu in gpus]

    def quick(self, now_ns: int) -> None:
        """Write the values that change from step to step."""
        for gpu in self._gpus:
            gpu.quick(now_ns)

    def full(self, now_ns: int) -> None:
        """Write temperatures, energy, memory clock, the processes on each GPU, and the samples of NVML itself."""
        for gpu in self._gpus:
            gpu.full(now_ns)

    def close(self) -> None:
        """Leave NVML open: shutting it down can take too long at the end of the process."""


class WatchedGpu:
    """One GPU with its slices."""

    def __init__(self, journal: JournalWriter, gpu: Gpu, owners: Owners) -> None:
        self._gpu = gpu
        self._seen_reasons: set[str] = set()
        self._answers: Counter[str] = Counter()
        self._fields = Fields(gpu, MEMORY_TEMPERATURE)
        self._samples = BufferedSamples(gpu)
        self._processes = [(part, GpuProcesses(journal, part, owners)) for part in (gpu, *gpu.slices)]
        gpu.begin()
        for key, value in gpu_facts.facts(gpu).items():
            journal.fact(f"{gpu.name}/{key}", value)
        for part in gpu.slices:
            for key, value in gpu_facts.slice_facts(part).items():
                journal.fact(f"{part.name}/{key}", value)

    def quick(self, now_ns: int) -> None:
        """Write the values that one fast call each returns."""
        values = _quick_values(self._gpu)
        self._answers.update(metric for metric, _ in values)
        self._gpu.write(now_ns, values + reasons(self._gpu, self._seen_reasons))
        for part in self._gpu.slices:
            part.write(now_ns, _utilization(part) + _memory(part))

    def full(self, now_ns: int) -> None:
        """Write the values that are read once a second."""
        values = [*_full_values(self._gpu), *self._fields.read().items()]
        self._gpu.write(now_ns, values)
        for part, processes in self._processes:
            found = part.ask("processes", PROCESSES)
            if found is not None:
                processes.write(now_ns, [(process.pid, process.usedGpuMemory) for process in found])
        self._samples.write(self._answers)
        self._answers.clear()


def watch(journal: JournalWriter, starts: Path | None = None) -> Monitor | None:
    """Start to watch the visible GPUs, or record why there are none.

    ``starts`` is the folder of the start records, which identify the run's own processes.
    """
    owners = gpu_processes.of_this_run(starts)
    nvml, why = library.start()
    if nvml is None:
        return amd.watch_instead(journal, owners, why)
    gpus = visible_gpus.find_gpus(nvml, journal)
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
    return GpuMonitor(journal, gpus, owners)


def _quick_values(gpu: Gpu) -> list[tuple[str, float]]:
    values = _utilization(gpu) + _memory(gpu)
    milliwatts = gpu.ask("power", ("nvmlDeviceGetPowerUsage",))
    if milliwatts is not None:
        values.append(("power_watts", milliwatts / 1000))
    clock = gpu.ask("sm_clock", ("nvmlDeviceGetClockInfo",), SM_CLOCK)
    if clock is not None:
        values.append(("sm_clock_hertz", float(clock * MEGAHERTZ)))
    return values


def _utilization(gpu: Gpu) -> list[tuple[str, float]]:
    use = gpu.ask("utilization", ("nvmlDeviceGetUtilizationRates",))
    if use is None:
        return []
    return [("utilization_share", use.gpu / 100), ("memory_activity_share", use.memory / 100)]


def _memory(gpu: Gpu) -> list[tuple[str, float]]:
    memory = gpu.ask("memory", ("nvmlDeviceGetMemoryInfo",))
    return [] if memory is None else [("memory_used_bytes", float(memory.used))]


def _full_values(gpu: Gpu) -> list[tuple[str, float]]:
    values = []
    temperature = gpu.ask("temperature", ("nvmlDeviceGetTemperature",), CORE_TEMPERATURE)
    if temperature is not None:
        values.append(("temperature_celsius", float(temperature)))
    clock = gpu.ask("memory_clock", ("nvmlDeviceGetClockInfo",), MEMORY_CLOCK)
    if clock is not None:
        values.append(("memory_clock_hertz", float(clock * MEGAHERTZ)))
    millijoules = gpu.ask("energy", ("nvmlDeviceGetTotalEnergyConsumption",))
    if millijoules is not None:
        values.append(("energy_joules", millijoules / 1000))
    return values
