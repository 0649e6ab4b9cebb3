"""What a process says outlives it: through SIGKILL, forks, threads, full disks and small budgets."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfwrap import journal_format


def test_both_halves_name_the_same_numbers() -> None:
    source = (Path(__file__).resolve().parents[3] / "inject/perfwrap_recorder/journal.py").read_text()
    constants: dict[str, object] = {}
    numbers = source.split("# Records that describe.")[1].split("RARE =")[0]
    exec(numbers, constants)
    known = {**journal_format.DESCRIBE, **journal_format.SPANS, **journal_format.INSTANTS}
    flags = {name: getattr(journal_format, name) for name in ("SUM", "TRAINING", "GRAD", "INFERENCE")}
    assert {name: value for name, value in constants.items() if name.isupper()} == {**known, **flags}
    assert f"\nFORMAT = {journal_format.FORMAT}\n" in source
    assert f"specification of FORMAT {journal_format.FORMAT}." in source
    assert set(re.findall(r'Struct\("(.*?)"\)', source)) >= {
        journal_format.HEADER.format,
        journal_format.RECORD.format,
    }


def test_a_journal_reads_as_specified(run, interpreter: str) -> None:
    done = run(
        """
open_journal()
journal.fact("role", "main")
journal.mark("started", "with a detail")
journal.cover("probe/sync")
journal.span(1000, 50, 7, journal.text("a label"), journal.SYNC)
journal.instant(1500, float("inf"), journal.text("loss"), journal.NON_FINITE)
journal.record(2000, 10, 0, journal.text("start"), journal.PERFWRAP)
print(os.getpid())
""",
        python=interpreter,
    )
    read = done.journal
    magic, version, pid, monotonic, wall = read.header
    assert (magic, version, pid) == (b"perfwrap", 1, int(done.stdout))
    assert 0 < monotonic < wall
    assert re.fullmatch(rf"host-{pid}-\d+-0\.pwj", read.path.name)
    assert read.facts == {"role": "main"}
    (mark,) = read.of("MARK")
    assert (mark.name, read.texts[mark.value], mark.thread) == ("started", "with a detail", 1)
    (span,) = read.of("SYNC")
    assert (span.start, span.duration, span.value, span.name, span.thread) == (1000, 50, 7, "a label", 1)
    (bad,) = read.of("NON_FINITE")
    assert bad.value == 0x7FF0000000000000
    (thread,) = read.of("THREAD")
    assert (thread.thread, thread.value) == (1, pid)
    assert len(read.of("END")) == 1
    (last_clock,) = read.of("CLOCK")
    assert last_clock.start > monotonic and last_clock.value > wall
    assert not read.of("LOST", "THIN")


def test_every_record_before_a_kill_is_there(run, interpreter: str) -> None:
    done = run(
        """
open_journal()
name = journal.text("loop")
for number in range(50_000):
    journal.span(number, 1, number, name, journal.SYNC)
os.kill(os.getpid(), 9)
""",
        python=interpreter,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert [found.value for found in done.journal.of("SYNC")] == list(range(50_000))
    assert not done.journal.of("END")


def test_a_record_cut_short_reads_as_nothing(run) -> None:
    done = run(
        """
open_journal()
claim, memory = journal.state
claim()
journal.pack(memory, claim() << 5, 1, 2, 3, 4, 5, 0)
journal.span(9, 9, 9, journal.text("after"), journal.SYNC)
"""
    )
    assert [found.name for found in done.journal.of("SYNC")] == ["after"]


def test_eight_threads_at_once_lose_nothing(run, interpreter: str) -> None:
    done = run(
        """
import threading
open_journal()
sys.setswitchinterval(1e-5)
def work(number):
    for value in range(5_000):
        journal.span(value, 1, value, journal.text("thread %d" % number), journal.SYNC)
workers = [threading.Thread(target=work, args=(number,), name="w%d" % number) for number in range(8)]
for worker in workers: worker.start()
for worker in workers: worker.join()
""",
        python=interpreter,
    )
    for number in range(8):
        found = [record for record in done.journal.of("SYNC") if record.name == f"thread {number}"]
        assert sorted(record.value for record in found) == list(range(5_000))
    assert {f"w{number}" for number in range(8)} >= {found.name for found in done.journal.of("THREAD")}


def test_threads_are_told_apart_while_they_live(run) -> None:
    done = run(
        """
import threading
open_journal()
ready = threading.Barrier(3)
def work():
    journal.span(1, 1, threading.get_native_id(), journal.text("x"), journal.SYNC)
    ready.wait()
