"""The numbers of a diagnosis. What nobody measured is not there: missing is not zero."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfwrap.diagnosis import Diagnosis
from perfwrap.exporters import metrics
from perfwrap.exporters.metrics import Metric
from perfwrap.exporters.model import Figure, Labels

NANOSECONDS = 1e9

Told = tuple[Metric, Labels, float | None]


def find_figures(diagnosis: Diagnosis) -> tuple[Figure, ...]:
    """Return every number of the diagnosis that is known."""
    told = [*_of_steps(diagnosis), *_of_verdict(diagnosis), *_of_findings(diagnosis), *_of_gpus(diagnosis)]
    return tuple(
        Figure(metric, labels, float(value))
        for metric, labels, value in told
        if value is not None and math.isfinite(value)
    )


def _of_steps(diagnosis: Diagnosis) -> Iterator[Told]:
    """Yield how many steps there were and how long they and the run took."""
    steps = diagnosis.steps
    yield metrics.STEPS, {}, steps.count
    yield metrics.STEADY_STEPS, {}, steps.steady
    yield metrics.STEP_TIME, {"statistic": "median"}, _seconds(steps.median_ns)
    yield metrics.STEP_TIME, {"statistic": "p99"}, _seconds(steps.p99_ns)
    yield metrics.SAMPLES, {}, steps.samples_per_s
    start, end = diagnosis.run.get("start"), diagnosis.run.get("end")
    if isinstance(start, dict) and isinstance(end, dict):
        yield metrics.DURATION, {}, _seconds(end["monotonic_ns"] - start["monotonic_ns"])


def _of_verdict(diagnosis: Diagnosis) -> Iterator[Told]:
    """Yield the verdict's share, where the time went, and what perfwrap cost."""
    yield metrics.VERDICT, {}, diagnosis.verdict.share
    total = sum(diagnosis.account.values())
    for part, nanoseconds in diagnosis.account.items():
        yield metrics.ACCOUNT, {"part": part}, nanoseconds / total if total else None
    if diagnosis.perfwrap_cost is not None:
        yield metrics.COST, {}, diagnosis.perfwrap_cost.share


def _of_findings(diagnosis: Diagnosis) -> Iterator[Told]:
    """Yield for each rule what its findings claim together, and what the costliest one's fix is worth.

    By rule and not by line: names stay the same from run to run, and there are no more of them than rules.
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


def _of_gpus(diagnosis: Diagnosis) -> Iterator[Told]:
    """Yield what each GPU did whose kernels were recorded."""
    several = len({figures.host for figures in diagnosis.gpu_activity}) > 1
    for figures in diagnosis.gpu_activity:
        labels = {"gpu": gpu_label(figures.device, figures.host, several)}
        yield metrics.GPU_BUSY, labels, figures.busy_share
        yield metrics.GPU_MFU, labels, figures.mfu


def gpu_label(device: str, host: str | None, several_hosts: bool) -> str:
    """Return e.g. ``gpu-0``, with its host where there are several: a slash would make a path of it."""
    return "-".join(word for word in (host if several_hosts else "", device.replace("/", "-")) if word)


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / NANOSECONDS
