"""Saved timelines: equal after a round trip, refused when newer or damaged."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import polars as pl
import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.timeline import step_tables, storage
from perfwrap.timeline.inflated import FREE_ROWS, MAX_ROWS_PER_BYTE
from perfwrap.timeline.model import SCHEMAS, Timeline


@pytest.fixture
def timeline(run) -> Timeline:
    """A timeline with rows in most tables."""
    journal = run.journal(rank=0, threads=2)
    for _ in range(3):
        journal.step()
    journal.describe("MARK", "note", journal.text("detail"))
    journal.describe("THIN", start=journal.now)
    journal.sum("sync", journal.now, 3, 50, "Tensor.item", "train.py:3:main")
    journal.non_finite(float("nan"))
    journal.sample("host", "runnable_tasks", 2.0)
    (run.folder.journal / "bad-1-1-0.pwj").write_bytes(b"not a journal")
    return run.read()


def test_a_saved_timeline_is_equal_after_a_round_trip(timeline: Timeline, tmp_path) -> None:
    storage.save(timeline, tmp_path / "saved")
    loaded = storage.load(tmp_path / "saved")
    for table in SCHEMAS:
        assert getattr(loaded, table).equals(getattr(timeline, table)), table
        assert getattr(loaded, table).schema == getattr(timeline, table).schema, table
    assert loaded.run == timeline.run
    assert loaded.warnings == timeline.warnings != ()


def test_every_table_of_the_timeline_is_saved() -> None:
    # Dataflow windows are files of a run folder, which is never saved in this form.
    assert {field.name for field in fields(Timeline)} == {*SCHEMAS, "run", "warnings", "operation_windows"}


def test_saving_again_replaces_what_was_saved(timeline: Timeline, tmp_path) -> None:
    storage.save(timeline, tmp_path)
    storage.save(Timeline(run={"command": ["other"]}), tmp_path)
    loaded = storage.load(tmp_path)
    assert loaded.spans.is_empty()
    assert loaded.run == {"command": ["other"]}


def test_an_empty_timeline_can_be_saved(tmp_path) -> None:
    storage.save(Timeline(), tmp_path)
    assert storage.load(tmp_path).tracks.is_empty()


def test_a_newer_format_is_refused_with_what_to_do(timeline: Timeline, tmp_path) -> None:
    storage.save(timeline, tmp_path)
    index = tmp_path / storage.INDEX
    index.write_text(json.dumps({**json.loads(index.read_text()), "format": storage.FORMAT + 1}))
    with pytest.raises(PerfwrapError, match="newer perfwrap") as error:
        storage.load(tmp_path)
    assert "Upgrade" in error.value.hint


def test_a_folder_without_a_timeline_is_named(tmp_path) -> None:
    with pytest.raises(PerfwrapError, match="contains no saved timeline"):
        storage.load(tmp_path)


@pytest.mark.parametrize("name", ["spans.parquet", storage.INDEX])
def test_a_damaged_file_is_an_error_that_the_user_can_mend(timeline: Timeline, tmp_path, name: str) -> None:
    storage.save(timeline, tmp_path)
    (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(PerfwrapError) as error:
        storage.load(tmp_path)
    assert "rebuilds it" in error.value.hint


def test_a_save_that_was_interrupted_is_no_saved_timeline(timeline: Timeline, tmp_path) -> None:
    storage.save(timeline, tmp_path)
    (tmp_path / storage.INDEX).unlink()
    with pytest.raises(PerfwrapError, match="contains no saved timeline"):
        storage.load(tmp_path)


def test_a_small_file_with_far_too_many_rows_is_refused(tmp_path: Path) -> None:
    storage.save(Timeline(), tmp_path)
    rows = FREE_ROWS + 1
    pl.DataFrame({"id": pl.zeros(rows, dtype=pl.Int8, eager=True)}).write_parquet(tmp_path / "tracks.parquet")
    assert (tmp_path / "tracks.parquet").stat().st_size * MAX_ROWS_PER_BYTE < rows
    with pytest.raises(PerfwrapError, match="decompresses to far more data"):
        storage.load(tmp_path)


def test_step_tables_name_files_beside_them_only(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.parquet"
    pl.DataFrame({"step": [1]}).write_parquet(elsewhere)
    folder = tmp_path / "steps"
    folder.mkdir()
    known = dict.fromkeys(step_tables.Summary.__struct_fields__)
    for name in (str(elsewhere), "../elsewhere.parquet"):
        index = {"format": step_tables.FORMAT, "trainers": [{**known, "file": name}]}
        (folder / step_tables.INDEX).write_text(json.dumps(index))
        assert step_tables.read(folder) is None
