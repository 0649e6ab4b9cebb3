"""Converts the texts of a journal to columns: labels, operations, categories."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from perfwrap.journal_format import FIELD_SEPARATOR, SPANS
from perfwrap.timeline.model import CATEGORIES

Integers: TypeAlias = NDArray[np.integer]

CATEGORY = {
    "data": "data",
    "data_end": "data",
    "loader_start": "data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "scaler_step": "optimizer",
    "zero_grad": "optimizer",
    "sync": "sync",
    "save": "checkpoint",
    "load": "checkpoint",
    "gc": "gc",
    "perfwrap": "perfwrap",
    "transfer": "transfer",
    "fetch": "data",
    "getitem": "data",
    "collate": "data",
    "idle": "data",
    "pin": "data",
    "scheduler": "optimizer",
    "clip": "optimizer",
    "collective": "collective",
    "compile": "compile",
    "profiler": "profiler",
    "recompute": "recompute",
    "gradient": "backward",
}
"""The category of each operation; ``other`` for those that are not listed."""

OPERATIONS = {kind: name.lower() for name, kind in SPANS.items()}


class Labels:
    """The labels of one journal, looked up by text id without a loop over records."""

    def __init__(self, texts: dict[int, str]) -> None:
        """Split the texts once; the last row is for ids without a text."""
        self._ids = np.array(sorted(texts), dtype=np.int64)
        fields = [texts[number].split(FIELD_SEPARATOR) for number in sorted(texts)]
        self._columns = pl.DataFrame(
            {
                "name": [*(found[0] for found in fields), None],
                "file": [*(_field(found, 1) for found in fields), None],
                "line": [*(_number(_field(found, 2)) for found in fields), None],
                "function": [*(_field(found, 3) for found in fields), None],
            },
            schema={"name": pl.String, "file": pl.String, "line": pl.Int32, "function": pl.String},
        )

    def columns(self, ids: Integers) -> dict[str, pl.Series]:
        """Return name, file, line and function for each id."""
        places = self.places(ids)
        return self._columns[places].to_dict()

    def places(self, ids: Integers) -> NDArray[np.uint32]:
        """Return the row of each id; the last one for an id without a text."""
        wanted = np.asarray(ids, dtype=np.int64)
        places = np.searchsorted(self._ids, wanted)
        if self._ids.size:
            places[self._ids[np.minimum(places, self._ids.size - 1)] != wanted] = self._ids.size
        return places.astype(np.uint32)

    def without_text(self, ids: Integers) -> int:
        """Return how many of the ids should have a text and have none."""
        return int(np.count_nonzero((ids != 0) & (self.places(ids) == self._ids.size)))


def operation_columns(kinds: Integers) -> dict[str, pl.Series]:
    """Return category and operation for each span kind."""
    codes = sorted(OPERATIONS)
    operations = [OPERATIONS[code] for code in codes]
    categories = [CATEGORY.get(operation, "other") for operation in operations]
    columns = {"category": pl.Series(categories, dtype=pl.Enum(CATEGORIES)), "operation": operations}
    return pl.DataFrame(columns)[np.searchsorted(np.array(codes), kinds).astype(np.uint32)].to_dict()


def _field(fields: list[str], place: int) -> str | None:
    """Return a field of a label, None if it is absent or empty."""
    return fields[place] or None if place < len(fields) else None


def _number(text: str | None) -> int | None:
    """Return a line number."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else None
