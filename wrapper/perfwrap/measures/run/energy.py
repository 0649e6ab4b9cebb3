"""The energy of a run and of a step: that of its GPUs (NVML), and of the processors and their memory (RAPL)."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_events import Integers
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import find_gpus
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.steps import find_steps
from perfwrap.timeline.lookup import track_samples

Values = NDArray[np.float64]

COUNTER = "energy_joules"
POWER = "power_watts"
PROCESSORS = ("cpu_energy_joules", "dram_energy_joules")
MIN_LOOP_NS = 2_000_000_000
"""A shorter loop has too few samples of counters that are read once a second."""


class Energy(Struct, frozen=True):
    """Joules of a whole run and of one step; None if they were not measured.

    ``gpus`` is the number of the run's GPUs; the processors are those of all its machines, with other programs. Power
    samples stand for a counter that a GPU lacks (``sampled``). A step is one of the main training thread, and has the
    energy of all ranks.
    """

    gpus: int
    gpu_joules: float | None
    processor_joules: float | None
    gpu_step_joules: float | None = None
    processor_step_joules: float | None = None
    sampled: bool = False

    @property
    def joules(self) -> float:
        """All that was measured of the run."""
        return (self.gpu_joules or 0.0) + (self.processor_joules or 0.0)

    @property
    def step_joules(self) -> float | None:
        """All that was measured of a step; None if nothing was."""
        known = [one for one in (self.gpu_step_joules, self.processor_step_joules) if one is not None]
        return sum(known) if known else None


def find_energy(evidence: Evidence) -> Energy | None:
    """Return the energy of a run; None if nothing was measured."""
    timeline = evidence.timeline
    gpus = evidence.get(find_gpus)
    own = [gpu for gpu in gpus if gpu.of_run] or [gpu for gpu in gpus if gpu.utilization]
    counted = [track_samples(timeline, gpu.track, COUNTER) for gpu in own]
    sampled = [rows.height < 2 for rows in counted]
    counted = [
        _integrated(track_samples(timeline, gpu.track, POWER)) if lacks else rows
        for gpu, rows, lacks in zip(own, counted, sampled, strict=True)
    ]
    hosts = timeline.tracks.filter(pl.col("kind") == "host")["id"].to_list()
    processors = [track_samples(timeline, host, metric) for host in hosts for metric in PROCESSORS]
    gpu_joules, processor_joules = _whole(counted), _whole(processors)
    if gpu_joules is None and processor_joules is None:
        return None
    main = evidence.get(find_main_trainer)
    gpu_step = processor_step = None
    if main is not None:
        account, steps = evidence.get(find_account, main), evidence.get(find_steps, main)
        count = int(account.holds(steps.table["start"].to_numpy()).sum())
        if count and account.total_ns >= MIN_LOOP_NS:
            gpu_step, processor_step = (
                _between(series, account.start, account.end, account.total_ns, count)
                for series in (counted, processors)
            )
    return Energy(
        len(own),
        gpu_joules,
        processor_joules,
        gpu_step,
        processor_step,
        any(sampled) and gpu_joules is not None,
    )


def _integrated(power: pl.DataFrame) -> pl.DataFrame:
    """Return the joules since the first sample of a series of watts."""
    if power.height < 2:
        return power.clear()
    time, watts = power["time"].to_numpy(), power["value"].to_numpy()
    used = np.diff(time) / 1e9 * (watts[1:] + watts[:-1]) / 2
    return pl.DataFrame({"time": time, "value": np.append(0.0, np.cumsum(used))})


def _whole(series: list[pl.DataFrame]) -> float | None:
    """Return what counters counted from their first to their last samples, together; None without any."""
    known = [rows["value"] for rows in series if rows.height > 1]
    return sum(float(values[-1] - values[0]) for values in known) if known else None


def _between(series: list[pl.DataFrame], start: int, end: int, total_ns: int, count: int) -> float | None:
    """Return what counters counted in [start, end) for each of ``count`` steps, which took ``total_ns`` of it."""
    known = [(rows["time"].to_numpy(), rows["value"].to_numpy()) for rows in series if rows.height > 1]
    if not known:
        return None
    used = sum(_at(*pair, end) - _at(*pair, start) for pair in known)
    return used * total_ns / (end - start) / count


def _at(time: Integers, joules: Values, moment: int) -> float:
    return float(np.interp(moment, time, joules))
