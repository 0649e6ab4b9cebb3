"""Loops of every kind, recorded by the real recorder: as many steps are found as the script says it took."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.garbage import find_garbage
from perfwrap.measures.loop.python_gaps import find_python_gaps
from perfwrap.measures.loop.syncs import find_syncs
from perfwrap.measures.recorder.own_cost import find_own_cost
from perfwrap.measures.run.start_up import find_start_up
from perfwrap.measures.steps.slow_steps import find_slow_steps
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.steps.validation import find_validation
from perfwrap.measures.trainers import find_trainers
from perfwrap.rules.needs import why_missing
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

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
    return Recorded(request.param, said, Evidence(run_journals.read(RunFolder(out))))


def test_as_many_steps_are_found_as_the_script_took(recorded: Recorded) -> None:
    found = [
        recorded.evidence.get(find_steps, trainer).count for trainer in recorded.evidence.get(find_trainers)
    ]
    assert found == [recorded.said["steps"]] * recorded.said.get("trainers", 1)


def test_steps_follow_each_other_without_a_gap(recorded: Recorded) -> None:
    for trainer in recorded.evidence.get(find_trainers):
        table = recorded.evidence.get(find_steps, trainer).table
        assert table["start"][1:].to_list() == table["end"][:-1].to_list()
        assert (table["duration"] > 0).all()
        assert (table["end"] - table["start"]).to_list() == table["duration"].to_list()


def test_the_account_tiles_the_loop_to_the_nanosecond(recorded: Recorded) -> None:
    for trainer in recorded.evidence.get(find_trainers):
        account: Account = recorded.evidence.get(find_account, trainer)
        segments = account.segments
        pieces = sorted([*segments.select("start", "end").iter_rows(), *account.holes])
        assert pieces[0][0] == account.start
        assert pieces[-1][1] == account.end
        assert [start for start, _ in pieces[1:]] == [end for _, end in pieces[:-1]]
        assert (segments["end"] > segments["start"]).all()
        assert sum(account.ns.values()) == account.total_ns > 0


def test_validations_are_distinguished_from_training(recorded: Recorded) -> None:
    if "validations" not in recorded.said:
        pytest.skip("the script says nothing about validations")
    trainer = recorded.evidence.get(find_trainers)[0]
    assert recorded.evidence.get(find_validation, trainer).count == recorded.said["validations"]


def test_epochs_are_counted(recorded: Recorded) -> None:
    if "epochs" not in recorded.said:
        pytest.skip("the script says nothing about epochs")
    steps = recorded.evidence.get(find_steps, recorded.evidence.get(find_trainers)[0]).table
    assert steps["epoch"].n_unique() == recorded.said["epochs"]
    assert steps["epoch"].is_sorted()


def test_every_figure_can_be_worked_out(recorded: Recorded) -> None:
    evidence = recorded.evidence
    for trainer in evidence.get(find_trainers):
        loaders = evidence.get(find_loaders, trainer)
        gaps = evidence.get(find_python_gaps, trainer)
        assert sum(gap.total_ns for gap in gaps) == evidence.get(find_account, trainer).ns["python"]
        account, syncs = evidence.get(find_account, trainer), evidence.get(find_syncs, trainer)
        assert sum(line.blocked_ns for line in syncs) == account.ns["sync"]
        assert all(loader.created is not None for loader in loaders)
        start = evidence.get(find_start_up, trainer)
        assert start is not None
        assert sum(start.parts.values()) == start.total_ns
        assert evidence.get(find_garbage, trainer).pause_ns == evidence.get(find_account, trainer).ns["gc"]
        assert evidence.get(find_own_cost, trainer).records > 0
        assert evidence.get(find_slow_steps, trainer) is not None
        assert evidence.get(why_missing, "steps") is None


def test_nothing_was_lost(recorded: Recorded) -> None:
    timeline = recorded.evidence.timeline
    assert timeline.warnings == ()
    assert timeline.coverage["lost"].fill_null(0).sum() == 0
    assert timeline.tracks.filter(pl.col("kind") == "process").height >= 1


@pytest.mark.parametrize("recorded", ["get_batch"], indirect=True)
def test_batches_that_no_loader_makes_are_the_programs_python_before_the_line_that_uses_them(
    recorded,
) -> None:
    (trainer,) = recorded.evidence.get(find_trainers)
    assert recorded.evidence.get(find_loaders, trainer) == ()
    account = recorded.evidence.get(find_account, trainer)
    assert account.ns["data"] == 0
    gap = recorded.evidence.get(find_python_gaps, trainer)[0]
    lines = (LOOPS / "get_batch.py").read_text().splitlines()
    read, used = (
        1 + next(number for number, line in enumerate(lines) if text in line)
        for text in ("starts.tolist()", "loss = model(batch)")
    )
    assert gap.after is not None
    found = Path(gap.after.file).name, gap.after.line, gap.after.function, gap.until_line
    assert found == ("get_batch.py", read, "get_batch", used)
    assert gap.share > 0.15


@pytest.mark.parametrize("recorded", ["workers_collate"], indirect=True)
def test_what_workers_do_is_known_from_what_was_recorded_in_them(recorded) -> None:
    (trainer,) = recorded.evidence.get(find_trainers)
    (loader,) = recorded.evidence.get(find_loaders, trainer)
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
