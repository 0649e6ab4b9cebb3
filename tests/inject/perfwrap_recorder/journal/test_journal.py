"""What a process says stands in its journal as specified, from all threads, and outlives it."""

from __future__ import annotations

import re
import signal

import pytest
from perfwrap import journal_format


def test_kinds_have_different_numbers_of_their_ranges() -> None:
    kinds = {**journal_format.DESCRIBE, **journal_format.SPANS, **journal_format.INSTANTS}
    assert len(set(kinds.values())) == len(kinds)
    assert list(journal_format.DESCRIBE.values()) == list(range(1, 12))
    assert set(journal_format.SPANS.values()) == set(range(33, 33 + len(journal_format.SPANS)))
    assert set(journal_format.INSTANTS.values()) == set(range(64, 64 + len(journal_format.INSTANTS)))
    assert {name for name in kinds if getattr(journal_format, name) != kinds[name]} == set()


def test_the_specification_names_the_formats_of_the_code() -> None:
    specification = journal_format.__doc__ or ""
    assert f"specification of FORMAT {journal_format.FORMAT}." in specification
    assert f"``{journal_format.HEADER.format}``" in specification
    assert f"``{journal_format.RECORD.format}``" in specification


@pytest.mark.parametrize("returns", [False, True])
def test_a_call_that_goes_on_is_at_the_front_until_it_returns(run, returns: bool) -> None:
    code = """
open_journal()
journal.open_call(1000, journal.text("loader/1"), journal_format.DATA)
journal.open_call(2000, journal.text("all_reduce"), journal_format.COLLECTIVE)
journal.close_call(journal_format.DATA)
"""
    done = run(code + ("journal.close_call(journal_format.COLLECTIVE)" if returns else ""))
    found = [(call.start, call.name, call.value) for call in done.journal.of("OPEN")]
    assert found == ([] if returns else [(2000, "all_reduce", journal_format.SPANS["COLLECTIVE"])])


def test_a_journal_reads_as_specified(run, interpreter: str) -> None:
    done = run(
        """
open_journal()
journal.fact("role", "main")
journal.mark("started", "with a detail")
journal.cover("probe/sync")
journal.span(1000, 50, 7, journal.text("a label"), journal_format.SYNC)
journal.instant(1500, float("inf"), journal.text("loss"), journal_format.NON_FINITE)
journal.record(2000, 10, 0, journal.text("start"), journal_format.PERFWRAP)
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
    journal.span(number, 1, number, name, journal_format.SYNC)
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
journal.span(9, 9, 9, journal.text("after"), journal_format.SYNC)
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
        journal.span(value, 1, value, journal.text("thread %d" % number), journal_format.SYNC)
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


def test_threads_are_distinguished_while_they_live(run) -> None:
    done = run(
        """
import threading
open_journal()
ready = threading.Barrier(3)
def work():
    journal.span(1, 1, threading.get_native_id(), journal.text("x"), journal_format.SYNC)
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
    journal.span(number, 1, 0, journal.text("generated %d" % number), journal_format.SYNC)
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
    journal.put(number, 0, 0, name, 0, journal_format.MARK)
""",
        budget=64 << 10,
    )
    assert done.journal.path.stat().st_size == 64 << 10
    (lost,) = done.journal.of("LOST")
    assert lost.name == "records"
    assert lost.value + len(done.journal.of("MARK")) == 10_000


def test_clock_pairs_come_every_ten_seconds(run) -> None:
    done = run(
        """
open_journal()
looked = []
journal.every_interval.add(lambda: looked.append(1))
first = clock.now()
for second in range(35):
    journal.end_step(journal_format.DATA, 1, first + second * 1_000_000_000)
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


def test_names_of_threads_and_facts_hold_no_secrets(run) -> None:
    done = run(
        """
import threading
open_journal()
journal.fact("said", "--password hunter2")
thread = threading.Thread(target=lambda: journal.mark("here"), name="token=hunter2")
thread.start()
thread.join()
"""
    )
    assert {"token=***", "--password ***"} <= set(done.journal.texts.values())
    assert b"hunter2" not in done.journal.path.read_bytes()
