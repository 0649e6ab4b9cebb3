"""Encodes numbers and texts for the page, small and safe."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

LONGEST = 1_000
"""Maximum characters of a text; of a longer one, the beginning and the end are kept."""

LEVEL = 1_000
"""Points that a chart shows at once; a curve has more only to zoom into."""

FINEST = 100_000
"""Points of a curve's finest level, so that the report has a few megabytes."""

FACTOR = 8
"""How many points of a level stand for one of the next."""

MISLEADING = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that change the direction of text (CVE-2021-42574)."""

SECOND_NS = 1e9
GRAINS = 2**32 - 1

Packed = dict[str, Any]
Level = dict[str, Packed]


def clipped(text: object, longest: int = LONGEST) -> str:
    """Return the text, without the middle where it is very long, and without what would make it look like another."""
    safe = MISLEADING.sub("\N{REPLACEMENT CHARACTER}", str(text))
    if len(safe) <= longest:
        return safe
    half = (longest - 1) // 2
    return f"{safe[:half]}\N{HORIZONTAL ELLIPSIS}{safe[-half:]}"


def numbers(values: ArrayLike, kind: str = "f4") -> Packed:
    """Return numbers as the page reads them: little-endian (``f4``, ``i4``, ``u4``, ``u1``), in base64."""
    packed = np.ascontiguousarray(values, dtype=f"<{kind}")
    return {"d": kind, "b": base64.b64encode(packed.tobytes()).decode("ascii")}


def moments(values: ArrayLike) -> Packed:
    """Return moments in four bytes each: as parts of their extent, so that each is right to a billionth of it."""
    exact = np.asarray(values, dtype=np.float64)
    first, extent = (float(exact.min()), float(np.ptp(exact))) if exact.size else (0.0, 0.0)
    step = extent / GRAINS or 1.0
    return {**numbers(np.round((exact - first) / step), "u4"), "first": first, "step": step}


def embedded(document: dict[str, Any]) -> str:
    """Return JSON for a script element of the page: nothing in it can end that element."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def levels(
    points: pl.DataFrame, finest: int = FINEST, coarsest: int = LEVEL, band: bool = True
) -> list[Level]:
    """Return a curve in ever coarser levels, the finest first; ``points`` has the columns x (seconds) and y.

    A point of a coarser level is the median of those that it stands for, with a ``band`` between their least and
    their most.
    """
    height = points.height
    size = -(-height // finest) if height else 1
    found = []
    while True:
        found.append(_level(points, size, band))
        if height <= size * coarsest:
            return found
        size *= FACTOR


def _level(points: pl.DataFrame, size: int, band: bool) -> Level:
    """Return one level: each point stands for so many."""
    if size == 1:
        return {"x": moments(points["x"].to_numpy()), "y": numbers(points["y"].to_numpy())}
    rows = (
        points.with_row_index("place")
        .group_by(pl.col("place") // size, maintain_order=True)
        .agg(
            pl.col("x").first(),
            pl.col("y").median(),
            pl.col("y").min().alias("low"),
            pl.col("y").max().alias("high"),
        )
    )
    packed = {name: numbers(rows[name].to_numpy()) for name in ("y", "low", "high")[: 3 if band else 1]}
    return {"x": moments(rows["x"].to_numpy()), **packed}
