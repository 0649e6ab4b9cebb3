"""Saves a timeline as Parquet files, one per table, and loads it again, equal.

FORMAT 1: ``<table>.parquet`` for each table of the model, and ``timeline.json`` with the format's number,
the run and the warnings. ``timeline.json`` is written last: a folder without it is not a complete timeline.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from perfwrap.errors import PerfwrapError
from perfwrap.manifest_shape import first_fault
from perfwrap.private_files import read_plain, replace_text, replacing
from perfwrap.shapes import listed, text
from perfwrap.timeline.constant_columns import without_copies
from perfwrap.timeline.inflated import is_inflated
from perfwrap.timeline.model import SCHEMAS, Timeline

FORMAT = 1
"""Version of the saved timeline. 1: first."""

INDEX = "timeline.json"
MAX_INDEX_BYTES = 64 << 20


def save(timeline: Timeline, folder: Path) -> None:
    """Write the timeline into a folder, replacing a previous one."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        index = folder / INDEX
        index.unlink(missing_ok=True)
        for table in SCHEMAS:
            with replacing(folder / f"{table}.parquet") as file:
                getattr(timeline, table).write_parquet(file, compression="zstd")
        content = {"format": FORMAT, "run": timeline.run, "warnings": timeline.warnings}
        replace_text(index, json.dumps(content, indent=1))
    except OSError as error:
        raise PerfwrapError(
            f"The timeline cannot be saved in {folder}: {error.strerror}.",
            "Choose another folder with --out DIR.",
        ) from error


def load(folder: Path) -> Timeline:
    """Return the timeline saved in a folder; PerfwrapError if there is none, or it is newer or damaged."""
    hint = "Delete the folder. `perfwrap report RUN` rebuilds it from the journals."
    try:
        content = json.loads(read_plain(folder / INDEX, MAX_INDEX_BYTES))
        number = content["format"]
        run, warnings = content.get("run", {}), content.get("warnings", [])
    except FileNotFoundError:
        raise PerfwrapError(
            f"{folder} contains no saved timeline.", "Import the files again with `perfwrap import`."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PerfwrapError(f"{folder / INDEX} cannot be read: {error}", hint) from error
    if not isinstance(run, dict) or first_fault(run) or not listed(text)(warnings):
        raise PerfwrapError(f"{folder / INDEX} is damaged.", hint)
    if not isinstance(number, int) or number > FORMAT:
        raise PerfwrapError(
            f"{folder} was saved by a newer perfwrap (format {number}, this one reads {FORMAT}).",
            "Upgrade perfwrap, or delete the folder; perfwrap then builds it again.",
        )
    try:
        tables = {table: _read(folder / f"{table}.parquet", table) for table in SCHEMAS}
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise PerfwrapError(f"The timeline saved in {folder} is damaged: {error}", hint) from error
    return Timeline(run=run, warnings=tuple(warnings), **tables)  # type: ignore[arg-type]


def _read(path: Path, table: str) -> pl.DataFrame:
    """Return one table with exactly the columns and types of the model."""
    if is_inflated(path):
        raise OSError(f"{path.name} decompresses to far more data than its size allows")
    frame = pl.read_parquet(path)
    return without_copies(frame.select(pl.col(name).cast(kind) for name, kind in SCHEMAS[table].items()))
