"""Two diagnoses of the same work side by side, in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from perfwrap import units
from perfwrap.shown_text import visible


def print_difference(
    before: dict[str, Any], after: dict[str, Any], predicted: tuple[float, float], folder: Path
) -> None:
    """Print step time, throughput and verdict of both, the ratio, and the prediction for it."""
    console = Console(stderr=True, highlight=False)
    table = Table(title="Result of the fix", title_justify="left", box=None, pad_edge=False)
    for heading, justify in (("", "left"), ("before", "right"), ("after", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_row("median step", *(units.duration(run["steps"]["median_ns"]) for run in (before, after)))
    table.add_row(
        "throughput", *(units.rate(run["steps"]["samples_per_s"], "samples") for run in (before, after))
    )
    table.add_row("verdict", *(escape(visible(run["verdict"]["id"])) for run in (before, after)))
    console.print()
    console.print(table)
    console.print(_sentence(before, after, predicted))
    console.print(f"Both runs: {escape(visible(str(folder)))}", soft_wrap=True)


def _sentence(before: dict[str, Any], after: dict[str, Any], predicted: tuple[float, float]) -> str:
    """Return how the measured step time compares with the predicted range."""
    earlier, later = before["steps"]["samples_per_s"], after["steps"]["samples_per_s"]
    if not earlier or not later:
        return "The step time of one run is unknown, so the runs cannot be compared."
    low, high = (units.share(end) for end in predicted)
    # The throughput is that of the mean step: with workers, short and long steps alternate.
    return f"The mean step now takes {units.share(earlier / later)} of its time before (predicted: {low} to {high})."
