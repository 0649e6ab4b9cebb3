"""Which processes belong to the run, among real ones and in a made-up /proc where pids are used again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors.monitor_journal import start_ticks
from perfwrap.monitors.processes.process_tree import ProcessTree, StartRecords

FORKING = """
import os, time
child = os.fork()
if child == 0:
    grandchild = os.fork()
    if grandchild:
        os.write(1, b"%d %d\\n" % (os.getpid(), grandchild))
time.sleep(600)
"""


def put(proc: Path, pid: int, parent: int, ticks: int, state: str = "S") -> None:
    """Make a new folder of a process, as the kernel does also for a pid that was used before."""
    folder = proc / str(pid)
    if folder.exists():
        folder.rename(proc / f"was-{pid}-{os.urandom(4).hex()}")
    folder.mkdir()
    rest = f"{state} {parent} 0 0 0 0 0 0 0 0 0 5 5 0 0 20 0 1 0 {ticks} 0 100"
    (folder / "stat").write_text(f"{pid} (a) b) {rest}\n")


def take_away(proc: Path, pid: int) -> None:
    (proc / str(pid)).rename(proc / f"was-{pid}")


def start_line(pid: int, ticks: int) -> str:
    return f"start\t{pid}\t1\t{ticks}\t5\t3.11\tsitecustomize\ttrain.py\n"


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    folder = tmp_path / "starts"
    folder.mkdir()
    return folder


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    put(folder, 1, 0, 1)
    put(folder, 50, 1, 2)
    return folder


def test_descendants_are_found_whatever_the_order_of_their_pids(proc: Path, starts: Path) -> None:
    put(proc, 100, 50, 10)
    put(proc, 30, 100, 11)
    put(proc, 20, 30, 12)
    put(proc, 200, 1, 13)
    tree = ProcessTree(StartRecords(starts), proc)
    assert tree.scan() == []
    tree.plant(100)
    assert sorted(tree.scan()) == [20, 30, 100]
    assert tree.members == {100: 10, 30: 11, 20: 12}
    put(proc, 40, 20, 14)
    assert tree.scan() == [40]
    assert tree.scan() == []


def test_a_member_stays_one_when_its_parent_is_gone(proc: Path, starts: Path) -> None:
    put(proc, 100, 50, 10)
    put(proc, 101, 100, 11)
    tree = ProcessTree(StartRecords(starts), proc)
    tree.plant(100)
    tree.scan()
    take_away(proc, 100)
    (proc / "101" / "stat").write_text((proc / "101" / "stat").read_text().replace(" S 100 ", " S 1 "))
    assert tree.scan() == []
    assert tree.members == {101: 11}
    put(proc, 102, 101, 12)
    assert tree.scan() == [102]


def test_a_pid_that_is_used_again_is_another_process(proc: Path, starts: Path) -> None:
    put(proc, 100, 50, 10)
    put(proc, 101, 100, 11)
    put(proc, 300, 1, 3)
    tree = ProcessTree(StartRecords(starts), proc)
    tree.plant(100)
    tree.scan()
    put(proc, 101, 1, 99)
    put(proc, 300, 100, 98)
    assert tree.scan() == [300]
    assert tree.members == {100: 10, 300: 98}
    put(proc, 300, 100, 120)
    assert tree.scan() == [300], "a member may follow on a member"
    assert tree.members[300] == 120


def test_a_reached_orphan_is_counted_in_and_a_namesake_is_not(proc: Path, starts: Path) -> None:
    put(proc, 100, 50, 10)
    put(proc, 400, 1, 40)
    put(proc, 401, 1, 41)
    tree = ProcessTree(StartRecords(starts), proc)
    tree.plant(100)
    tree.scan()
    (starts / "node.log").write_text(start_line(400, 40) + start_line(401, 7) + "start\t402\tcut")
    assert tree.follow() == [400]
    assert tree.follow() == []
    assert tree.members == {100: 10, 400: 40}


def test_start_records_are_followed_line_by_line(starts: Path) -> None:
    records = StartRecords(starts)
    records.follow()
    whole = start_line(5, 50)
    with open(starts / "node.log", "a") as file:
        file.write(start_line(4, 40) + whole[:9])
        file.flush()
        records.follow()
        assert records.reached() == {(4, 40)}
        file.write(whole[9:] + "no record at all\n")
        file.flush()
        records.follow()
    (starts / "other.log").write_text(start_line(6, 60))
    records.follow()
    assert records.reached() == {(4, 40), (5, 50), (6, 60)}
    records.keep({(5, 50)})
    records.follow()
    assert records.reached() == {(5, 50)}


def test_a_run_folder_that_vanishes_does_no_harm(starts: Path) -> None:
    records = StartRecords(starts)
    starts.rmdir()
    records.follow()
    assert records.reached() == frozenset()


def test_real_children_and_grandchildren_are_found(
    starts: Path, run_python: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = run_python(FORKING)
    assert process.stdout is not None
    child, grandchild = map(int, process.stdout.readline().split())
    tree = ProcessTree(StartRecords(starts))
    tree.plant(process.pid)
    try:
        assert sorted(tree.scan()) == sorted([process.pid, child, grandchild])
        assert tree.members == {pid: start_ticks(pid) for pid in (process.pid, child, grandchild)}
        assert os.getpid() not in tree.members
    finally:
        for pid in (child, grandchild):
            os.kill(pid, 9)


REUSING = """
import os, signal, sys, time
def fork():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid
first = fork()
print(first, flush=True)
sys.stdin.readline()
os.kill(first, 9)
os.waitpid(first, 0)
time.sleep(0.02)  # Processes are distinguished by ticks of 10 ms.
again = 0
for attempt in range(20):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(first - 1))
    again = fork()
    if again == first:
        break
print(again, flush=True)
sys.stdin.readline()
"""


def test_a_really_used_again_pid_is_noticed(starts: Path, run_python: Any) -> None:
    if not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK):
        pytest.skip("the next pid cannot be chosen here")
    parent = run_python(REUSING)
    first = int(parent.stdout.readline())
    tree = ProcessTree(StartRecords(starts))
    tree.plant(parent.pid)
    assert first in tree.scan()
    ticks = tree.members[first]
    parent.stdin.write(b"\n")
    parent.stdin.flush()
    if int(parent.stdout.readline()) != first:
        pytest.skip("somebody else got the pid")
    try:
        assert first in tree.scan()
        assert tree.members[first] > ticks
    finally:
        os.kill(first, 9)
