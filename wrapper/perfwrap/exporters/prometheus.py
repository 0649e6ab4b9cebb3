"""A file for the textfile collector of Prometheus's node_exporter, written by prometheus-client.

Names follow prometheus.io/docs/practices/naming: base units at the end, shares as ratios. The collector takes no times,
so there are no series, and every metric has the label ``run``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from perfwrap.errors import PerfwrapError
from perfwrap.exporters.export_model import Destination, Exported, Figure, own_place
from perfwrap.exporters.naming import named, shortened

TAKES = frozenset({"out"})
FILE = "perfwrap.prom"
LONGEST_LABEL = 200
OF_CONDITIONS = ("torch", "gpu")
"""Conditions that are labels of ``perfwrap_run_info``: a few that change seldom."""


def export(run: Exported, where: Destination) -> list[str]:
    """Write the file, in one step, so that the collector never reads an incomplete file."""
    path = where.out or own_place(run.folder, FILE)
    if path.suffix != ".prom":
        raise PerfwrapError(
            f"{path} does not end in .prom.",
            "The textfile collector of node_exporter reads only .prom files.",
        )
    registry = CollectorRegistry()
    _add_info(run, registry)
    grouped: dict[str, list[Figure]] = {}
    for figure in run.figures:
        grouped.setdefault(named(figure.metric), []).append(figure)
    for name, figures in grouped.items():
        _add(f"perfwrap_{name}", figures, run.name, registry)
    _write(path, registry)
    return [f"Written: {path}", f"For node_exporter: --collector.textfile.directory={path.parent}"]


def _add_info(run: Exported, registry: CollectorRegistry) -> None:
    """Add the texts, and when the run ended."""
    known = {name: run.conditions[name] for name in OF_CONDITIONS if name in run.conditions}
    words = {"run": run.name, "verdict": run.verdict, "confidence": run.confidence, "host": run.host, **known}
    labels = {name: shortened(value, LONGEST_LABEL) for name, value in words.items()}
    Gauge("perfwrap_run_info", "Command and verdict of the run.", list(labels), registry=registry).labels(
        **labels
    ).set(1)
    ended = Gauge("perfwrap_run_end_timestamp_seconds", "When the run ended.", ["run"], registry=registry)
    ended.labels(run=labels["run"]).set(run.end_ns / 1e9)


def _add(name: str, figures: Sequence[Figure], run: str, registry: CollectorRegistry) -> None:
    """Add one metric with all its figures, which have the same labels."""
    names = ["run", *figures[0].labels]
    gauge = Gauge(name, figures[0].metric.description, names, registry=registry)
    for figure in figures:
        gauge.labels(run=shortened(run, LONGEST_LABEL), **figure.labels).set(figure.value)


def _write(path: Path, registry: CollectorRegistry) -> None:
    """Write the file; PerfwrapError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise PerfwrapError(
            f"Cannot write {path}: {error.strerror}.", "Choose another file: --out FILE.prom"
        ) from error
