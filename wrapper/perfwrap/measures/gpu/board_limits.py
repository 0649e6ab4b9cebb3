"""The power limit and the highest SM clock of GPUs by their names, for logs that do not contain them.

From the data sheets of NVIDIA's boards (maximum power) and the "Max Clocks" of ``nvidia-smi -q``. A log's own columns
(power.limit, clocks.max.sm) take precedence: a vendor can configure both.
"""

from __future__ import annotations

import re

from msgspec import Struct

MEGAHERTZ = 1e6


class BoardLimits(Struct, frozen=True):
    """One board."""

    watts: float
    sm_clock_hertz: float


BOARDS = (
    (r"H200$", BoardLimits(700, 1980 * MEGAHERTZ)),
    (r"H100 80GB HBM3", BoardLimits(700, 1980 * MEGAHERTZ)),
    (r"H100 PCIe", BoardLimits(350, 1755 * MEGAHERTZ)),
    (r"A100-SXM4", BoardLimits(400, 1410 * MEGAHERTZ)),
    (r"A100 80GB PCIe", BoardLimits(300, 1410 * MEGAHERTZ)),
    (r"V100-SXM2", BoardLimits(300, 1530 * MEGAHERTZ)),
    (r"\bL40S$", BoardLimits(350, 2520 * MEGAHERTZ)),
    (r"\bA40$", BoardLimits(300, 1740 * MEGAHERTZ)),
    (r"\bA10$", BoardLimits(150, 1695 * MEGAHERTZ)),
    (r"\bT4$", BoardLimits(70, 1590 * MEGAHERTZ)),
)
"""A pattern of the driver's name, and the limits; the first match counts."""


def limits_named(name: str) -> BoardLimits | None:
    """Return the limits of the board with that name; None if it is not in the table."""
    return next((limits for pattern, limits in BOARDS if re.search(pattern, name.strip())), None)
