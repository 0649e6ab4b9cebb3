"""Why a GPU does not run at its highest clocks, each reason by name.

Bits: nvmlClocksEventReason… of https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html.
"""

from __future__ import annotations

from perfwrap.monitors.gpu.nvml import Gpu

SLOWED = {
    "power_cap": 0x4,
    "hardware_slowdown": 0x8,
    "heat": 0x20,
    "hardware_heat": 0x40,
    "power_brake": 0x80,
    "board_limit": 0x200,
    "reliability": 0x400,
}
"""Reasons that count as throttling: SwPowerCap, HwSlowdown, SwThermalSlowdown, HwThermalSlowdown,
HwPowerBrakeSlowdown, and of older drivers BoardLimit and Reliability."""
CHOSEN = {"idle": 0x1, "application_clocks": 0x2, "sync_boost": 0x10, "display_clocks": 0x100}
"""Idle (GpuIdle), or set by the user; recorded, but not throttling."""
REASONS = SLOWED | CHOSEN
KNOWN = sum(REASONS.values())

FUNCTIONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


def reasons(gpu: Gpu, seen: set[str]) -> list[tuple[str, float]]:
    """Return whether the GPU is throttled, and each reason from the time it was first ``seen``.

    A bit without a known name has its number as its name.
    """
    bits = gpu.ask("throttle_reasons", FUNCTIONS)
    if bits is None:
        return []
    active = {name for name, bit in REASONS.items() if bits & bit}
    if bits & ~KNOWN:
        active |= {f"bit_{bit}" for bit in range(64) if bits & ~KNOWN & (1 << bit)}
    seen |= active
    return [
        ("throttled_share", float(bool(active & SLOWED.keys()))),
        *((f"throttle/{name}", float(name in active)) for name in sorted(seen)),
    ]
