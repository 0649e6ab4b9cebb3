"""Which Pythons get an explanation, and when."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors.monitor_journal import start_ticks
from perfwrap.monitors.processes import processes, unreached
from perfwrap.monitors.processes.process_tree import StartRecords
from perfwrap.monitors.processes.unreached import GRACE_NS, UnreachedPythons


@pytest.fixture
def pythons(book: Any, tmp_path: Path) -> UnreachedPythons:
    (tmp_path / "starts").mkdir()
    records = StartRecords(tmp_path / "starts")
    return UnreachedPythons(book.writer, records, "/hook", lambda pid, hook: f"{pid} at {hook}")


def reach(pythons: UnreachedPythons, tmp_path: Path, pid: int, ticks: int) -> None:
    with open(tmp_path / "starts" / "node.log", "a") as file:
        file.write(f"start\t{pid}\t1\t{ticks}\t5\t3.11\tsitecustomize\ttrain.py\n")
    pythons._starts.follow()


def test_a_python_that_stays_unreached_is_explained_after_the_time_of_grace(
    pythons: UnreachedPythons, book: Any
) -> None:
    pythons.expect(0, 7, 70)
    pythons.look(GRACE_NS - 1, {(7, 70): False})
    assert book.read().coverage == []
    pythons.look(GRACE_NS, {(7, 70): False})
    pythons.look(GRACE_NS + 1, {(7, 70): False})
    content = book.read()
    assert content.notes("process/7") == ["7 at /hook"]
    assert content.coverage[0][2] == 1, "the process was not watched from within"


def test_a_reached_python_needs_no_explanation(pythons: UnreachedPythons, book: Any, tmp_path: Path) -> None:
    pythons.expect(0, 7, 70)
    pythons.look(1, {(7, 70): False})
    reach(pythons, tmp_path, 7, 70)
    pythons.look(GRACE_NS, {(7, 70): False})
    assert book.read().coverage == []


def test_a_python_that_ended_soon_is_explained_by_what_was_seen_of_it(
    pythons: UnreachedPythons, book: Any
) -> None:
    pythons.expect(0, 7, 70)
    pythons.look(1, {(7, 70): False})
    pythons.expect(1, 8, 80)
    pythons.look(2, {})
    assert book.read().notes("process/7") == ["7 at /hook"]
    assert book.read().notes("process/8") == []


def test_a_namesake_that_was_reached_before_explains_nothing(
    pythons: UnreachedPythons, book: Any, tmp_path: Path
) -> None:
    reach(pythons, tmp_path, 7, 60)
    pythons.expect(0, 7, 70)
    pythons.look(GRACE_NS, {(7, 70): False})
    assert book.read().notes("process/7") == ["7 at /hook"]


def test_a_process_that_only_forked_is_not_asked_until_it_executes(
    pythons: UnreachedPythons, book: Any
) -> None:
    pythons.expect(0, 7, 70)
    pythons.look(10 * GRACE_NS, {(7, 70): True})
    assert book.read().coverage == []
    pythons.look(11 * GRACE_NS, {(7, 70): False})
    assert book.read().notes("process/7") == ["7 at /hook"]


def test_endless_explanations_are_counted_instead(
    pythons: UnreachedPythons, book: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreached, "MAX_EXPLANATIONS", 2)
    for pid in range(5):
        pythons.expect(0, pid + 10, 1)
    pythons.look(GRACE_NS, {(pid + 10, 1): False for pid in range(5)})
    content = book.read()
    assert len(content.coverage) == 2
    assert len(content.lost) == 3


def test_a_real_isolated_python_is_explained(book: Any, run_python: Any, tmp_path: Path) -> None:
    for name in ("starts", "inject"):
        (tmp_path / name).mkdir()
    isolated = run_python("import sys; print(1, flush=True); sys.stdin.read()", "-I")
    other = run_python("import sys; print(1, flush=True); sys.stdin.read()")
    for process in (isolated, other):
        process.stdout.readline()
    (tmp_path / "starts" / "node.log").write_text(
        f"start\t{other.pid}\t1\t{start_ticks(other.pid)}\t5\t3.11\tsitecustomize\tx\n"
    )
    roots = deque([isolated.pid, other.pid])
    monitor = processes.watch(book.writer, tmp_path / "starts", str(tmp_path / "inject"), roots)
    monitor.quick(0)
    monitor.full(0)
    monitor.full(GRACE_NS)
    monitor.close()
    content = book.read()
    (why,) = content.notes(f"process/{isolated.pid}")
    assert "-I" in why
    assert content.notes(f"process/{other.pid}") == []
    assert sys.executable in content.facts[f"process/{other.pid}/cmdline"]
