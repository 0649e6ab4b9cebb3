"""A run of many launchers is read by its step tables, and a few of its ranks in full."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.analysis import joined_runs as joined
from perfwrap.analysis.joined_runs import condense, end_part
from perfwrap.commands.report import report
from perfwrap.commands.run_report import show
from perfwrap.run_folder import PARTS, RunFolder

MS = 1_000_000
RANKS = 7
LATE = 5


@pytest.fixture
def run(make_run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunFolder:
    """A run of seven launchers of one rank each, which counts as large."""
    monkeypatch.setattr(joined, "MAX_PARTS", 3)
    whole = RunFolder(tmp_path / "whole")
    (whole.path / PARTS).mkdir(parents=True)
    whole.write_manifest({"job": {"id": "it"}, "command": ["train.py"]})
    for rank in range(RANKS):
        one = make_run()
        one.folder.write_manifest(
            {
                "command": ["train.py"],
                "part": {"job": "it", "rank": rank, "leads": rank == 0},
                "host": {"name": f"node{rank}", "clock": "same"},
                "start": {"monotonic_ns": 10**9, "wall_ns": 10**18},
                "end": None if rank == 3 else {"monotonic_ns": 2 * 10**9, "wall_ns": 10**18 + 10**9},
                "exit": {"code": 0} if rank != 2 else {"signal": 9},
            }
        )
        journal = one.journal(host=f"node{rank}", opened=10**9, wall=10**18, rank=rank)
        for _ in range(40):
            journal.data((6 if rank == LATE else 1) * MS)
            journal.forward(2 * MS)
            journal.backward((2 if rank == LATE else 7) * MS)
            journal.optimizer(MS)
        journal.write()
        one.folder.path.rename(whole.path / PARTS / f"node{rank}")
    return whole


def test_all_ranks_are_reported_and_the_late_one_is_among_those_analysed(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    report(run.path, format="json")
    document = json.loads(capsys.readouterr().out)
    assert [rank["rank"] for rank in document["ranks"]] == list(range(RANKS))
    # Not all of them were read in full: the late one was, and what was found there is its own waits.
    late = [finding for finding in document["findings"] if finding["rule"] == "data_loader_wait"]
    assert late and "rank 5" in " ".join(late[0]["evidence"])
    warnings = " ".join(document["warnings"])
    assert f"of {RANKS} ranks" in warnings
    assert "have not recorded their end (node3)" in warnings
    assert document["run"]["exit"] == {"signal": 9}
    show(run.path, html=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert "7 ranks on 7 hosts" in shown
    assert "rank 5 (node5): 9 ms, slowest in 100 % of the steps; 5 ms more in data than the median" in shown
    assert run.report.stat().st_size > 0


def test_without_recordings_the_tables_speak_for_the_ranks(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in run.parts():
        condense(part)
        for journal in part.journal.iterdir():
            journal.unlink()
    report(run.path, format="json")
    document = json.loads(capsys.readouterr().out)
    assert (
        document["verdict"]["id"] == "unknown" and "only the step tables" in document["verdict"]["sentence"]
    )
    assert len(document["ranks"]) == RANKS and document["steps"]["steady"] > 20


def test_one_launcher_of_all_shows_the_report_and_each_condenses_its_own(run: RunFolder) -> None:
    shown = [end_part(part.path) for part in run.parts()]
    assert shown == [run.path] + [None] * (RANKS - 1)
    assert all((part.steps / "steps.json").exists() for part in run.parts())
    assert not run.steps.exists()
