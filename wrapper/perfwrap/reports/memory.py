"""What held each GPU's memory when a snapshot was taken, in a few lines of a terminal."""

from __future__ import annotations

from pathlib import PurePath

from perfwrap import units
from perfwrap.diagnosis import GpuMemory
from perfwrap.reports.page import Page

MOST_GPUS = 8
"""GPUs that are told one by one."""
MOST_LINES = 5
"""Lines of the program that are named."""
LEAST_SHARE = 0.005
"""Of what is allocated; lines with less are not named."""


def draw_memory(memories: tuple[GpuMemory, ...], page: Page) -> None:
    """Draw what each GPU's memory held."""
    page.paragraph("What held GPU memory when the snapshot was taken", style="bold")
    for memory in memories[:MOST_GPUS]:
        if len(memories) > 1:
            page.paragraph(f"{memory.host} {memory.device}", indent=2)
        for text in _figures(memory):
            page.paragraph(text, indent=2)
        for text in _lines(memory):
            page.paragraph(text, indent=4, hanging="- ")
    if len(memories) > MOST_GPUS:
        page.line((f"and {units.counted(len(memories) - MOST_GPUS, 'more GPU')}", "dim"), indent=2)


def _figures(memory: GpuMemory) -> list[str]:
    """Return what was reserved, in use and in none."""
    peak = (
        "" if memory.peak is None else f", at most {units.size(memory.peak)} while its history was recorded"
    )
    told = [
        f"{memory.device}: {units.size(memory.allocated)} in use{peak}, of {units.size(memory.reserved)} that torch "
        "had reserved."
    ]
    if memory.free:
        stuck = (
            f"; {units.size(memory.stuck)} of it lie beside live blocks and could not be given back"
            if memory.stuck and not memory.expandable
            else ""
        )
        told.append(
            f"{units.size(memory.free)} were reserved and in no use, the largest piece "
            f"{units.size(memory.largest_free)}{stuck}."
        )
    return told


def _lines(memory: GpuMemory) -> list[str]:
    """Return the lines that asked for what was in use."""
    if not any(held.where or held.what for held in memory.lines):
        return [
            "Which lines asked for it was not recorded: call torch.cuda.memory._record_memory_history() before."
        ]
    return [
        f"{units.size(held.bytes)} ({units.share(held.bytes / memory.allocated)}) in "
        f"{units.counted(held.blocks, 'block')} from "
        + (
            f"{PurePath(held.where.file).name}:{held.where.line} ({held.where.function})"
            if held.where
            else f"the {held.what}"
            if held.what
            else "lines that were not recorded"
        )
        for held in memory.lines[:MOST_LINES]
        if held.bytes >= LEAST_SHARE * memory.allocated
    ]
