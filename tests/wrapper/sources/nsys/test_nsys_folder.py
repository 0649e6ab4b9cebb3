"""An nsys export to a folder of Parquet files is the same recording as one to SQLite; other formats are refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.sources import files
from perfwrap.sources.nsys import nsys_export, nsys_folder
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

from .test_nsys_export import Export, read, thread

UNSIGNED = (
    "globalTid",
    "globalPid",
    "nameId",
    "contextId",
    "streamId",
    "bytes",
    "copyKind",
    "domainId",
    "pid",
)
"""Columns that nsys 2023.4 writes as unsigned integers."""


def as_folder(export: Path) -> Path:
    """Write the tables of an SQLite export as nsys exports them to Parquet, and return the folder."""
    folder = export.with_name(f"{export.stem}_pqtdir")
    folder.mkdir()
    connection = sqlite3.connect(export)
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        found = connection.execute(f'SELECT * FROM "{table}"')
        columns = [column[0] for column in found.description]
        declared = {row[1]: row[2] for row in connection.execute(f'PRAGMA table_info("{table}")')}
        kinds = {"TEXT": pl.String(), "INTEGER": pl.Int64()}
        schema = {
            name: pl.UInt64() if name in UNSIGNED else kinds[declared[name].split()[0]] for name in columns
        }
        rows = pl.DataFrame(found.fetchall(), schema=schema, orient="row")
        rows.write_parquet(folder / f"{table}.parquet")
    connection.close()
    return folder


@pytest.fixture
def export(tmp_path: Path) -> Export:
    """Return an export with events of every table that is read."""
    export = Export(tmp_path / "report.sqlite")
    domain = export.text("NCCL")
    export.nvtx(0, None, None, eventType=75, textId=domain, domainId=3)
    for number in range(6):
        at = 1_000 * number
        export.nvtx(at, at + 900, f"step {number}")
        export.nvtx(at + 10, at + 20, None, textId=export.text("ncclAllReduce"), domainId=3)
        export.nvtx(at + 30, None, "here", eventType=34)
        export.kernel(at + 200, at + 700, export.call(at + 100, at + 110))
        export.copy(at + 710, at + 720, 1, 4096)
    export.add("OSRT_API", start=5, end=9, globalTid=thread(100, 101), nameId=export.text("poll"))
    export.add("ThreadNames", nameId=export.text("loader"), priority=1, globalTid=thread(100, 101))
    export.add("PROCESSES", globalPid=thread(100, 0), pid=100, name="/usr/bin/python")
    export.add(
        "TARGET_INFO_GPU", id=0, name="A100", busLocation="0000:01:00.0", totalMemory=1 << 36, cuDevice=0
    )
    export.add("TARGET_INFO_SYSTEM_ENV", globalVid=0, name="Hostname", value="node7")
    export.add("TARGET_INFO_SYSTEM_ENV", globalVid=0, name="Environment", value="TOKEN=secret")
    export.add("ANALYSIS_DETAILS", globalVid=0, duration=7_000, startTime=0, stopTime=7_000)
    return export


def tables(timeline: Timeline, name: str) -> dict[str, pl.DataFrame]:
    """Return the tables, without the name of the file in them."""
    found = {}
    for table in ("tracks", "spans", "marks", "facts", "coverage"):
        rows: pl.DataFrame = getattr(timeline, table)
        texts = [column for column, kind in rows.schema.items() if kind in (pl.String, pl.Categorical)]
        found[table] = rows.with_columns(
            pl.col(texts).cast(pl.String).str.replace_all(name, "X", literal=True)
        )
    return found


def test_an_export_to_parquet_is_the_same_recording_as_one_to_sqlite(export: Export) -> None:
    path = export.write()
    folder = as_folder(path)
    expected, found = tables(read(path), path.name), tables(read(folder), folder.name)
    assert {name: rows.height > 0 for name, rows in expected.items()} == dict.fromkeys(expected, True)
    for name, rows in expected.items():
        assert found[name].equals(rows), name
    assert "node7" in found["tracks"]["host"]


def test_of_very_many_events_the_same_part_is_read(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    path = export.write()
    folder = as_folder(path)
    monkeypatch.setattr(nsys_export, "MAX_EVENTS", 20)
    expected, found = read(path), read(folder)
    assert 0 < expected.spans.height < 20
    assert found.spans.equals(expected.spans)
    assert "of its" in found.warnings[0]


def test_starts_are_chosen_evenly_from_a_table_that_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pl.DataFrame({"start": list(range(1_000))}).write_parquet(tmp_path / "OSRT_API.parquet")
    monkeypatch.setattr(nsys_folder, "ROWS_AT_ONCE", 64)
    folder = nsys_folder.NsysFolder(tmp_path)
    assert folder.some_starts("OSRT_API", 100) == (1_000, list(range(0, 1_000, 10)))
    assert folder.some_starts("OSRT_API", 5_000) == (1_000, list(range(1_000)))
    assert folder.some_starts("CUDNN_EVENTS", 100) == (0, [])


def test_a_folder_is_one_recording_however_it_is_given(export: Export, tmp_path: Path) -> None:
    path = export.write()
    folder = as_folder(path)
    assert files.expand([folder]) == (folder,)
    assert files.expand(sorted(folder.iterdir())) == (folder,)
    assert files.expand([tmp_path]) == (path, folder)
    timeline, found = files.read([folder], {})
    assert [(file.format, file.read) for file in found] == [("nsys", True)]
    assert timeline.spans.height > 0


def test_a_damaged_table_costs_only_its_own_rows(export: Export) -> None:
    folder = as_folder(export.write())
    for name in ("CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"):
        table = folder / f"{name}.parquet"
        table.write_bytes(table.read_bytes()[:-20])
    timeline = read(folder)
    categories = set(timeline.spans["category"].cast(pl.String))
    assert "copy" in categories and "kernel" not in categories
    damaged = [warning for warning in timeline.warnings if "is damaged" in warning]
    assert len(damaged) == 2 and "CUPTI_ACTIVITY_KIND_KERNEL cannot be read" in damaged[0]


def test_bytes_that_were_overwritten_raise_nothing_but_a_plain_error(export: Export) -> None:
    folder = as_folder(export.write())
    table = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    content = table.read_bytes()
    for place in range(0, len(content) - 16, 97):
        table.write_bytes(content[:place] + b"\xff" * 16 + content[place + 16 :])
        _, (found,) = files.read([folder], {})
        assert found.format == "nsys"


def test_a_small_file_with_very_many_rows_is_not_read(
    export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = as_folder(export.write())
    rows = pl.read_parquet(folder / "OSRT_API.parquet")
    pl.concat([rows] * 50_000).write_parquet(folder / "OSRT_API.parquet", compression="zstd")
    monkeypatch.setattr(nsys_folder, "FREE_ROWS", 1_000)
    timeline = read(folder)
    assert any("OSRT_API repeats the same rows" in warning for warning in timeline.warnings)
    assert timeline.spans.filter(pl.col("operation") == "osrt").is_empty()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.json", b'{"data":["[Unknown]","[kernel.kallsyms]"]}\n{"Type":48,"TraceProcessEvent":{}}\n'),
        ("r.jsonl", b'{"Type":79,"CudaEvent":{"startNs":"1"}}\n'),
        (
            "r.arrows",
            b"\xff\xff\xff\xff\xc0\x01\0\0" + b"table_desc\0\0*\0\0\0Texts\0table_name\0\0StringIds",
        ),
        ("r.h5", b"\x89HDF\r\n\x1a\n" + bytes(100) + b"globalPid"),
    ],
)
def test_other_formats_of_nsys_are_refused_with_the_command_that_helps(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    _, (found,) = files.read([path], {})
    assert found.format == "nsys"
    assert found.problem.endswith("nsys export --type sqlite REPORT.nsys-rep)")


def test_a_folder_of_arrow_files_is_refused_once(tmp_path: Path) -> None:
    for name in ("StringIds", "NVTX_EVENTS"):
        (tmp_path / f"{name}.arrow").write_bytes(b"\xff\xff\xff\xff")
    paths = files.expand([tmp_path])
    assert paths == (tmp_path,)
    with pytest.raises(PerfwrapError, match="format that perfwrap does not read"):
        nsys_export.add(TimelineBuilder(), paths[0])
