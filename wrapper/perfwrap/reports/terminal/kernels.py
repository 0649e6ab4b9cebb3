"""What limits each kernel that ncu measured, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfwrap import units
from perfwrap.reports.terminal.page import Page

MAX_KERNELS = 8
"""Kernels that are shown."""

MAX_NAME = 48

LIMITS = {
    "compute": "limited by compute",
    "memory": "limited by memory bandwidth",
    "balanced": "limited by compute and memory bandwidth equally",
    "latency": "limited by latency: neither compute nor memory is busy",
}


def draw_kernels(kernels: tuple[Mapping[str, Any], ...], page: Page) -> None:
    """Draw each kernel with its limit and its shares of the GPU's peak."""
    page.paragraph("Limits of the kernels that ncu measured, as shares of the GPU's peak", style="bold")
    for kernel in kernels[:MAX_KERNELS]:
        page.paragraph(
            f"{_short(str(kernel['kernel']))}: {LIMITS.get(kernel['bound'], 'limit unknown')}",
            indent=2,
        )
        page.paragraph(_figures(kernel), indent=4)
    if len(kernels) > MAX_KERNELS:
        page.line((f"and {units.counted(len(kernels) - MAX_KERNELS, 'more kernel')}", "dim"), indent=2)


def _figures(kernel: Mapping[str, Any]) -> str:
    """Return the measured figures of a kernel."""
    words = ("compute", "memory", "dram", "occupancy", "tensor")
    shares = [(word, kernel[f"{word}_share"]) for word in words]
    figures = [f"{word} {units.share(share)}" for word, share in shares if share is not None]
    many = units.counted(kernel["launches"], "launch", "launches")
    return ", ".join([*figures, f"{units.duration(kernel['duration_ns'])} in {many}"])


def _short(name: str) -> str:
    """Return a kernel's name without its arguments, shortened if it is long."""
    plain = name.partition("(")[0].removeprefix("void ") or name
    return plain if len(plain) <= MAX_NAME else plain[: MAX_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"
