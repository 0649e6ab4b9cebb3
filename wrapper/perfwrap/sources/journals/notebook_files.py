"""Names code of notebook cells by notebook and cell, instead of the file names that IPython makes up.

ipykernel names the code of a cell ``/tmp/ipykernel_PID/HASH.py``, where HASH is MurmurHash2 of the cell's text
(ipykernel/compiler.py; seen: 6 and 7); IPython ``<ipython-input-NUMBER-HASH>`` (IPython/core/compilerop.py; seen: 8).
So a cell is found in the notebook by its text. The notebook is the one that the recorder or the command names. The
recorder writes the number of each cell that ran; without it, a cell has its place among the notebook's code cells.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct

from perfwrap.timeline.model import Timeline
from perfwrap.timeline.notebook_cells import SOURCES, cell_name

KERNEL_FILE = re.compile(r"(?:^|/)(ipykernel_\d{1,10}/(\d{1,10})\.py)$")
IPYTHON_INPUT = re.compile(r"^<ipython-input-(\d{1,9})-([0-9a-f]{1,40})>$")
IN_TEXT = re.compile(
    r"(?:[^\s;()\x1f]*/)?ipykernel_\d{1,10}/\d{1,10}\.py|<ipython-input-\d{1,9}-[0-9a-f]{1,40}>"
)
NUMBER, NOTEBOOK = "cell/", "notebook"
"""Facts of the recorder: the number of the cell with a code name, and the path of the notebook."""
MAGIC, MARKED = "%%perfwrap", "# "
"""A cell that begins with the first runs with the second before it, so that its lines keep their numbers."""
SUFFIX = ".ipynb"
MAX_BYTES = 64 << 20
"""Larger notebooks are not read."""
MAX_NOTEBOOKS = 20
SEED = 0xC70F6907


class Cell(Struct, frozen=True):
    """A code cell of a notebook; ``place`` counts the code cells that are not empty, from 1."""

    notebook: str
    place: int
    text: str


def name_cells(timeline: Timeline) -> Timeline:
    """Return the timeline with the names of cells in place of made-up files, and the text of these cells."""
    numbers = dict(_numbers(timeline))
    files = {file for file in (*_files(timeline), *numbers) if _key(file)}
    if not files:
        return timeline
    notebooks = _notebooks(timeline)
    cells = {key: cell for path in reversed(notebooks) for key, cell in _cells(path)}
    by_key = {_key(file): number for file, number in numbers.items()}
    names, texts = dict[str, str](), dict[str, str]()
    for file in sorted(files):
        cell, number = cells.get(_hash(file)), by_key.get(_key(file)) or _own_number(file)
        if cell is None and number is None:
            continue
        known = cell.notebook if cell else notebooks[0] if len(notebooks) == 1 else ""
        names[file] = cell_name(known, number or (cell.place if cell else 0))
        if cell is not None:
            texts[names[file]] = cell.text
    return _renamed(timeline, names, texts)


def murmur2(data: bytes, seed: int = SEED) -> int:
    """Return the 32 bits of MurmurHash2, as ipykernel computes it."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    value = seed ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * factor & mask
        part = (part ^ part >> 24) * factor & mask
        value = (value * factor & mask) ^ part
    if len(data) > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * factor & mask
    value = (value ^ value >> 13) * factor & mask
    return value ^ value >> 15


def _files(timeline: Timeline) -> Iterator[str]:
    """Yield every file that a table names."""
    for table in (timeline.spans, timeline.sums, timeline.marks, timeline.stacks):
        yield from table["file"].unique().drop_nulls().to_list()
    for texts in (timeline.stacks["stack"], timeline.facts["value"]):
        mine = texts.filter(texts.str.contains("ipykernel_|<ipython-input-")).unique().to_list()
        yield from (found for text in mine for found in IN_TEXT.findall(text))


