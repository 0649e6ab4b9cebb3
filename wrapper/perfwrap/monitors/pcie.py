"""Watch the link between each visible GPU and the host.

NVML measures a link's traffic over some 20 ms and keeps its caller waiting meanwhile, twice per GPU;
therefore this is a monitor of its own, and looks once a second.
"""

from __future__ import annotations

from perfwrap.monitors import nvml as library
from perfwrap.monitors.journal import JournalWriter
from perfwrap.monitors.nvml import Gpu

KILO = 1000
SENT, RECEIVED = 0, 1
"""NVML_PCIE_UTIL_TX_BYTES and NVML_PCIE_UTIL_RX_BYTES, seen from the GPU."""
READINGS = (
    ("pcie_tx_bytes_per_s", "nvmlDeviceGetPcieThroughput", (SENT,), KILO),
    ("pcie_rx_bytes_per_s", "nvmlDeviceGetPcieThroughput", (RECEIVED,), KILO),
    ("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", (), 1),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", (), 1),
)
FACTS = (
    ("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
)


class PcieMonitor:
    """Writes the series ``gpu/N pcie_…``; an idle link may be in a slower generation to save power."""

    def __init__(self, journal: JournalWriter, gpus: list[Gpu]) -> None:
        self._journal, self._gpus = journal, gpus
        for gpu in gpus:
            for key, function in FACTS:
                value = gpu.ask(key, (function,))
                if value is not None:
                    journal.fact(f"{gpu.name}/{key}", value)

    def quick(self, now_ns: int) -> None:
        """Do nothing: one look takes too long."""

    def full(self, now_ns: int) -> None:
        """Write the traffic of the last moment."""
        for gpu in self._gpus:
            values = []
            for metric, function, arguments, unit in READINGS:
                value = gpu.ask(metric, (function,), *arguments)
                if value is not None:
                    values.append((gpu.series(metric), float(value * unit)))
            self._journal.samples(now_ns, values)

    def close(self) -> None:
        """Leave NVML open, as the monitor of the GPUs does."""


def watch(journal: JournalWriter) -> PcieMonitor | None:
    """Start to watch the links of the visible GPUs; why there are none is said by the monitor of the GPUs."""
    nvml = library.start(None)
    gpus = library.find_gpus(nvml, journal, quiet=True) if nvml is not None else []
    return PcieMonitor(journal, gpus) if gpus else None
