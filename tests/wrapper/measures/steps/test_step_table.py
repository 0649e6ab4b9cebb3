"""Step tables hold each nanosecond of the account, and are read the same by others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from perfwrap.analysis.joined_runs import condense
from perfwrap.errors import PerfwrapError
from perfwrap.measures.account import parts
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.fleet import find_fleet
from perfwrap.measures.trainers import find_trainers
from perfwrap.timeline import step_tables

REPOSITORY = Path(__file__).resolve().parents[4]
MS = 1_000_000


def write_rank(run: Any, number: int, data_ms: int = 1) -> None:
    journal = run.journal(pid=100 + number, rank=number, opened=10**9, wall=10**18)
    for _ in range(40):
        journal.data(data_ms * MS)
        journal.forward(2 * MS)
        journal.backward((8 - data_ms) * MS)
        journal.optimizer(MS)


def test_a_table_has_every_step_and_its_parts_sum_to_its_length(make_run: Callable[[], Any]) -> None:
    run = make_run()
    write_rank(run, 0)
    write_rank(run, 1, 4)
    timeline = run.read()
    tables = condense(run.folder)
    assert step_tables.PARTS == parts.PARTS
    assert [table.summary.rank for table in tables] == [0, 1]
    for table, trainer in zip(tables, Evidence(timeline).get(find_trainers), strict=True):
        rows = table.scan().collect()
        assert dict(rows.schema) == step_tables.COLUMNS
        assert rows["step"].to_list() == list(range(table.summary.steps))
        steady = rows.filter("steady", "detailed")
        whole = steady.select(pl.sum_horizontal(*(f"{part}_ns" for part in parts.PARTS)))
        assert whole.to_series().to_list() == steady["duration_ns"].to_list()
        assert table.summary.account_ns == Evidence(timeline).get(find_account, trainer).ns
        # The first step begins a little after the journal was opened, on the wall clock.
        assert 0 <= rows["start_ns"][0] - 10**18 < 10 * MS
    assert rows.filter("steady")["own_ns"].to_list() == [7 * MS] * rows["steady"].sum()


def test_what_is_not_whole_or_newer_is_not_read(make_run: Callable[[], Any]) -> None:
    run = make_run()
    write_rank(run, 0)
    run.read()
    assert step_tables.read(run.folder.steps) is None
    condense(run.folder)
    index = run.folder.steps / step_tables.INDEX
    index.write_text(index.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(PerfwrapError, match="newer perfwrap"):
        step_tables.read(run.folder.steps)
    index.write_text("{")
    assert step_tables.read(run.folder.steps) is None


def test_the_rank_with_most_work_of_its_own_is_found(make_run: Callable[[], Any]) -> None:
    run = make_run()
    for number, data_ms in enumerate((1, 1, 4, 1)):
        write_rank(run, number, data_ms)
    run.read()
    fleet = find_fleet(condense(run.folder))
    assert fleet.late is not None and fleet.late.summary.rank == 2
    assert fleet.late.slowest_share == 1.0
    assert next(iter(fleet.more(fleet.late).items())) == ("data", 3 * MS)
    assert fleet.lost_ns == pytest.approx(3 * MS * 3 / 4)


def test_the_queries_of_the_documentation_run(make_run: Callable[[], Any], tmp_path: Path) -> None:
    run = make_run()
    write_rank(run, 0)
    write_rank(run, 1, 4)
    run.read()
    condense(run.folder)
    text = (REPOSITORY / "docs" / "run-folder.md").read_text(encoding="utf-8")
    queries = [block.split("```")[0] for block in text.split("```sql\n")[1:]]
    assert len(queries) >= 3
    steps = pl.scan_parquet(run.folder.steps / "*.parquet")
    for query in queries:
        assert pl.SQLContext(steps=steps).execute(query, eager=True).height > 0
    for column in step_tables.COLUMNS:
        name = column if column.removesuffix("_ns") not in parts.PARTS else "<part>_ns"
        assert f"`{name}`" in text, column
