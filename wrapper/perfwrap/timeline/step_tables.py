"""Each trainer's steps in a Parquet file for perfwrap and other programs; described in docs/run-folder.md.

FORMAT 1: ``steps/<host>-<pid>-<number>.parquet`` with the columns of COLUMNS, and ``steps/steps.json`` with the
format's number and a summary of each file's trainer. It is written last: without it the tables are incomplete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import asdict

from perfwrap.errors import PerfwrapError
from perfwrap.private_files import read_plain
from perfwrap.timeline.inflated import is_inflated

FORMAT = 1
"""Version of the step tables. 1: first."""
INDEX = "steps.json"
MAX_INDEX_BYTES = 64 << 20
ROWS_IN_GROUP = 1 << 16
"""Bytes of a file that are decompressed at once."""

PARTS = (
    *(
        "data",
        "transfer",
        "forward",
        "backward",
        "recompute",
        "optimizer",
        "sync",
        "checkpoint",
        "validation",
    ),
    *("compile", "gc", "profiler", "perfwrap", "python"),
)
"""The parts of the account, in the order of their columns."""

COLUMNS: dict[str, Any] = {
    "host": pl.String,
    "rank": pl.Int32,
    "pid": pl.Int64,
    "step": pl.Int64,
    "start_ns": pl.Int64,
    "duration_ns": pl.Int64,
    "steady": pl.Boolean,
    "detailed": pl.Boolean,
    "windowed": pl.Boolean,
    "epoch": pl.Int64,
    "samples": pl.Int64,
    **{f"{part}_ns": pl.Int64 for part in PARTS},
    "own_ns": pl.Int64,
    "exchange_begin_ns": pl.Int64,
    "exchange_end_ns": pl.Int64,
}
"""Columns and types of a table, sorted by step."""


class Summary(Struct, frozen=True):
    """Totals of one trainer, so that they need not be computed from its table."""

    name: str
    rank: int | None
    host: str
    pid: int | None
    steps: int
    steady: int
    median_ns: float | None
    p99_ns: float | None
    samples_per_s: float | None
    anchor: str
    account_ns: dict[str, int]


class StepTable(Struct, frozen=True):
    """One trainer's file."""

    path: Path
    summary: Summary

    def scan(self) -> pl.LazyFrame:
        """Return the table as a lazy frame."""
        return pl.scan_parquet(self.path)


def write(folder: Path, tables: Iterable[tuple[Summary, pl.DataFrame]]) -> None:
    """Write the tables of a part into a folder, and replace the previous ones; the folder is always complete."""
    new, old = (folder.with_name(f".{folder.name}.{what}{os.getpid()}") for what in ("new", "old"))
    new.mkdir()
    try:
        _fill(new, tables)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except OSError:
        # Another process that read the same recording at the same time has written the same tables.
        if read(folder) is None:
            raise
    finally:
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)


def _fill(folder: Path, tables: Iterable[tuple[Summary, pl.DataFrame]]) -> None:
    """Write the tables and then the index."""
    listed = []
    for number, (summary, table) in enumerate(tables):
        name = f"{summary.host}-{summary.pid or 0}-{number}.parquet".replace(os.sep, "_")
        table.write_parquet(folder / name, compression="zstd", row_group_size=ROWS_IN_GROUP)
        listed.append({"file": name, **asdict(summary)})
    index = json.dumps({"format": FORMAT, "trainers": listed}, indent=1)
    (folder / INDEX).write_text(index, encoding="utf-8")


def read(folder: Path) -> tuple[StepTable, ...] | None:
    """Return the tables of a part; None if they were not written, or not completely."""
    try:
        content = json.loads(read_plain(folder / INDEX, MAX_INDEX_BYTES))
        number, trainers = content["format"], content["trainers"]
        if number > FORMAT:
            raise PerfwrapError(
                f"{folder} was written by a newer perfwrap (format {number}, this one reads {FORMAT}).",
                "Upgrade perfwrap, or delete the folder; perfwrap then writes it again.",
            )
        # Use only the file's name: a path in a folder from somebody else could lead outside of it.
        tables = tuple(StepTable(folder / Path(row.pop("file")).name, Summary(**row)) for row in trainers)
        return None if any(is_inflated(table.path) for table in tables) else tables
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
