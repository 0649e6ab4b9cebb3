"""Watch the NVLinks of each visible GPU: active links, traffic and retransmissions.

NVML counts bytes and errors since the driver was loaded; the differences are written. If GPM reports the
traffic, it is not read here.
"""

from __future__ import annotations

from perfwrap.monitors.gpu import gpm, visible_gpus
from perfwrap.monitors.gpu.nvml import Gpu
from perfwrap.monitors.gpu.nvml_fields import ALL_LINKS, Fields
from perfwrap.monitors.monitor_journal import JournalWriter

KIBIBYTE = 1024
MAX_LINKS = 36
"""NVML_NVLINK_MAX_LINKS of the newest driver; a GPU reports those that it has."""
ACTIVE = 1
STATES_EVERY_NS = 10_000_000_000
TRAFFIC = {"nvlink_tx_bytes_per_s": (138, ALL_LINKS), "nvlink_rx_bytes_per_s": (139, ALL_LINKS)}
"""NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX, in KiB."""
ERRORS = {
    "nvlink_crc_errors": (38, 0),
    "nvlink_replay_errors": (52, 0),
    "nvlink_recovery_errors": (59, 0),
}
"""NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, REPLAY and RECOVERY; fifth-generation links do not report them."""


class Links:
    """The links of one GPU."""

    def __init__(self, gpu: Gpu, links: list[int]) -> None:
        self._gpu, self._links = gpu, links
        traffic = {} if gpm.is_supported(gpu) else TRAFFIC
        self._fields = Fields(gpu, {**traffic, **ERRORS})
        self._before: tuple[int, dict[str, float]] | None = None
        self._errors: dict[str, float] = {}
        self._states_due_ns = 0
        gpu.journal.fact(f"{gpu.name}/nvlinks", len(links))

    def write(self, now_ns: int) -> None:
        """Write the traffic since the last call, new errors, and periodically the number of active links."""
        totals = self._fields.read()
        if totals:
            self._write_traffic(now_ns, totals)
            errors = {name: totals[name] for name in ERRORS if name in totals}
            if errors != self._errors:
                self._errors = errors
                self._gpu.write(now_ns, list(errors.items()))
        if now_ns >= self._states_due_ns:
            self._states_due_ns = now_ns + STATES_EVERY_NS
            states = [self._gpu.peek(("nvmlDeviceGetNvLinkState",), link) for link in self._links]
            if None not in states:
                self._gpu.write(now_ns, [("nvlinks_active", float(states.count(ACTIVE)))])

    def _write_traffic(self, now_ns: int, totals: dict[str, float]) -> None:
        """Write the growth per second; nothing if a counter was reset."""
        if self._before is not None and now_ns > self._before[0]:
            since_ns, before = self._before
            both = [name for name in TRAFFIC if name in totals and name in before]
            rates = [
                (name, (totals[name] - before[name]) * KIBIBYTE * 1e9 / (now_ns - since_ns)) for name in both
            ]
            self._gpu.write(now_ns, [(name, rate) for name, rate in rates if rate >= 0])
        self._before = now_ns, totals


class NvlinkMonitor:
    """Writes the series ``gpu/N nvlink…`` of GPUs that have such links."""

    def __init__(self, links: list[Links]) -> None:
        self._links = links

    def quick(self, now_ns: int) -> None:
        """Do nothing: the counters are read once a second."""

    def full(self, now_ns: int) -> None:
        """Write traffic, errors and link counts."""
        for links in self._links:
            links.write(now_ns)

    def close(self) -> None:
        """Leave NVML open, like the monitor of the GPUs."""


def watch(journal: JournalWriter) -> NvlinkMonitor | None:
    """Start to watch the links; a GPU without links is not a gap in the coverage."""
    found = []
    for gpu in visible_gpus.watchable(journal):
        links = []
        for link in range(MAX_LINKS):
            if gpu.peek(("nvmlDeviceGetNvLinkState",), link) is None:
                break
            links.append(link)
        if links:
            found.append(Links(gpu, links))
    return NvlinkMonitor(found) if found else None
