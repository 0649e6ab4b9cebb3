"""Folders of several machines become one run: in any order the same, with nothing lost and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from perfwrap.commands.merge import merge
from perfwrap.commands.run_report import diagnosed
from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals.run_journals import read

MS = 1_000_000


def content(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def machine(
    make_run: Callable[[], Any],
    number: int,
    job: str | None = "it",
    clock: str = "",
    later: int = 0,
    up: int = 10**9,
) -> Path:
    """Return the folder that one machine of a job wrote; all call themselves the same."""
    run = make_run()
    start = {"monotonic_ns": up + number, "wall_ns": 10**18 + number}
    manifest: dict[str, Any] = {
        "command": ["python", "train.py"],
        "host": {"name": "worker", "clock": clock or f"boot {number}"},
        "start": start,
        "end": {"monotonic_ns": up + 8 * 10**9, "wall_ns": 10**18 + 8 * 10**9},
        "exit": {"code": 0},
    }
    if job is not None:
        manifest["part"] = {"job": job, "rank": number, "size": 3, "leads": number == 0}
    run.folder.write_manifest(manifest)
    journal = run.journal(
        pid=100, host="worker", opened=up, wall=10**18 + later, rank=number, distributed_backend="gloo"
    )
    journal.fact("parallel/1/kind", "DistributedDataParallel")
    for _ in range(30):
        journal.step()
    journal.write()
    run.start(100, host="worker", monotonic_ns=up - 5)
    return Path(run.folder.path)


def test_any_order_gives_the_same_run_and_the_folders_stay_as_they_were(
    make_run: Callable[[], Any], tmp_path: Path
) -> None:
    folders = [machine(make_run, number) for number in range(3)]
    before = [content(folder) for folder in folders]
    made = []
    for number, order in enumerate(permutations(folders)):
        merge(list(order), tmp_path / f"merged{number}")
        made.append(content(tmp_path / f"merged{number}"))
    assert all(each == made[0] for each in made)
    assert [content(folder) for folder in folders] == before
    kept = {name: data for files in before for name, data in files.items() if name.startswith("journal/")}
    assert {data for name, data in made[0].items() if name.endswith(".pwj")} >= set(kept.values())
    # Merged runs can be merged again, and what is given twice counts once.
    merge([tmp_path / "merged0", folders[1]], tmp_path / "again")
    assert content(tmp_path / "again") == made[0]


def test_machines_of_one_name_are_different_hosts_in_the_report(
    make_run: Callable[[], Any], tmp_path: Path
) -> None:
    merge([machine(make_run, number) for number in range(3)], tmp_path / "all")
    ranks = diagnosed(tmp_path / "all").ranks
    assert [(rank.rank, rank.host, rank.steps) for rank in ranks] == [
        (0, "worker", 30),
        (1, "worker (2)", 30),
        (2, "worker (3)", 30),
    ]


def test_the_run_is_on_the_clock_of_the_leading_launcher(make_run: Callable[[], Any], tmp_path: Path) -> None:
    # Another machine, which has been up for longer, was there first.
    leader, other = machine(make_run, 0), machine(make_run, 1, later=-MS, up=5_000 * 10**9)
    merge([leader, other], tmp_path / "all")
    timeline = read(RunFolder(tmp_path / "all"))
    begin, end = (timeline.run[name]["monotonic_ns"] for name in ("start", "end"))
    moments = timeline.spans.select(
        pl.col("start").min(), (pl.col("start") + pl.col("duration")).max().alias("end")
    )
    assert begin - 2 * MS <= moments["start"][0] <= moments["end"][0] <= end


def test_containers_of_one_machine_share_its_clock(make_run: Callable[[], Any], tmp_path: Path) -> None:
    merge([machine(make_run, number, clock="same") for number in range(2)], tmp_path / "all")
    found = diagnosed(tmp_path / "all")
    assert {rank.host for rank in found.ranks} == {"worker"}
    assert not any("clocks" in warning for warning in found.warnings)


def test_different_runs_are_refused_unless_that_is_requested(
    make_run: Callable[[], Any], tmp_path: Path
) -> None:
    one, other, alone = machine(make_run, 0), machine(make_run, 1, "other"), machine(make_run, 2, None)
    with pytest.raises(PerfwrapError, match="different jobs: .* is of it; .* is of other"):
        merge([one, other], tmp_path / "all")
    with pytest.raises(PerfwrapError, match="job of these runs is unknown"):
        merge([alone, machine(make_run, 1, None)], tmp_path / "all")
    with pytest.raises(PerfwrapError, match="is not a run folder"):
        merge([one, tmp_path], tmp_path / "all")
    assert not (tmp_path / "all").exists()
    merge([one, other, alone], tmp_path / "all", any_job=True)
    assert len(RunFolder(tmp_path / "all").parts()) == 3
    with pytest.raises(PerfwrapError, match="is not empty"):
        merge([one], tmp_path / "all")
