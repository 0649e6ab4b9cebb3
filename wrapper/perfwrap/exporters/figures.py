"""The numbers of a diagnosis. What was not measured is missing, not zero."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.exporters import metrics
from perfwrap.exporters.export_model import Figure, Labels
from perfwrap.exporters.metrics import Metric

NANOSECONDS = 1e9

Values = tuple[Metric, Labels, float | None]


def find_figures(diagnosis: Diagnosis) -> tuple[Figure, ...]:
    """Return every number of the diagnosis that is known."""
    figures = [*_of_steps(diagnosis), *_of_verdict(diagnosis), *_of_findings(diagnosis), *_of_gpus(diagnosis)]
    return tuple(
        Figure(metric, labels, float(value))
        for metric, labels, value in figures
        if value is not None and math.isfinite(value)
    )


def _of_steps(diagnosis: Diagnosis) -> Iterator[Values]:
    """Yield the number of steps, and the durations of steps and run."""
    steps = diagnosis.steps
    yield metrics.STEPS, {}, steps.count
    yield metrics.STEADY_STEPS, {}, steps.steady
    yield metrics.STEP_TIME, {"statistic": "median"}, _seconds(steps.median_ns)
    yield metrics.STEP_TIME, {"statistic": "p99"}, _seconds(steps.p99_ns)
    yield metrics.SAMPLES, {}, steps.samples_per_s
    start, end = diagnosis.run.get("start"), diagnosis.run.get("end")
    if isinstance(start, dict) and isinstance(end, dict):
        yield metrics.DURATION, {}, _seconds(end["monotonic_ns"] - start["monotonic_ns"])


def _of_verdict(diagnosis: Diagnosis) -> Iterator[Values]:
    """Yield the share of the verdict, the breakdown of the time, and the cost of perfwrap."""
    yield metrics.VERDICT, {}, diagnosis.verdict.share
    total = sum(diagnosis.account.values())
    for part, nanoseconds in diagnosis.account.items():
        yield metrics.ACCOUNT, {"part": part}, nanoseconds / total if total else None
    if diagnosis.perfwrap_cost is not None:
        yield metrics.COST, {}, diagnosis.perfwrap_cost.share


def _of_findings(diagnosis: Diagnosis) -> Iterator[Values]:
    """Yield for each rule the share of its findings, and the saving of the most expensive one.

    By rule and not by line, so that names are the same in all runs, and there are not more names than rules.
    """
    shares: dict[str, float] = {}
    for finding in diagnosis.findings:
        if finding.rule not in shares:
            low, high = finding.saving
            yield metrics.SAVING, {"rule": finding.rule, "bound": "low"}, low
            yield metrics.SAVING, {"rule": finding.rule, "bound": "high"}, high
        shares[finding.rule] = shares.get(finding.rule, 0.0) + finding.share
    for rule, share in shares.items():
        yield metrics.FINDING, {"rule": rule}, share


def _of_gpus(diagnosis: Diagnosis) -> Iterator[Values]:
    """Yield the figures of each GPU whose kernels were recorded."""
    several = len({figures.host for figures in diagnosis.gpu_activity}) > 1
    for figures in diagnosis.gpu_activity:
        labels = {"gpu": gpu_label(figures.device, figures.host, several)}
        yield metrics.GPU_BUSY, labels, figures.busy_share
        yield metrics.GPU_MFU, labels, figures.mfu


def gpu_label(device: str, host: str | None, several_hosts: bool) -> str:
    """Return e.g. ``gpu-0``, with its host if there are several; a slash would create a path."""
    return "-".join(word for word in (host if several_hosts else "", device.replace("/", "-")) if word)


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / NANOSECONDS
