"""The costliest lines of a step in a terminal, as source with bars."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from perfwrap import units
from perfwrap.diagnosis.model import LineAccount, LineCost
from perfwrap.reports.excerpt import read_excerpt
from perfwrap.reports.terminal.page import Page
from perfwrap.rules.model import Location

LINES = 10
BAR = 12
"""Columns of a bar at 100 %."""
BESIDE = 13
"""Columns of a row beside its bar, its place and its source."""
MIN_SOURCE = 10
"""With fewer columns for the source there is no bar."""
NOTE_INDENT = 10
MIN_SHARE = 0.005
MOSTLY = 0.6
"""A line is mostly backward, for example, from this part of its cost."""


def draw_lines(account: LineAccount, run: dict[str, Any], page: Page) -> None:
    """Draw the costliest lines with their source."""
    page.paragraph(
        f"One step, line by line: {units.duration(account.bare_ns, 3)}, forward and backward of each line together",
        style="bold",
    )
    shown = [cost for cost in account.lines[:LINES] if account.share(cost) >= MIN_SHARE]
    places = [_place(cost) for cost in shown]
    width = min(max(map(len, places), default=0), page.width // 3)
    bar = BAR if page.width - width - BAR - BESIDE >= MIN_SOURCE else 0
    room = max(1, page.width - width - bar - BESIDE)
    rest = 1.0
    for cost, place in zip(shown, places, strict=True):
        share = account.share(cost)
        rest -= share
        source = _source(cost, run)
        page.line(
            (f"{100 * share:>5.1f} %  ", ""),
            (f"{page.bar(share, bar):<{bar}} ", "cyan"),
            (f"{page.fitted(place, width):<{width}} ", ""),
            (page.clipped(source, room), "cyan"),
            indent=2,
        )
        note = _note(cost)
        if note:
            page.line((page.clipped(note, page.width - NOTE_INDENT), "dim"), indent=NOTE_INDENT)
    if rest >= MIN_SHARE:
        page.line(
            (f"{100 * rest:>5.1f} %  ", ""), (f"{'':<{bar}} ", ""), ("all other lines", "dim"), indent=2
        )


def _place(cost: LineCost) -> str:
    """Return file name and line."""
    if not cost.line.file:
        return "no line"
    return f"{PurePath(cost.line.file).name}:{cost.line.line}"


def _source(cost: LineCost, run: dict[str, Any]) -> str:
    """Return the text of the line, or its function if the file cannot be read."""
    if not cost.line.file:
        return ""
    excerpt = read_excerpt(Location(cost.line.file, cost.line.line), run)
    return excerpt.lines[0][1].strip() if excerpt and excerpt.lines else cost.line.function


def _note(cost: LineCost) -> str:
    """Return what the line does: its module, the number of operations, and its main part."""
    part, ns = max(cost.parts.items(), key=lambda item: item[1])
    # The program's own code before an operation may be that of other lines.
    what = "Python before them" if part == "python" and cost.operations else part
    mostly = (
        f"{round(100 * ns / cost.ns)} % {what}"
        if cost.ns and ns >= MOSTLY * cost.ns and part != "forward"
        else ""
    )
    shape = "" if cost.shape.endswith("[]") else cost.shape.removeprefix("float32")
    words = [
        cost.module,
        units.counted(cost.operations, "operation") if cost.operations else "",
        shape,
        mostly,
    ]
    return " · ".join(word for word in words if word)
