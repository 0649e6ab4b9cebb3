"""Names for programs that know paths and words, but neither labels nor units."""

from __future__ import annotations

from perfwrap.exporters.metrics import Metric
from perfwrap.exporters.model import Figure, Series

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
"""How a unit ends a name: Prometheus's base units, which the other programs' users read as well."""


def named(metric: Metric) -> str:
    """Return the metric's name with its unit, e.g. ``step_time_seconds``."""
    return metric.name + SUFFIXES[metric.unit]


def figure_path(figure: Figure) -> str:
    """Return e.g. ``perfwrap_summary/account_ratio/data``; the first word makes a section of its own."""
    return "/".join(["perfwrap_summary", named(figure.metric), *figure.labels.values()])


def series_path(series: Series) -> str:
    """Return e.g. ``perfwrap/gpu_power_watts/gpu-0``."""
    return "/".join(["perfwrap", named(series.metric), *series.labels.values()])


def clean(text: str) -> str:
    """Return text that every program takes: a question mark for what is no UTF-8 (a file name may hold that)."""
    return text.encode("utf-8", "replace").decode("utf-8")


def shortened(text: str, most: int) -> str:
    """Return the text with no more characters than a program takes."""
    return text if len(text) <= most else text[: most - 1] + "…"
