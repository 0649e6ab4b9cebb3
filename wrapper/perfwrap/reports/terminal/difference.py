"""Two diagnoses of the same work side by side, in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from perfwrap import units
from perfwrap.shown_text import visible


def print_difference(before: dict[str, Any], after: dict[str, Any], folder: Path) -> None:
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
    console.print(_sentence(before, after))
    console.print(f"Both runs: {escape(visible(str(folder)))}", soft_wrap=True)


def _sentence(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return how the measured step time compares with the predicted range."""
    earlier, later = before["steps"]["median_ns"], after["steps"]["median_ns"]
    if not earlier or not later:
        return "The step time of one run is unknown, so the runs cannot be compared."
    measured = f"The step time is now {units.share(later / earlier)} of what it was"
    savings = [finding["saving"] for finding in before["findings"][:1]]
    if not savings:
        return f"{measured}."
    low, high = (units.share(savings[0][end]) for end in ("low", "high"))
    return f"{measured} (predicted: {low} to {high})."
