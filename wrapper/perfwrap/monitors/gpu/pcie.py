"""Watch the link between each visible GPU and the host.

If GPM reports the traffic, it is not read here. Otherwise NVML measures it over about 20 ms, blocking its
caller, twice per GPU: this is done only every five seconds.
"""

from __future__ import annotations

from perfwrap.monitors.gpu import gpm, visible_gpus
from perfwrap.monitors.gpu.nvml import Gpu
from perfwrap.monitors.monitor_journal import JournalWriter

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
        """Do nothing: one call takes too long."""

    def full(self, now_ns: int) -> None:
        """Write the state of the link, and periodically the current traffic."""
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
        """Leave NVML open, like the monitor of the GPUs."""


def watch(journal: JournalWriter) -> PcieMonitor | None:
    """Start to watch the links of the visible GPUs; the monitor of the GPUs records why there are none."""
    gpus = visible_gpus.watchable(journal)
    return PcieMonitor(journal, gpus) if gpus else None
