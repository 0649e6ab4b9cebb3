"""When the training thread imported modules, and from which packages, by its samples."""

from __future__ import annotations

import re
from functools import lru_cache

import polars as pl

from perfwrap.measures.loop.library_calls import FRAME, PACKAGE
from perfwrap.measures.loop.stacks import OUTSIDE
from perfwrap.timeline.model import Timeline

STANDARD_LIBRARY = "standard library"
LONGEST_PERIOD_NS = 600_000_000
"""A sample stands for the time until the next one, or at most this time per sample."""
LIBRARY = re.compile(r"/lib(?:64)?/python3\.\d+/")
MACHINERY = "<frozen importlib"
MODULE = "<module>"


def timed_samples(timeline: Timeline, thread: int) -> pl.DataFrame:
    """Return py-spy's samples of a thread: start, end, stack, package, file, line and function.

    ``package`` is the imported top-level package, null where nothing is imported.
    """
    rows = timeline.stacks.filter(pl.col("track") == thread, pl.col("source") == OUTSIDE).sort("time")
    until = pl.min_horizontal(
        pl.col("time").shift(-1).fill_null(1 << 62), pl.col("time") + pl.col("weight") * LONGEST_PERIOD_NS
    )
    package = pl.col("stack").map_elements(imported_package, return_dtype=pl.String)
    return rows.select(
        pl.col("time").alias("start"),
        until.alias("end"),
        "stack",
        package.alias("package"),
        "file",
        "line",
        "function",
    )


@lru_cache(maxsize=1 << 14)
def imported_package(stack: str) -> str | None:
    """Return the top-level package that a stack imports, None if it imports nothing.

    It is the outermost installed package that the program's own modules import. A module of the program that runs its
    own code while it is imported imports nothing.
    """
    if MACHINERY not in stack:
        return None
    frames = [(found["function"], found["file"]) for found in FRAME.finditer(stack)]
    standard = False
    for function, file in frames:
        if function != MODULE:
            continue
        package = PACKAGE.search(file)
        if package:
            return package[1].removesuffix(".py")
        if LIBRARY.search(file):
            standard = True
    if standard:
        return STANDARD_LIBRARY
    return STANDARD_LIBRARY if frames and frames[-1][1].startswith(MACHINERY) else None
