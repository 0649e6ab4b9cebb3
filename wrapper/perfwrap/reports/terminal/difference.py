"""Two diagnoses of the same work side by side, in a terminal."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from perfwrap import units
from perfwrap.shown_text import visible


def print_difference(
    before: dict[str, Any], after: dict[str, Any], fix: dict[str, Any], folder: Path
) -> None:
    """Print step time, throughput and verdict of both, and the ratio that ``perfwrap fix`` measured and predicted."""
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
    console.print(_sentence(fix))
    console.print(f"Both runs: {escape(visible(str(folder)))}", soft_wrap=True)


def _sentence(fix: dict[str, Any]) -> str:
    """Return how the measured step time compares with the predicted range."""
    kept = [edit["predicted"] for edit in fix["edits"] if edit["state"] == "kept"]
    predicted = [units.share(math.prod(ends)) for ends in zip(*kept, strict=True)]
    total = fix["total"]
    measured = [units.share(total[end]) for end in ("ratio", "low", "high")]
    return (
        f"With the patch, a step takes {measured[0]} of its time before ({measured[1]} to {measured[2]}), measured by "
        f"perfwrap fix with both in turns. Predicted: {predicted[0]} to {predicted[1]}."
    )
