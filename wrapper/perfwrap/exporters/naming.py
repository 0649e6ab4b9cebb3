"""Names for programs that have paths and words, but neither labels nor units."""

from __future__ import annotations

from perfwrap.exporters.export_model import Figure, Series
from perfwrap.exporters.metrics import Metric

SUFFIXES = {
    "s": "_seconds",
    "By": "_bytes",
    "1": "_ratio",
    "W": "_watts",
    "Hz": "_hertz",
    "Cel": "_celsius",
    "{core}": "_cores",
    "{step}": "",
    "{sample}/s": "",
}
"""The suffix of a name for each unit: Prometheus's base units, used for all programs."""


def named(metric: Metric) -> str:
    """Return the metric's name with its unit, e.g. ``step_time_seconds``."""
    return metric.name + SUFFIXES[metric.unit]


def figure_path(figure: Figure) -> str:
    """Return e.g. ``perfwrap_summary/account_ratio/data``; the first word creates a section."""
    return "/".join(["perfwrap_summary", named(figure.metric), *figure.labels.values()])


def series_path(series: Series) -> str:
    """Return e.g. ``perfwrap/gpu_power_watts/gpu-0``."""
    return "/".join(["perfwrap", named(series.metric), *series.labels.values()])


def clean(text: str) -> str:
    """Return valid text: bytes that are not UTF-8 (in names of files) become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def shortened(text: str, most: int) -> str:
    """Return the text, shortened to the maximum length of a program."""
    return text if len(text) <= most else text[: most - 1] + "…"