def _numbers(timeline: Timeline) -> Iterator[tuple[str, int]]:
    """Yield the code names that the recorder knows, with the number of the cell's last execution."""
    facts = timeline.facts.filter(pl.col("key").str.starts_with(NUMBER)).select("key", "value")
    for key, value in facts.iter_rows():
        if value is not None and value.isdecimal() and len(value) < 10:
            yield key.removeprefix(NUMBER), int(value)


def _notebooks(timeline: Timeline) -> list[str]:
    """Return the paths of the notebooks that the recorder or the command names, in this order."""
    facts = timeline.facts.filter(pl.col("key") == NOTEBOOK)["value"].drop_nulls().to_list()
    words = [str(word).rpartition("=")[2] for word in timeline.run.get("command") or ()]
    named = [word for word in (*facts, *words) if word.endswith(SUFFIX) and "\0" not in word]
    directory = str(timeline.run.get("cwd") or ".")
    return list(dict.fromkeys(str(Path(directory, word)) for word in named))[:MAX_NOTEBOOKS]


def _cells(path: str) -> Iterator[tuple[str, Cell]]:
    """Yield the code cells of a notebook with the hashes of their texts; none if it cannot be read."""
    place = 0
    for text in _texts(path):
        if text.strip():
            place += 1
            # IPython removes empty lines before the first statement.
            lines = text.splitlines()
            first = next(number for number, line in enumerate(lines) if line.strip())
            cell = Cell(path, place, "\n".join(lines[first:]))
            for ran in (text, MARKED + text) if text.startswith(MAGIC) else (text,):
                yield str(murmur2(ran.encode("utf-8", "replace"))), cell
                yield _sha1(ran + "\n"), cell


def _texts(path: str) -> Iterator[str]:
    """Yield the texts of a notebook's code cells, in order."""
    try:
        file = Path(path)
        if not file.is_file() or file.stat().st_size > MAX_BYTES:
            return
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    cells = content.get("cells") if isinstance(content, dict) else None
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source")
            yield "".join(map(str, source)) if isinstance(source, list) else str(source or "")


def _sha1(text: str) -> str:
    """Return the part of the hash that IPython puts into the name of an input."""
    return hashlib.sha1(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()[:12]


def _key(file: str) -> str:
    """Return what identifies the code in its name: py-spy shortens the folder; empty if it is no cell."""
    found = KERNEL_FILE.search(file)
    return found[1] if found else file if IPYTHON_INPUT.match(file) else ""


def _hash(file: str) -> str:
    """Return the hash in a code name."""
    found = KERNEL_FILE.search(file) or IPYTHON_INPUT.match(file)
    return found[2] if found else ""


def _own_number(file: str) -> int | None:
    """Return the number in a code name; None if it has none."""
    found = IPYTHON_INPUT.match(file)
    return int(found[1]) if found else None


def _renamed(timeline: Timeline, names: Mapping[str, str], texts: Mapping[str, str]) -> Timeline:
    """Return the timeline with other names of files."""
    if not names:
        return timeline
    file = pl.col("file").replace(dict(names))
    # A shortened name is a part of the full one, which comes first.
    old = sorted(names, key=len, reverse=True)
    new = [names[name] for name in old]
    run: dict[str, Any] = {**timeline.run, SOURCES: dict(texts)}
    return replace(
        timeline,
        run=run,
        spans=timeline.spans.with_columns(file),
        sums=timeline.sums.with_columns(file),
        marks=timeline.marks.with_columns(file, _replaced("detail", old, new)),
        stacks=timeline.stacks.with_columns(file, _replaced("stack", old, new)),
        facts=timeline.facts.filter(~pl.col("key").str.starts_with(NUMBER)).with_columns(
            _replaced("value", old, new)
        ),
    )


def _replaced(column: str, old: Iterable[str], new: Iterable[str]) -> pl.Expr:
    """Return a column of texts with other names of files."""
    return pl.col(column).str.replace_many(list(old), list(new), leftmost=True)
