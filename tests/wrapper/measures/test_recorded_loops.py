"""Loops of every kind, recorded by the real recorder: as many steps are found as the script says it took."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from perfwrap.measures.account import Account
from perfwrap.measures.evidence import Evidence
from perfwrap.run_folder import RunFolder
from perfwrap.sources import journal

LOOPS = Path(__file__).resolve().parents[2] / "samples" / "loops"

pytestmark = pytest.mark.torch
pytest.importorskip("torch", reason="the loops train with PyTorch")


class Recorded(NamedTuple):
    """One recorded loop: what its script said, and what was read."""

    name: str
    said: dict[str, int]
    evidence: Evidence


@pytest.fixture(scope="module", params=sorted(path.stem for path in LOOPS.glob("*.py")))
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Each script of the loops, recorded once."""
    out = tmp_path_factory.mktemp("loop") / request.param
    command = [
        sys.executable,
        "-m",
        "perfwrap",
        "run",
        "--no-monitors",
        "--no-report",
        "--out",
        str(out),
        "--",
    ]
    answer = subprocess.run(
        [*command, sys.executable, str(LOOPS / f"{request.param}.py")],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    said = {name: int(number) for name, number in (line.split() for line in answer.stdout.splitlines())}
    return Recorded(request.param, said, Evidence(journal.read(RunFolder(out))))


def test_as_many_steps_are_found_as_the_script_took(recorded: Recorded) -> None:
    found = [recorded.evidence.steps(trainer).count for trainer in recorded.evidence.trainers]
    assert found == [recorded.said["steps"]] * recorded.said.get("trainers", 1)


def test_steps_follow_each_other_without_a_gap(recorded: Recorded) -> None:
    for trainer in recorded.evidence.trainers:
        table = recorded.evidence.steps(trainer).table
        assert table["start"][1:].to_list() == table["end"][:-1].to_list()
        assert (table["duration"] > 0).all()
        assert (table["end"] - table["start"]).to_list() == table["duration"].to_list()


def test_the_account_tiles_the_loop_to_the_nanosecond(recorded: Recorded) -> None:
    for trainer in recorded.evidence.trainers:
        account: Account = recorded.evidence.account(trainer)
        segments = account.segments
        pieces = sorted([*segments.select("start", "end").iter_rows(), *account.holes])
        assert pieces[0][0] == account.start
        assert pieces[-1][1] == account.end
        assert [start for start, _ in pieces[1:]] == [end for _, end in pieces[:-1]]
        assert (segments["end"] > segments["start"]).all()
        assert sum(account.ns.values()) == account.total_ns > 0


def test_validations_are_told_from_training(recorded: Recorded) -> None:
    if "validations" not in recorded.said:
        pytest.skip("the script says nothing about validations")
    trainer = recorded.evidence.trainers[0]
    assert recorded.evidence.validation(trainer).count == recorded.said["validations"]


def test_epochs_are_counted(recorded: Recorded) -> None:
    if "epochs" not in recorded.said:
        pytest.skip("the script says nothing about epochs")
    steps = recorded.evidence.steps(recorded.evidence.trainers[0]).table
    assert steps["epoch"].n_unique() == recorded.said["epochs"]
    assert steps["epoch"].is_sorted()


def test_every_figure_can_be_worked_out(recorded: Recorded) -> None:
    evidence = recorded.evidence
    for trainer in evidence.trainers:
        loaders = evidence.loaders(trainer)
        gaps = evidence.python_gaps(trainer)
        assert sum(gap.total_ns for gap in gaps) == evidence.account(trainer).ns["python"]
        assert (
            sum(line.blocked_ns for line in evidence.syncs(trainer)) == evidence.account(trainer).ns["sync"]
        )
        assert all(loader.created is not None for loader in loaders)
        start = evidence.start_up(trainer)
        assert start is not None
        assert sum(start.parts.values()) == start.total_ns
        assert evidence.garbage(trainer).pause_ns == evidence.account(trainer).ns["gc"]
        assert evidence.own_cost(trainer).records > 0
        assert evidence.slow_steps(trainer) is not None
        assert evidence.missing("steps") is None


def test_nothing_was_lost(recorded: Recorded) -> None:
    timeline = recorded.evidence.timeline
    assert timeline.warnings == ()
    assert timeline.coverage["lost"].fill_null(0).sum() == 0
    assert timeline.tracks.filter(pl.col("kind") == "process").height >= 1


@pytest.mark.parametrize("recorded", ["get_batch"], indirect=True)
def test_batches_that_no_loader_makes_are_the_programs_python_before_the_line_that_uses_them(
    recorded,
) -> None:
    (trainer,) = recorded.evidence.trainers
    assert recorded.evidence.loaders(trainer) == ()
    account = recorded.evidence.account(trainer)
    assert account.ns["data"] == 0
    gap = recorded.evidence.python_gaps(trainer)[0]
    lines = (LOOPS / "get_batch.py").read_text().splitlines()
    read, used = (
        1 + next(number for number, line in enumerate(lines) if text in line)
        for text in ("starts.tolist()", "loss = model(batch)")
    )
    assert gap.after is not None
    found = Path(gap.after.file).name, gap.after.line, gap.after.function, gap.until_line
    assert found == ("get_batch.py", read, "get_batch", used)
    assert gap.share > 0.3


@pytest.mark.parametrize("recorded", ["workers_collate"], indirect=True)
def test_what_workers_do_is_told_by_what_was_recorded_in_them(recorded) -> None:
    (trainer,) = recorded.evidence.trainers
    (loader,) = recorded.evidence.loaders(trainer)
    making = loader.making
    assert making is not None
    assert (loader.fetch_basis, loader.fetch_ns) == ("measured in the workers", making.fetch_ns)
    assert making.collate_ns > making.getitem_ns > 0
    assert making.getitem_ns + making.collate_ns <= making.fetch_ns
    assert (making.collate, making.getitem) == ("__main__.collate", "__main__.Samples.__getitem__")
    assert making.collate_line is not None
    assert Path(making.collate_line.file).name == "workers_collate.py"
    assert (making.workers_seen, making.batch_bytes) == (2, 4 * (8 * 4 + 8))
    assert 0 < making.idle_share < 1
    assert making.worker_start_ns > 0
    assert 0 <= loader.ready.depth <= 4