workers = [threading.Thread(target=work, name="worker") for _ in range(2)]
for worker in workers: worker.start()
ready.wait()
for worker in workers: worker.join()
"""
    )
    threads = {found.thread: found.value for found in done.journal.of("THREAD")}
    assert len(threads) == 2
    assert {found.thread: found.value for found in done.journal.of("SYNC")} == threads


def test_no_descriptor_stays_open_and_closing_all_harms_nothing(run) -> None:
    done = run(
        """
before = os.listdir("/proc/self/fd")
open_journal()
assert os.listdir("/proc/self/fd") == before
os.closerange(3, 200)
mine = os.open(sys.argv[1] + "/mine", os.O_RDWR | os.O_CREAT)
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal.SYNC)
os.write(mine, b"still mine")
os.close(mine)
"""
    )
    assert len(done.journal.of("SYNC")) == 40_000
    assert (done.run_dir / "mine").read_bytes() == b"still mine"


def test_a_long_text_is_cut_and_an_odd_one_survives(run, interpreter: str) -> None:
    done = run(
        r"""
open_journal()
journal.fact("long", "x" * 10_000)
journal.fact("odd", "caf\u00e9 \udcff \U0001f600" + "y" * 30)
journal.fact("empty", "")
""",
        python=interpreter,
    )
    assert done.journal.facts["long"] == "x" * 4080
    assert done.journal.facts["odd"] == "café ? 😀" + "y" * 30
    assert done.journal.facts["empty"] == ""


def test_too_many_texts_share_one_and_are_counted(run) -> None:
    done = run(
        """
open_journal()
for number in range(120_000):
    journal.span(number, 1, 0, journal.text("generated %d" % number), journal.SYNC)
print(len(journal.text_numbers))
""",
        budget=64 << 20,
    )
    read = done.journal
    assert int(done.stdout) <= 1 << 15
    spans = read.of("SYNC")
    others = sum(found.name == "(other)" for found in spans)
    (lost,) = read.of("LOST")
    assert len(spans) == 120_000
    assert (lost.name, lost.value) == ("texts", others)
    assert others > 80_000


def test_a_budget_is_kept_and_what_is_said_beyond_it_is_counted(run) -> None:
    done = run(
        """
open_journal()
name = journal.text("fact")
for number in range(10_000):
    journal.put(number, 0, 0, name, 0, journal.MARK)
""",
        budget=64 << 10,
    )
    assert done.journal.path.stat().st_size == 64 << 10
    (lost,) = done.journal.of("LOST")
    assert lost.name == "records"
    assert lost.value + len(done.journal.of("MARK")) == 10_000


STEPS = """
import json
open_journal()
truth = {}
def say(kind, name, duration):
    number = journal.text(name)
    count, total = truth.get((kind, name), (0, 0))
    truth[kind, name] = count + 1, total + duration
    journal.span(clock.now(), duration, 0, number, kind)
"""


def truth_of(stdout: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Return what the program counted itself."""
    return {(kind, name): (count, total) for kind, name, count, total in eval(stdout)}


TELL = """
names = {value: name for name, value in vars(journal).items() if name.isupper() and isinstance(value, int)}
print([(names[kind], name, count, total) for (kind, name), (count, total) in truth.items()])
"""


def test_a_long_run_fits_its_budget_with_exact_sums(run, interpreter: str) -> None:
    done = run(
        STEPS
        + """
for step in range(30_000):
    say(journal.DATA, "loader", 5)
    say(journal.FORWARD, "model", step % 7)
    say(journal.SYNC, "item %d" % (step % 3), 1)
    say(journal.OPTIMIZER, "SGD#1", 2)
    journal.end_step(journal.OPTIMIZER, 1, clock.now())
"""
        + TELL,
        python=interpreter,
        budget=512 << 10,
    )
    read = done.journal
    assert read.path.stat().st_size <= 512 << 10
    assert read.totals() == truth_of(done.stdout)
    assert not read.of("LOST")
    strides = [found.value for found in read.of("THIN")]
    assert strides[0] == 0 and max(strides) >= 4
    assert [bool(value) for value in strides[:10]] == [False, True] * 5


def test_stretches_of_detail_hold_whole_neighbouring_steps(run) -> None:
    done = run(
        STEPS
        + """
for step in range(20_000):
    say(journal.FORWARD, "model", 3)
    say(journal.OPTIMIZER, "SGD#1", 2)
    journal.end_step(journal.OPTIMIZER, 1, clock.now())
""",
        budget=256 << 10,
    )
    read = done.journal
    thins = read.of("THIN")
    stretches = [
        (begin.start, end.start) for begin, end in zip(thins, thins[1:], strict=False) if begin.value > 0
    ]
    assert len(stretches) > 20
    for begin, end in stretches[:-1]:
        kinds = [found.kind for found in read.of("FORWARD", "OPTIMIZER") if begin <= found.start < end]
        assert kinds == ["FORWARD", "OPTIMIZER"] * 4
    # A sum belongs to the stretch that began at its start.
    starts = {found.start for found in thins if found.value == 0}
    assert {found.start for found in read.records if found.kind.startswith("SUM")} <= starts


