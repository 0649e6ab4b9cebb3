"""The samples that NVML keeps itself, if they are finer than those of the monitor.

Drivers take them every 10 to 200 ms and keep some seconds of them, stamped with the wall clock in microseconds
(nvmlDeviceGetSamples, https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html). They are written as
means over a twentieth of a second, so that a long run stays within its journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfwrap.monitors.gpu import nvml as library
from perfwrap.monitors.gpu.nvml import Gpu
from perfwrap.monitors.gpu.nvml_fields import plain
from perfwrap.monitors.monitor_journal import clock_pair

PREFIX = "buffered/"
KINDS = {PREFIX + "power_watts": (0, 1e-3), PREFIX + "utilization_share": (1, 1e-2)}
"""NVML_TOTAL_POWER_SAMPLES and NVML_GPU_UTILIZATION_SAMPLES, and the factor to base units."""
BIN_MICROSECONDS = 50_000
MICROSECOND_NS = 1000


class BufferedSamples:
    """Reads the samples of one GPU in NVML; writes nothing of a kind unless it is finer than our own samples."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        _, wall_ns = clock_pair()
        self._last = dict.fromkeys(KINDS, wall_ns // MICROSECOND_NS)
        self._finer: set[str] = set()

    def write(self, answers: Mapping[str, int]) -> None:
        """Write new samples; ``answers`` is how many the monitor itself has taken since, by metric."""
        for metric, (kind, unit) in KINDS.items():
            samples = self._since_last(metric, kind)
            monotonic_ns, wall_ns = clock_pair()
            # The clock may have been set back: samples in the future are dropped.
            self._last[metric] = min(self._last[metric], wall_ns // MICROSECOND_NS)
            new = [(moment, value) for moment, value in samples if moment * MICROSECOND_NS <= wall_ns]
            if not new:
                continue
            self._last[metric] = max(moment for moment, _ in new)
            if len(new) > answers.get(metric.removeprefix(PREFIX), 0):
                self._finer.add(metric)
            if metric not in self._finer:
                continue
            if metric.endswith("_share") and max(value for _, value in new) > 100:
                self._gpu.give_up(metric, "its values are not between 0 and 1")
                continue
            for moment, value in _means(new):
                time_ns = monotonic_ns - wall_ns + round(moment * MICROSECOND_NS)
                self._gpu.write(time_ns, [(metric, value * unit)])

    def _since_last(self, metric: str, kind: int) -> list[tuple[int, float]]:
        """Return the microsecond and the value of each sample that is new."""
        gpu, nvml, last = self._gpu, self._gpu.nvml, self._last[metric]
        answer: Any = gpu.attempt(
            metric,
            lambda: library.call(nvml, ("nvmlDeviceGetSamples",), gpu.handle, kind, last),
            passing=(nvml.NVML_ERROR_NOT_FOUND,),
        )
        if answer is None:
            return []
        form, samples = answer
        return [
            (sample.timeStamp, plain(form, sample.sampleValue))
            for sample in samples
            if sample.timeStamp > last
        ]


def _means(samples: list[tuple[int, float]]) -> list[tuple[float, float]]:
    """Return the mean moment and the mean value of the samples in each bin."""
    bins: dict[int, list[tuple[int, float]]] = {}
    for moment, value in samples:
        bins.setdefault(moment // BIN_MICROSECONDS, []).append((moment, value))
    return [
        (sum(moment for moment, _ in group) / len(group), sum(value for _, value in group) / len(group))
        for group in bins.values()
    ]
