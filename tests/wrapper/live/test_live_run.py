from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.live.live_run import MAX_OF_ONE, LiveRun
from perfwrap.live.state import PATIENCE_NS, judge
from perfwrap.live.view import look
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.steps import find_steps

US = 1_000


def own_ticks() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def write_steps(journal: Any, steps: int, epoch: int = 50) -> None:
    """Write steps of 100 us."""
    journal.now = max(journal.now, 1_000)
    for number in range(steps):
        if number % epoch == 0:
            journal.span("loader_start", 5 * US, "loader/1")
        journal.data(10 * US)
        journal.forward(30 * US)
        journal.backward(40 * US)
        journal.optimizer(20 * US)


def begin(run: Any, **manifest: Any) -> LiveRun:
    for journal in run.journals:
        journal.write()
    host = {"name": os.uname().nodename}
    run.folder.write_manifest({"command": ["python", "train.py"], "exit": None, "host": host, **manifest})
    live = LiveRun(run.folder)
    live.refresh()
    return live


def test_the_figures_of_a_short_run_are_those_of_its_report(run: Any) -> None:
    write_steps(run.journal(rank=0), 400)
    live = begin(run)
    evidence = Evidence(live.timeline())
    view = look(evidence, live, whole=live.begin == 0)
    whole = Evidence(run.read())
    assert whole.get(find_main_trainer) is not None
    assert view.recent_steps is None
    assert view.median_ns == whole.get(find_steps, whole.get(find_main_trainer)).median_ns
    assert view.account == whole.get(find_account, whole.get(find_main_trainer)).ns
    assert view.progress.steps == 400
    assert (view.progress.epoch, view.progress.batch, view.progress.batches) == (8, 50, 50)


def test_of_a_long_run_the_recent_steps_are_shown_and_all_are_counted(run: Any) -> None:
    write_steps(run.journal(rank=0), MAX_OF_ONE)
    live = begin(run)
    view = look(Evidence(live.timeline()), live, whole=live.begin == 0)
    assert view.recent_steps is not None
    assert view.recent_steps < MAX_OF_ONE / 2
    assert view.progress.steps == MAX_OF_ONE
    assert view.progress.epoch == MAX_OF_ONE / 50
    shares = {part: value / sum(view.account.values()) for part, value in view.account.items()}
    assert shares["backward"] == pytest.approx(0.4, abs=0.01)
    assert shares["data"] == pytest.approx(0.1, abs=0.01)


def test_several_ranks_are_shown_beside_each_other(run: Any) -> None:
    for rank in range(3):
        write_steps(run.journal(pid=100 + rank, rank=rank), 60)
    live = begin(run)
    view = look(Evidence(live.timeline()), live, whole=True)
    assert [(name, steps) for name, steps, _ in view.trainers] == [(f"rank {rank}", 60) for rank in range(3)]


def test_a_journal_that_cannot_be_read_costs_only_itself(run: Any) -> None:
    write_steps(run.journal(rank=0), 60)
    (run.folder.journal / "here-9-7-0.pwj").write_bytes(b"no journal" * 10)
    live = begin(run)
    view = look(Evidence(live.timeline()), live, whole=True)
    assert view.progress.steps == 60
    assert any("here-9-7-0.pwj" in text for text in view.problems)


def test_a_run_is_starting_before_there_is_a_journal_and_running_while_one_grows(run: Any) -> None:
    live = begin(run)
    assert live.state.word == "starting"
    journal = run.journal(pid=os.getpid(), ticks=own_ticks())
    write_steps(journal, 5)
    journal.write()
    live.refresh()
    assert live.state.word == "running"
    assert look(Evidence(live.timeline()), live, whole=True).problems == ()


def test_a_process_that_is_gone_is_reported_as_ended_without_goodbye(run: Any) -> None:
    write_steps(run.journal(pid=2**22 + 5), 5)
    live = begin(run)
    assert "ended without closing its journal" in " ".join(
        look(Evidence(live.timeline()), live, whole=True).problems
    )


def test_the_manifest_says_that_a_run_has_ended(run: Any) -> None:
    write_steps(run.journal(), 5)
    assert begin(run, exit={"code": 3}).state.word == "ended"


def test_a_folder_that_is_deleted_during_the_view_ends_the_view(run: Any) -> None:
    write_steps(run.journal(), 5)
    live = begin(run)
    shutil.rmtree(run.folder.path)
    live.refresh()
    assert live.state.word == "deleted"
    assert live.state.over


def test_a_journal_that_is_deleted_during_the_view_costs_only_itself(run: Any) -> None:
    write_steps(run.journal(rank=0), 60)
    other = run.journal(pid=200, rank=1)
    write_steps(other, 60)
    live = begin(run)
    other.path.unlink()
    live.refresh()
    assert live.state.word == "running"


@pytest.mark.parametrize(
    ("living", "quiet", "word"),
    [
        (True, 100 * PATIENCE_NS, "running"),
        (False, 0, "running"),
        (False, 2 * PATIENCE_NS, "lost"),
        (None, 0, "running"),
        (None, 2 * PATIENCE_NS, "quiet"),
    ],
)
def test_only_a_silent_run_without_living_processes_is_given_up(
    living: bool | None, quiet: int, word: str
) -> None:
    assert judge({"exit": None}, quiet, True, living).word == word


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    from perfwrap.run_folder import RunFolder

    with pytest.raises(PerfwrapError):
        LiveRun(RunFolder(tmp_path))


def test_the_whole_run_divides_while_it_is_known_and_what_follows_is_not_divided(run: Any) -> None:
    journal = run.journal(rank=0)
    write_steps(journal, 400)
    start = {"monotonic_ns": 0, "wall_ns": 1}
    live = begin(run, start=start)
    view = look(Evidence(live.timeline()), live, whole=True)
    assert view.run_so_far is not None
    assert "steady loop" in view.run_so_far.parts
    assert not {"exit", "after the loop"} & set(view.run_so_far.parts)
    assert sum(view.run_so_far.parts.values()) == view.run_so_far.end
    later = look(Evidence(live.timeline()), live, whole=False, earlier=view.run_so_far.until(10**9))
    assert later.run_so_far is not None
    assert later.run_so_far.parts["since then"] == 10**9 - view.run_so_far.end
    assert sum(later.run_so_far.parts.values()) == later.run_so_far.end == 10**9


def test_the_costliest_lines_share_the_loop_without_overlap(run: Any) -> None:
    journal = run.journal(rank=0)
    for _ in range(100):
        journal.data(60 * US, line="train.py:3:main")
        journal.forward(30 * US)
        journal.span("optimizer", 10 * US, "SGD#1", line="train.py:7:main")
    live = begin(run)
    lines = look(Evidence(live.timeline()), live, whole=True).lines
    first = lines[0]
    assert (first.line.file, first.line.line, first.part) == ("train.py", 3, "data")
    assert first.share == pytest.approx(0.6, abs=0.02)
    assert sum(line.share for line in lines) <= 1.0