def test_rare_spans_stay_in_detail_up_to_a_limit(run) -> None:
    done = run(
        STEPS
        + """
for step in range(20_000):
    say(journal.FORWARD, "model", 3)
    say(journal.OPTIMIZER, "SGD#1", 2)
    if step % 1000 == 500:
        say(journal.SAVE, "torch.save", 1000)
    if step > 19_000:
        say(journal.LOAD, "torch.load", 10)
        journal.instant(clock.now(), float("nan"), journal.text("loss"), journal.NON_FINITE)
    journal.end_step(journal.OPTIMIZER, 1, clock.now())
"""
        + TELL,
        budget=256 << 10,
    )
    assert len(done.journal.of("SAVE")) == 20
    assert done.journal.of("SUM LOAD")
    assert 16 <= len(done.journal.of("NON_FINITE")) < 999
    assert done.journal.totals() == truth_of(done.stdout)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    budget=st.integers(32 << 10, 200 << 10),
    pattern=st.lists(
        st.tuples(st.sampled_from(["DATA", "FORWARD", "SYNC", "OPTIMIZER", "SAVE", "GC"]), st.integers(0, 3)),
        min_size=1,
        max_size=12,
    ),
    ends=st.sets(st.sampled_from(["DATA", "FORWARD", "OPTIMIZER"])),
    repeats=st.integers(1, 4_000),
)
def test_sums_and_detail_always_add_up(run, tmp_path, budget, pattern, ends, repeats) -> None:
    for old in (tmp_path / "journal").glob("*"):
        old.unlink()
    done = run(
        STEPS
        + f"""
for step in range({repeats}):
    for kind, number in {pattern!r}:
        say(getattr(journal, kind), kind.lower() + str(number), number)
        if kind in {ends!r}:
            journal.end_step(getattr(journal, kind), number, clock.now())
"""
        + TELL,
        budget=budget,
    )
    read = done.journal
    assert read.path.stat().st_size <= budget
    assert not read.of("LOST")
    assert read.totals() == truth_of(done.stdout)


def test_sums_of_several_threads_are_exact(run, interpreter: str) -> None:
    done = run(
        """
import threading
open_journal()
sys.setswitchinterval(1e-5)
def work(number):
    name = journal.text("t%d" % (number % 3))
    for value in range(6_000):
        journal.span(clock.now(), value, 0, name, journal.SYNC)
        journal.end_step(journal.OPTIMIZER, number, clock.now())
workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
for worker in workers: worker.start()
for worker in workers: worker.join()
""",
        python=interpreter,
        budget=128 << 10,
    )
    assert done.journal.path.stat().st_size <= 128 << 10
    assert done.journal.of("THIN")
    each = (12_000, 2 * sum(range(6_000)))
    assert done.journal.totals() == {("SYNC", f"t{number}"): each for number in range(3)}


def test_sums_survive_a_kill(run) -> None:
    done = run(
        """
open_journal()
name = journal.text("step")
for number in range(30_000):
    journal.span(clock.now(), 2, 0, name, journal.SYNC)
os.kill(os.getpid(), 9)
""",
        budget=64 << 10,
        check=False,
    )
    assert done.journal.totals() == {("SYNC", "step"): (30_000, 60_000)}


def test_forked_children_write_files_of_their_own(run, interpreter: str) -> None:
    done = run(
        """
open_journal()
name = journal.text("known before")
journal.span(1, 1, 0, name, journal.SYNC)
children = []
for number in range(5):
    child = os.fork()
    if not child:
        journal.span(2, 1, number, name, journal.SYNC)
        journal.span(3, 1, number, journal.text("new in %d" % number), journal.SYNC)
        os._exit(0) if number % 2 else sys.exit(0)
    children.append(child)
for child in children: os.waitpid(child, 0)
journal.span(4, 1, 9, name, journal.SYNC)
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
        journal.span(clock.now(), 1, os.getpid(), name, journal.SYNC)
def fork():
    for _ in range(15):
        child = os.fork()
        if not child:
            grandchild = os.fork()
            journal.span(clock.now(), 1, os.getpid(), journal.text("child"), journal.SYNC)
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


def test_a_fork_inside_of_writing_keeps_both_files_right(run) -> None:
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
            journal.span(clock.now(), 1, os.getpid(), name, journal.SYNC)
        os._exit(0)
    children.append(child)
signal.signal(signal.SIGVTALRM, fork)
signal.setitimer(signal.ITIMER_VIRTUAL, 0.01, 0.01)
while len(children) < 40:
    for _ in range(100):
        journal.span(clock.now(), 1, os.getpid(), name, journal.SYNC)
signal.setitimer(signal.ITIMER_VIRTUAL, 0)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
""",
        budget=64 << 20,
    )
    assert len(done.journals) == 41
    for read in done.journals:
        assert {found.value for found in read.of("SYNC")} == {read.header[2]}


