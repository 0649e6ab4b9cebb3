"""Saves a timeline as Parquet files, one per table, and loads it again, equal.

FORMAT 1: ``<table>.parquet`` for each table of the model, and ``timeline.json`` with the format's number,
the run and the warnings. ``timeline.json`` is written last: a folder without it is not a saved timeline.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from perfwrap.errors import PerfwrapError
from perfwrap.manifest_shape import first_fault
from perfwrap.private_files import read_plain, replace_text, replacing
from perfwrap.shapes import listed, text
from perfwrap.timeline.inflated import is_inflated
from perfwrap.timeline.model import SCHEMAS, Timeline

FORMAT = 1
"""Version of the saved timeline. 1: first."""

INDEX = "timeline.json"
MOST_INDEX_BYTES = 64 << 20


def save(timeline: Timeline, folder: Path) -> None:
    """Write the timeline into a folder, replacing what was saved there before."""
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
            "Choose another place with --out DIR.",
        ) from error


def load(folder: Path) -> Timeline:
    """Return the timeline saved in a folder; PerfwrapError when there is none, or a newer or damaged one."""
    mend = "Delete the folder; `perfwrap report RUN` builds it again from the journals."
    try:
        content = json.loads(read_plain(folder / INDEX, MOST_INDEX_BYTES))
        number = content["format"]
        run, warnings = content.get("run", {}), content.get("warnings", [])
    except FileNotFoundError:
        raise PerfwrapError(
            f"{folder} holds no saved timeline.", "Import the files again with `perfwrap import`."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PerfwrapError(f"{folder / INDEX} cannot be read: {error}", mend) from error
    if not isinstance(run, dict) or first_fault(run) or not listed(text)(warnings):
        raise PerfwrapError(f"{folder / INDEX} is damaged.", mend)
    if not isinstance(number, int) or number > FORMAT:
        raise PerfwrapError(
            f"{folder} was saved by a newer perfwrap (format {number}, this one reads {FORMAT}).",
            "Upgrade perfwrap to read it, or delete the folder to have it built again.",
        )
    try:
        tables = {table: _read(folder / f"{table}.parquet", table) for table in SCHEMAS}
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise PerfwrapError(f"The timeline saved in {folder} is damaged: {error}", mend) from error
    return Timeline(run=run, warnings=tuple(warnings), **tables)


def _read(path: Path, table: str) -> pl.DataFrame:
    """Return one table with exactly the columns and types of the model."""
    if is_inflated(path):
        raise OSError(f"{path.name} unpacks to far more than it holds")
    frame = pl.read_parquet(path)
    return frame.select(pl.col(name).cast(kind) for name, kind in SCHEMAS[table].items())
