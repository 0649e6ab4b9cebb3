"""Every process writes its own file, whenever and from whichever thread it was forked."""

from __future__ import annotations

import os


def test_forked_children_write_files_of_their_own(run, interpreter: str) -> None:
    done = run(
        """
open_journal()
name = journal.text("known before")
journal.span(1, 1, 0, name, journal_format.SYNC)
children = []
for number in range(5):
    child = os.fork()
    if not child:
        journal.span(2, 1, number, name, journal_format.SYNC)
        journal.span(3, 1, number, journal.text("new in %d" % number), journal_format.SYNC)
        os._exit(0) if number % 2 else sys.exit(0)
    children.append(child)
for child in children: os.waitpid(child, 0)
journal.span(4, 1, 9, name, journal_format.SYNC)
print(os.getpid(), *children)
""",
        python=interpreter,
    )
    parent, *children = map(int, done.stdout.split())
    by_pid = {found.header[2]: found for found in done.journals}
    assert set(by_pid) == {parent, *children}
    assert [found.value for found in by_pid[parent].of("SYNC")] == [0, 9]
    assert len(by_pid[parent].of("END")) == 1
    for number, child in enumerate(children):
        names = [(found.name, found.value) for found in by_pid[child].of("SYNC")]
        assert names == [("known before", number), (f"new in {number}", number)]
        assert len(by_pid[child].of("END")) == (number + 1) % 2
        assert by_pid[child].header[3] > by_pid[parent].header[3]


def test_of_very_many_children_each_takes_little_of_the_disk(run) -> None:
    done = run(
        """
open_journal()
name = journal.text("known before")
for number in range(300):
    child = os.fork()
    if not child:
        journal.span(2, 1, number, name, journal_format.SYNC)
        os._exit(0)
    os.waitpid(child, 0)
"""
    )
    assert len(done.journals) == 301
    assert sum(read.path.stat().st_blocks * 512 for read in done.journals) <= 301 * (16 << 10)
    assert sorted(read.of("SYNC")[0].value for read in done.journals if read.of("SYNC")) == list(range(300))


def test_a_child_that_says_nothing_leaves_no_file(run) -> None:
    done = run(
        """
open_journal()
child = os.fork()
if not child: os._exit(0)
os.waitpid(child, 0)
child = os.fork()
if child: os.waitpid(child, 0)
"""
    )
    assert len(done.journals) == 1


def test_threads_that_begin_a_childs_file_at_once_lose_nothing(run, interpreter: str) -> None:
    done = run(
        """
import threading
open_journal()
for at in range(5): journal.span(clock.now(), 1, at, journal.text("parent %d" % at), journal_format.SYNC)
sys.setswitchinterval(1e-6)
for _ in range(60):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    ready = threading.Barrier(4)
    def write(number):
        ready.wait()
        for at in range(5):
            journal.span(clock.now(), 1, at, journal.text("writer %d" % number), journal_format.SYNC)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    os._exit(0)
""",
        python=interpreter,
    )
    everything = sorted((f"writer {number}", at) for number in range(4) for at in range(5))
    children = [sorted((each.name, each.value) for each in read.of("SYNC")) for read in done.journals]
    parent = [(f"parent {at}", at) for at in range(5)]
    assert sorted(children, key=len) == [parent, *([everything] * 60)]


def test_fork_storms_from_busy_threads_neither_hang_nor_mix_files(run, interpreter: str) -> None:
    done = run(
        """
import threading
open_journal()
sys.setswitchinterval(1e-5)
going = True
def write(number):
    name = journal.text("writer %d" % number)
    while going:
        journal.span(clock.now(), 1, os.getpid(), name, journal_format.SYNC)
def fork():
    for _ in range(15):
        child = os.fork()
        if not child:
            grandchild = os.fork()
            journal.span(clock.now(), 1, os.getpid(), journal.text("child"), journal_format.SYNC)
            if grandchild: os.waitpid(grandchild, 0)
            os._exit(0)
        os.waitpid(child, 0)
writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
forkers = [threading.Thread(target=fork) for _ in range(2)]
for thread in writers + forkers: thread.start()
for thread in forkers: thread.join()
going = False
for thread in writers: thread.join()
""",
        python=interpreter,
        budget=64 << 20,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert len(done.journals) == 61
    for read in done.journals:
        assert {found.value for found in read.of("SYNC")} == {read.header[2]}


def test_a_fork_inside_writing_keeps_both_files_right(run) -> None:
    done = run(
        """
import signal
open_journal()
name = journal.text("step")
children = []
def fork(*_):
    child = os.fork()
    if not child:
        for _ in range(3_000):
            journal.span(clock.now(), 1, os.getpid(), name, journal_format.SYNC)
        os._exit(0)
    children.append(child)
signal.signal(signal.SIGVTALRM, fork)
signal.setitimer(signal.ITIMER_VIRTUAL, 0.01, 0.01)
while len(children) < 40:
    for _ in range(100):
        journal.span(clock.now(), 1, os.getpid(), name, journal_format.SYNC)
signal.setitimer(signal.ITIMER_VIRTUAL, 0)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
""",
        budget=64 << 20,
    )
    assert len(done.journals) == 41
    for read in done.journals:
        assert {found.value for found in read.of("SYNC")} == {read.header[2]}