def test_a_deleted_journal_ends_the_recording_and_nothing_else(run) -> None:
    done = run(
        """
open_journal()
import shutil
shutil.rmtree(sys.argv[1] + "/journal")
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal.SYNC)
journal.fact("still", "alive")
assert journal.text("unheard of") == 0
print("fine")
"""
    )
    assert done.stdout == "fine\n"
    assert not done.run_dir.joinpath("journal").exists()


def test_another_file_in_the_journals_place_is_left_alone(run) -> None:
    done = run(
        """
open_journal()
path = journal._file._path
os.unlink(path)
with open(path, "wb") as file: file.write(b"somebody else's")
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal.SYNC)
print(path)
"""
    )
    assert Path(done.stdout.strip()).read_bytes() == b"somebody else's"


def test_a_full_disk_ends_the_recording_and_nothing_else(run) -> None:
    # A limit on file sizes refuses to allocate just as a full disk does, and needs no privileges.
    done = run(
        """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
open_journal()
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal.SYNC)
print("fine")
"""
    )
    assert done.stdout == "fine\n"
    kept = len(done.journal.of("SYNC"))
    assert 1_000 < kept < 200_000 // 32
    assert done.journal.path.stat().st_size <= 200_000


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to mount a file system")
def test_a_really_full_disk_does_not_kill(run, tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "journal").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(tmp_path / "journal")]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        done = run(
            """
open_journal()
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, number, name, journal.SYNC)
print("fine")
"""
        )
        assert done.stdout == "fine\n"
        assert len(done.journal.of("SYNC")) > 1_000
    finally:
        subprocess.run(["umount", str(tmp_path / "journal")], check=True)


def test_a_journal_that_cannot_be_made_is_an_os_error_and_then_silence(run) -> None:
    done = run(
        """
try:
    Settings.run_dir = "/nonexistent/folder"
    journal.open_current(Settings)
except OSError:
    print("refused")
journal.span(1, 1, 1, journal.text("x"), journal.SYNC)
journal.fact("x", "y")
"""
    )
    assert done.stdout == "refused\n"


def test_a_process_that_execs_leaves_two_files(run) -> None:
    done = run(
        """
if len(sys.argv) == 3:
    open_journal()
    os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
open_journal()
"""
    )
    names = sorted(found.path.name for found in done.journals)
    assert len(names) == 2
    assert names[0].endswith("-0.pwj") and names[1] == names[0][:-5] + "1.pwj"


def test_a_smaller_budget_can_be_kept_to_later(run) -> None:
    done = run(
        """
open_journal()
journal.reduce_budget(16)
name = journal.text("x")
for number in range(40_000):
    journal.span(number, 1, 1, name, journal.SYNC)
""",
        budget=4 << 20,
    )
    assert done.journal.path.stat().st_size <= (4 << 20) // 16
    assert done.journal.totals() == {("SYNC", "x"): (40_000, 40_000)}


def test_clock_pairs_come_every_ten_seconds(run) -> None:
    done = run(
        """
open_journal()
looked = []
journal.every_interval.append(lambda: looked.append(1))
first = clock.now()
for second in range(35):
    journal.end_step(journal.DATA, 1, first + second * 1_000_000_000)
print(len(looked))
"""
    )
    assert int(done.stdout) == 3
    assert len(done.journal.of("CLOCK")) == 4


def test_python_is_not_asked_for_more_than_it_has_loaded(run, interpreter: str) -> None:
    done = run(
        """
slow = {"typing", "json", "logging", "subprocess", "pathlib", "dataclasses", "threading", "socket", "re"}
loaded = slow & set(sys.modules)
open_journal()
print(sorted((slow & set(sys.modules)) - loaded))
""",
        python=interpreter,
    )
    assert done.stdout == "[]\n"


if sys.platform != "linux":
    pytest.skip("the recorder is for Linux", allow_module_level=True)
