"""Files that are well-formed but for odd values at a few places: what damaged bytes seldom become, all readers bear.

The few examples of each run are the same each time; ``HYPOTHESIS_PROFILE=explore`` tries hundreds more.
"""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from hostile_targets import TARGETS  # noqa: E402

SAMPLES = {
    name: next((TESTS / "samples/hostile").glob(f"{name}-plain.*")).read_bytes() for name in sorted(TARGETS)
}
FEWER = 3
"""One part in so many of the profile's examples: there are many targets."""
WORD_BYTES = 8
SQLITE_TABLES = ("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME")
NUMBERS = st.sampled_from(
    [0, -1, 1, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30, 1e308, -0.0, float("inf"), float("nan")]
)
TEXTS = st.sampled_from(
    ["", " ", "0", "-1", "1e400", "nan", "\0", "\u202e", "a" * 5000, "9" * 400, '"', "%s", "2026-13-45"]
)
ODD = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.sampled_from([[], {}, [[]], {"": None}]))
EDITS = st.lists(
    st.tuples(st.integers(0, 2**16), st.sampled_from(["replace", "leave out", "repeat"]), ODD),
    min_size=1,
    max_size=4,
)
Edits = list[tuple[int, str, Any]]


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a tree: what holds it, and its key there."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from places(tree[key])


def edited(tree: Any, edits: Edits) -> Any:
    """Return a tree with odd values at some of its places."""
    tree = copy.deepcopy(tree)
    for number, how, odd in edits:
        found = list(places(tree))
        if not found:
            break
        holder, key = found[number % len(found)]
        if how == "replace":
            holder[key] = copy.deepcopy(odd)
        elif how == "leave out":
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            holder[f"{key} again"] = copy.deepcopy(holder[key])
    return tree


def edited_json(sample: bytes, edits: Edits) -> bytes:
    return json.dumps(edited(json.loads(sample), edits)).encode()


def edited_pickle(sample: bytes, edits: Edits) -> bytes:
    return pickle.dumps(edited(pickle.loads(sample), edits))


def edited_table(separator: str) -> Callable[[bytes, Edits], bytes]:
    def edit(sample: bytes, edits: Edits) -> bytes:
        rows = edited([line.split(separator) for line in sample.decode().split("\n")], edits)
        lines = (separator.join(map(str, row if isinstance(row, list) else [row])) for row in rows)
        return "\n".join(lines).encode("utf-8", "replace")

    return edit


def edited_words(sample: bytes, edits: Edits) -> bytes:
    """Edit a file of fixed records: a word of it becomes any number, is left out, or comes twice."""
    words = [sample[at : at + WORD_BYTES] for at in range(0, len(sample), WORD_BYTES)]
    for number, how, odd in edits:
        at = number % len(words)
        value = odd if isinstance(odd, int) else number
        new = {"replace": [(value % 2**64).to_bytes(WORD_BYTES, "little")], "leave out": []}
        words[at : at + 1] = new.get(how, [words[at]] * 2)
    return b"".join(words)


def edited_database(sample: bytes, edits: Edits) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "database")
        path.write_bytes(sample)
        with contextlib.closing(sqlite3.connect(path)) as database:
            for table in tables(database):  # Without its keys, so that any value may stand anywhere.
                database.execute(f"CREATE TABLE free AS SELECT * FROM {table}")
                database.execute(f"DROP TABLE {table}")
                database.execute(f"ALTER TABLE free RENAME TO {table}")
            for edit in edits:
                edit_database(database, *edit)
            database.commit()
        return path.read_bytes()


def tables(database: sqlite3.Connection) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def edit_database(database: sqlite3.Connection, number: int, how: str, odd: Any) -> None:
    for table in tables(database)[number % len(SQLITE_TABLES) :][:1]:
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        column = columns[number // len(SQLITE_TABLES) % len(columns)]
        if how == "repeat":
            database.execute(f"INSERT INTO {table} SELECT * FROM {table}")
        elif how == "replace":
            fits = odd is None or isinstance(odd, (str, float)) or (isinstance(odd, int) and abs(odd) < 2**63)
            database.execute(f"UPDATE {table} SET {column} = ?", (odd if fits else repr(odd),))
        elif len(columns) > 1:
            database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        else:
            database.execute(f"DROP TABLE {table}")


EDITED: dict[str, Callable[[bytes, Edits], bytes]] = {
    **dict.fromkeys(("collapsed", "py-spy-log", "text", "configuration"), edited_table(" ")),
    "starts": edited_table("\t"),
    "memory": edited_pickle,
    "journal": edited_words,
    "nsys": edited_database,
}
"""How the samples are edited that are neither JSON nor tables with commas."""


def edited_sample(name: str, edits: Edits) -> bytes:
    """Return the sample of that name with odd values."""
    sample = SAMPLES[name]
    usual = edited_json if sample.lstrip()[:1] in (b"{", b"[") else edited_table(",")
    return EDITED.get(name, usual)(sample, edits)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_well_formed_file_with_odd_values_costs_a_note_or_a_refusal(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp(name)

    @settings(max_examples=settings.default.max_examples // FEWER, suppress_health_check=list(HealthCheck))
    @given(EDITS)
    def bear(edits: Edits) -> None:
        TARGETS[name](edited_sample(name, edits), folder)

    bear()
