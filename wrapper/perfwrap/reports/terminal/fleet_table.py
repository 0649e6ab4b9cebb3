"""Many ranks side by side in a terminal: how many there are, which are slowest, and in what."""

from __future__ import annotations

from perfwrap import units
from perfwrap.diagnosis.model import Fleet
from perfwrap.reports.terminal.page import Page

MAX_SHOWN = 5
SLOW = 1.05
"""A rank is shown if its own work takes this many times that of the median rank, or more."""


def draw_fleet(fleet: Fleet, page: Page) -> None:
    """Draw how the ranks compare."""
    hosts = len({rank.summary.host for rank in fleet.ranks})
    heading = f"{units.counted(len(fleet.ranks), 'rank')} on {units.counted(hosts, 'host')}"
    page.paragraph(f"{heading}, {units.counted(fleet.compared, 'step')} compared", style="bold")
    if fleet.late is None or fleet.usual_own_ns is None or fleet.lost_ns is None:
        page.paragraph("Too few steps of all ranks were recorded in detail to compare the ranks.", indent=2)
        return
    page.paragraph(
        f"The median rank spends {units.duration(fleet.usual_own_ns)} of a step on its own work: everything except "
        "backward passes, reads of values, validation and collectives, in which it may wait for others. The slowest "
        f"rank of each step takes {units.duration(fleet.lost_ns)} more than the mean of all ranks.",
        indent=2,
    )
    slow = sorted(fleet.ranks, key=lambda rank: -(rank.own_ns or 0.0))
    shown = [rank for rank in slow if rank.own_ns and rank.own_ns >= SLOW * fleet.usual_own_ns][:MAX_SHOWN]
    if not shown:
        page.paragraph("No rank stands out.", indent=2)
    for rank in shown:
        part, more = next(iter(fleet.more(rank).items()))
        page.paragraph(
            f"{rank.summary.name} ({rank.summary.host}): {units.duration(rank.own_ns or 0.0)}, slowest in "
            f"{units.share(rank.slowest_share or 0.0)} of the steps; {units.duration(more)} more in {part} than "
            "the median",
            indent=2,
            hanging="- ",
        )
