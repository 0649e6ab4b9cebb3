"""Watch the errors of each visible GPU: memory errors, replaced rows, repeated PCIe packets, Xid events.

Counters are written at the start and whenever they have grown. Events wait in an NVML queue, one per GPU so that a
lost GPU does not affect others; the queue is emptied once a second, without blocking. Meaning of an Xid:
https://docs.nvidia.com/deploy/xid-errors
"""

from __future__ import annotations

import time
from typing import Any

from perfwrap.monitors.gpu import nvml as library
from perfwrap.monitors.gpu import visible_gpus
from perfwrap.monitors.gpu.nvml import Gpu
from perfwrap.monitors.monitor_journal import JournalWriter

COUNTERS_EVERY_NS = 10_000_000_000
MAX_EVENTS = 100
"""Events of one GPU that are read at once."""
VOLATILE = 0
"""NVML_VOLATILE_ECC: since the driver was loaded."""
ECC = {"ecc_corrected_errors": 0, "ecc_uncorrected_errors": 1}
"""NVML_MEMORY_ERROR_TYPE_CORRECTED and UNCORRECTED."""
ROWS = ("rows_remapped_corrected", "rows_remapped_uncorrected", "row_remap_pending", "row_remap_failed")
"""In the order of nvmlDeviceGetRemappedRows; the last two are 0 or 1."""
EVENTS = {0x1: "ecc_single_bit", 0x2: "ecc_double_bit", 0x8: "xid", 0x100: "mig_changed"}
"""nvmlEventTypeSingleBitEccError, DoubleBitEccError, XidCriticalError and nvmlEventMigConfigChange."""
MASK = sum(EVENTS)
XIDS = {
    13: "graphics engine exception, as from reading out of bounds",
    31: "memory page fault of a program",
    43: "the GPU stopped a program's work",
    45: "a program's work was cleaned up after an earlier error",
    48: "memory error that could not be corrected",
    62: "internal micro-controller halt",
    63: "memory row or page replaced",
    64: "memory row or page could not be replaced",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "high rate of corrected memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "the GPU's system processor does not respond",
    120: "error of the GPU's system processor",
}
"""The more frequent ones."""


class Health:
    """The counters and events of one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._due_ns = gpu, 0
        self._written: dict[str, float] = {}
        self._queue = gpu.attempt("events", self._listen)

    def events(self, now_ns: int) -> None:
        """Write the new events."""
        nvml = self._gpu.nvml
        for _ in range(MAX_EVENTS if self._queue is not None else 0):
            event = self._gpu.attempt(
                "events",
                lambda: library.call(nvml, ("nvmlEventSetWait_v2", "nvmlEventSetWait"), self._queue, 0),
                passing=(nvml.NVML_ERROR_TIMEOUT,),
            )
            if event is None:
                return
            self._note(now_ns, EVENTS.get(event.eventType, f"event_{event.eventType:#x}"), event.eventData)

    def counters(self, now_ns: int) -> None:
        """Write the counters that have changed, if they are due."""
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + COUNTERS_EVERY_NS
        found = {}
        for metric, kind in ECC.items():
            found[metric] = self._gpu.ask(metric, ("nvmlDeviceGetTotalEccErrors",), kind, VOLATILE)
        rows = self._gpu.ask("rows_remapped", ("nvmlDeviceGetRemappedRows",))
        found.update(zip(ROWS, rows or (), strict=False))
        found["pcie_replays"] = self._gpu.ask("pcie_replays", ("nvmlDeviceGetPcieReplayCounter",))
        limit = self._gpu.peek(("nvmlDeviceGetEnforcedPowerLimit",))
        found["power_limit_watts"] = None if limit is None else limit / 1000
        values = {metric: float(value) for metric, value in found.items() if value is not None}
        changed = [(metric, value) for metric, value in values.items() if self._written.get(metric) != value]
        self._written.update(values)
        self._gpu.write(now_ns, changed)

    def look_again(self) -> None:
        """Make the counters due now."""
        self._due_ns = 0

    def _listen(self) -> Any:
        """Return a queue for the events that this GPU supports."""
        gpu, nvml = self._gpu, self._gpu.nvml
        known = library.call(nvml, ("nvmlDeviceGetSupportedEventTypes",), gpu.handle) & MASK
        if not known:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        queue = library.call(nvml, ("nvmlEventSetCreate",))
        library.call(nvml, ("nvmlDeviceRegisterEvents",), gpu.handle, known, queue)
        return queue

    def _note(self, now_ns: int, name: str, number: int) -> None:
        """Write an event as a mark for people and as a sample with its number."""
        meaning = XIDS.get(number, "") if name == "xid" else ""
        detail = f"{self._gpu.name}: {number}" + (f", {meaning}" if meaning else "")
        self._gpu.journal.mark(name, detail)
        self._gpu.write(now_ns, [(name, float(number))])


class HealthMonitor:
    """Writes the counters and events of every visible GPU."""

    def __init__(self, gpus: list[Gpu]) -> None:
        self._healths = [Health(gpu) for gpu in gpus]

    def quick(self, now_ns: int) -> None:
        """Do nothing: the queue keeps the events."""

    def full(self, now_ns: int) -> None:
        """Write events and counters."""
        for health in self._healths:
            health.events(now_ns)
            health.counters(now_ns)

    def close(self) -> None:
        """Read the counters once more; increases up to now belong to the run."""
        for health in self._healths:
            health.look_again()
            health.counters(time.monotonic_ns())


def watch(journal: JournalWriter) -> HealthMonitor | None:
    """Start to watch; the monitor of the GPUs records why there are none."""
    gpus = visible_gpus.watchable(journal)
    return HealthMonitor(gpus) if gpus else None
