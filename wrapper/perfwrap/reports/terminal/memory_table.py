"""What used each GPU's memory when a snapshot was taken, for a terminal."""

from __future__ import annotations

from pathlib import PurePath

from perfwrap import units
from perfwrap.diagnosis.model import GpuMemory
from perfwrap.reports.terminal.page import Page
from perfwrap.timeline.notebook_cells import at_line

MAX_GPUS = 8
"""GPUs that are shown."""
MAX_LINES = 5
"""Lines of the program that are shown."""
MIN_SHARE = 0.005
"""Lines with a smaller share of the allocated memory are not shown."""


def draw_memory(memories: tuple[GpuMemory, ...], page: Page) -> None:
    """Draw what used the memory of each GPU."""
    page.paragraph("GPU memory when the snapshot was taken", style="bold")
    for memory in memories[:MAX_GPUS]:
        if len(memories) > 1:
            page.paragraph(f"{memory.host} {memory.device}", indent=2)
        for text in _figures(memory):
            page.paragraph(text, indent=2)
        for text in _lines(memory):
            page.paragraph(text, indent=4, hanging="- ")
    if len(memories) > MAX_GPUS:
        page.line((f"and {units.counted(len(memories) - MAX_GPUS, 'more GPU')}", "dim"), indent=2)


def _figures(memory: GpuMemory) -> list[str]:
    """Return the reserved, used and unused memory."""
    peak = "" if memory.peak is None else f" (peak of the recorded history: {units.size(memory.peak)})"
    lines = [
        f"{memory.device}: {units.size(memory.allocated)} in use{peak} of {units.size(memory.reserved)} that PyTorch "
        "reserved."
    ]
    if memory.free:
        stuck = (
            f"; {units.size(memory.stuck)} of that cannot be released, because blocks next to it are in use"
            if memory.stuck and not memory.expandable
            else ""
        )
        lines.append(
            f"{units.size(memory.free)} reserved but unused, the largest block {units.size(memory.largest_free)}"
            f"{stuck}."
        )
    return lines


def _lines(memory: GpuMemory) -> list[str]:
    """Return the lines of the program that allocated the memory in use."""
    if not any(held.where or held.what for held in memory.lines):
        return [
            "The allocating lines were not recorded: call torch.cuda.memory._record_memory_history() first."
        ]
    return [
        f"{units.size(held.bytes)} ({units.share(held.bytes / memory.allocated)}) in "
        f"{units.counted(held.blocks, 'block')} from "
        + (
            f"{at_line(PurePath(held.where.file).name, held.where.line)} ({held.where.function})"
            if held.where
            else f"the {held.what}"
            if held.what
            else "lines that were not recorded"
        )
        for held in memory.lines[:MAX_LINES]
        if held.bytes >= MIN_SHARE * memory.allocated
    ]
