"""The model and the limits of a GPU, read once."""

from __future__ import annotations

from typing import Any

from perfwrap.monitors.gpu.nvml import Gpu

MEGAHERTZ = 1_000_000
MEBIBYTE = 1 << 20
SM_CLOCK, MEMORY_CLOCK = 1, 2
"""NVML_CLOCK_SM and NVML_CLOCK_MEM."""
THRESHOLDS = {
    "slowdown_temperature_celsius": 1,
    "shutdown_temperature_celsius": 0,
    "memory_temperature_max_celsius": 2,
    "temperature_max_celsius": 3,
}
"""NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, SHUTDOWN, MEM_MAX and GPU_MAX; newer GPUs have some of them only."""


def facts(gpu: Gpu) -> dict[str, str]:
    """Return the facts about the GPU; those that it does not report are absent."""
    memory = gpu.ask("memory", ("nvmlDeviceGetMemoryInfo",))
    limit = gpu.ask("power_limit", ("nvmlDeviceGetEnforcedPowerLimit",))
    usual = gpu.peek(("nvmlDeviceGetPowerManagementDefaultLimit",))
    capability = gpu.ask("compute_capability", ("nvmlDeviceGetCudaComputeCapability",))
    slices = gpu.peek(("nvmlDeviceGetMigMode",))
    ecc = gpu.peek(("nvmlDeviceGetEccMode",))
    found: dict[str, Any] = {
        "name": gpu.ask("name", ("nvmlDeviceGetName",)),
        "uuid": gpu.ask("uuid", ("nvmlDeviceGetUUID",)),
        "memory_total_bytes": memory and memory.total,
        **_clocks(gpu),
        "power_limit_watts": limit and f"{limit / 1000:g}",
        "power_limit_default_watts": usual and f"{usual / 1000:g}",
        "compute_capability": capability and "{}.{}".format(*capability),
        "mig": slices and ("on" if slices[0] else "off"),
        "ecc": ecc and ("on" if ecc[0] else "off"),
        **{
            key: gpu.peek(("nvmlDeviceGetTemperatureThreshold",), number)
            for key, number in THRESHOLDS.items()
        },
    }
    return _known(found)


def slice_facts(part: Gpu) -> dict[str, str]:
    """Return the facts about a slice of a GPU."""
    attributes = part.peek(("nvmlDeviceGetAttributes",))
    return _known(
        {
            "gpu": part.number,
            "name": part.ask("name", ("nvmlDeviceGetName",)),
            "uuid": part.ask("uuid", ("nvmlDeviceGetUUID",)),
            "memory_total_bytes": attributes and attributes.memorySizeMB * MEBIBYTE,
            "multiprocessors": attributes and attributes.multiprocessorCount,
        }
    )


def _clocks(gpu: Gpu) -> dict[str, int | None]:
    """Return the highest clocks that the GPU can run at."""
    found = {}
    for name, kind in (("sm", SM_CLOCK), ("memory", MEMORY_CLOCK)):
        clock = gpu.ask(f"{name}_clock_max", ("nvmlDeviceGetMaxClockInfo",), kind)
        found[f"{name}_clock_max_hertz"] = clock and clock * MEGAHERTZ
    return found


def _known(found: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in found.items() if value is not None}
