"""What limits each kernel that ncu measured, in a few lines of a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfwrap import units
from perfwrap.reports.page import Page

MOST_KERNELS = 8
"""Kernels that are told one by one."""

LONGEST_NAME = 48

LIMITS = {
    "compute": "limited by arithmetic",
    "memory": "limited by memory",
    "balanced": "limited by arithmetic and memory alike",
    "latency": "limited by latency: neither arithmetic nor memory is busy",
}


def draw_kernels(kernels: tuple[Mapping[str, Any], ...], page: Page) -> None:
    """Draw each kernel with its limit and its shares of the GPU's peak."""
    page.paragraph("What limits the kernels that ncu measured, as shares of the GPU's peak", style="bold")
    for kernel in kernels[:MOST_KERNELS]:
        page.paragraph(
            f"{_short(str(kernel['kernel']))}: {LIMITS.get(kernel['bound'], 'not known what limits it')}",
            indent=2,
        )
        page.paragraph(_figures(kernel), indent=4)
    if len(kernels) > MOST_KERNELS:
        page.line((f"and {units.counted(len(kernels) - MOST_KERNELS, 'more kernel')}", "dim"), indent=2)


def _figures(kernel: Mapping[str, Any]) -> str:
    """Return what was measured of a kernel, without what was not."""
    words = ("compute", "memory", "dram", "occupancy", "tensor")
    shares = [(word, kernel[f"{word}_share"]) for word in words]
    told = [f"{word} {units.share(share)}" for word, share in shares if share is not None]
    many = units.counted(kernel["launches"], "launch", "launches")
    return ", ".join([*told, f"{units.duration(kernel['duration_ns'])} in {many}"])


def _short(name: str) -> str:
    """Return a kernel's name without its arguments, cut where it is long."""
    plain = name.partition("(")[0].removeprefix("void ") or name
    return plain if len(plain) <= LONGEST_NAME else plain[: LONGEST_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"
