"""Watch the link between each visible GPU and the host.

Where GPM tells the traffic, it is not asked here. Elsewhere NVML measures it over some 20 ms and keeps its caller
waiting meanwhile, twice per GPU: that is done every five seconds only, each time for a moment.
"""

from __future__ import annotations

from perfwrap.monitors import gpm, visible_gpus
from perfwrap.monitors.journal import JournalWriter
from perfwrap.monitors.nvml import Gpu

KILO = 1000
SENT, RECEIVED = 0, 1
"""NVML_PCIE_UTIL_TX_BYTES and NVML_PCIE_UTIL_RX_BYTES, seen from the GPU."""
TRAFFIC = (("pcie_tx_bytes_per_s", SENT), ("pcie_rx_bytes_per_s", RECEIVED))
TRAFFIC_EVERY_NS = 5_000_000_000
LINK = (
    ("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
)
FACTS = (
    ("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
)


class PcieMonitor:
    """Writes the series ``gpu/N pcie_…``; an idle link may be in a slower generation to save power."""

    def __init__(self, journal: JournalWriter, gpus: list[Gpu]) -> None:
        self._gpus = gpus
        self._asked = [gpu for gpu in gpus if not gpm.is_supported(gpu)]
        self._traffic_due_ns = 0
        for gpu in gpus:
            for key, function in FACTS:
                value = gpu.ask(key, (function,))
                if value is not None:
                    journal.fact(f"{gpu.name}/{key}", value)

    def quick(self, now_ns: int) -> None:
        """Do nothing: one look takes too long."""

    def full(self, now_ns: int) -> None:
        """Write the link's state, and from time to time the traffic of the last moment."""
        for gpu in self._gpus:
            answers = [(metric, gpu.ask(metric, (function,))) for metric, function in LINK]
            gpu.write(now_ns, [(metric, float(value)) for metric, value in answers if value is not None])
        if now_ns >= self._traffic_due_ns:
            self._traffic_due_ns = now_ns + TRAFFIC_EVERY_NS
            for gpu in self._asked:
                traffic = [
                    (metric, gpu.ask(metric, ("nvmlDeviceGetPcieThroughput",), which))
                    for metric, which in TRAFFIC
                ]
                gpu.write(
                    now_ns, [(metric, float(value * KILO)) for metric, value in traffic if value is not None]
                )

    def close(self) -> None:
        """Leave NVML open, as the monitor of the GPUs does."""


def watch(journal: JournalWriter) -> PcieMonitor | None:
    """Start to watch the links of the visible GPUs; why there are none is said by the monitor of the GPUs."""
    gpus = visible_gpus.watchable(journal)
    return PcieMonitor(journal, gpus) if gpus else None
