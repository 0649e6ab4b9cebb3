"""Watch the units of each GPU, on Hopper and later: NVIDIA's GPU performance monitoring (GPM).

Each value is exact between two readings, taken once a second. Utilisation only says that some kernel ran; these
show how many multiprocessors were active, their occupancy, the use of tensor cores, and the traffic of memory and
links. API: https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
"""

from __future__ import annotations

import math
from typing import Any

from perfwrap.monitors.gpu import nvml as library
from perfwrap.monitors.gpu import visible_gpus
from perfwrap.monitors.gpu.nvml import Gpu
from perfwrap.monitors.monitor_journal import JournalWriter

PERCENT, MEBIBYTES = 0.01, float(1 << 20)
METRICS = {
    "graphics_activity_share": (1, PERCENT),
    "sm_activity_share": (2, PERCENT),
    "sm_occupancy_share": (3, PERCENT),
    "integer_activity_share": (4, PERCENT),
    "tensor_activity_share": (5, PERCENT),
    "tensor_dfma_activity_share": (6, PERCENT),
    "tensor_hmma_activity_share": (7, PERCENT),
    "tensor_dmma_activity_share": (8, PERCENT),
    "tensor_imma_activity_share": (9, PERCENT),
    "dram_activity_share": (10, PERCENT),
    "fp64_activity_share": (11, PERCENT),
    "fp32_activity_share": (12, PERCENT),
    "fp16_activity_share": (13, PERCENT),
    "pcie_tx_bytes_per_s": (20, MEBIBYTES),
    "pcie_rx_bytes_per_s": (21, MEBIBYTES),
    "nvlink_rx_bytes_per_s": (60, MEBIBYTES),
    "nvlink_tx_bytes_per_s": (61, MEBIBYTES),
}
"""NVML_GPM_METRIC_… and the factor to base units."""
SHORTEST_NS = 100_000_000
"""The minimum distance of two readings; closer ones are not accurate."""
WHAT = "gpm"


class GpmReader:
    """Two alternating readings of one GPU, or of one slice of it."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._metrics = gpu, dict(METRICS)
        self._old: Any = None
        self._new: Any = None
        self._taken_ns = 0
        self._request: Any = None

    def write(self, now_ns: int) -> None:
        """Read, and write the values since the last reading."""
        if self._gpu.is_at_rest(WHAT) or (self._taken_ns and now_ns - self._taken_ns < SHORTEST_NS):
            return
        if self._gpu.attempt(WHAT, self._read) is None:
            # Values from before a gap must not count as the last second.
            self._taken_ns = 0
            return
        before, self._taken_ns = self._taken_ns, now_ns
        if before:
            self._gpu.write(now_ns, self._values())

    def _read(self) -> bool:
        """Replace the older reading by a new one; have NVML compare both if there is no gap between them."""
        gpu, nvml = self._gpu, self._gpu.nvml
        if self._old is None:
            self._old = library.call(nvml, ("nvmlGpmSampleAlloc",))
        if gpu.whole is None:
            library.call(nvml, ("nvmlGpmSampleGet",), gpu.handle, self._old)
        else:
            library.call(nvml, ("nvmlGpmMigSampleGet",), gpu.whole.handle, gpu.instance, self._old)
        self._old, self._new = self._new, self._old
        if self._taken_ns:
            self._compare()
        return True

    def _compare(self) -> None:
        """Have NVML compute the metrics between the two readings."""
        nvml = self._gpu.nvml
        request = self._request
        if request is None:
            request = self._request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(self._metrics)
        request.sample1, request.sample2 = self._old, self._new
        for place, (number, _) in enumerate(self._metrics.values()):
            request.metrics[place].metricId = number
        library.call(nvml, ("nvmlGpmMetricsGet",), request)

    def _values(self) -> list[tuple[str, float]]:
        """Return the metrics that NVML returned; one that is not supported is not requested again."""
        nvml, values = self._gpu.nvml, []
        for place, (metric, (_, unit)) in enumerate(list(self._metrics.items())):
            answer = self._request.metrics[place]
            if answer.nvmlReturn in library.never(nvml):
                del self._metrics[metric]
                self._gpu.give_up(metric, str(nvml.NVMLError(answer.nvmlReturn)))
            elif answer.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(answer.value):
                values.append((metric, answer.value * unit))
        return values


class GpmMonitor:
    """Writes the GPM series of ``gpu/N``, and of ``mig/…`` if the GPU is divided into slices."""

    def __init__(self, readers: list[GpmReader]) -> None:
        self._readers = readers

    def quick(self, now_ns: int) -> None:
        """Do nothing: a reading needs the GPU itself."""

    def full(self, now_ns: int) -> None:
        """Read every GPU."""
        for reader in self._readers:
            reader.write(now_ns)

    def close(self) -> None:
        """Leave NVML open, like the monitor of the GPUs."""


def is_supported(gpu: Gpu) -> bool:
    """Return whether this GPU and its driver have GPM for the whole GPU; not while it is divided into slices."""
    support = gpu.peek(("nvmlGpmQueryDeviceSupport",))
    mode = gpu.peek(("nvmlDeviceGetMigMode",))
    return bool(support and support.isSupportedDevice and not (mode and mode[0]))


def watch(journal: JournalWriter) -> GpmMonitor | None:
    """Start to read the visible GPUs that have GPM; record for each other one that it has none."""
    readers = []
    for gpu in visible_gpus.watchable(journal):
        support = gpu.ask(WHAT, ("nvmlGpmQueryDeviceSupport",))
        if support is None:
            continue
        if not support.isSupportedDevice:
            gpu.give_up(WHAT, "this GPU has no GPM (Hopper or later is required)")
        elif gpu.slices:
            readers += [GpmReader(part) for part in gpu.slices]
        else:
            readers.append(GpmReader(gpu))
    return GpmMonitor(readers) if readers else None
