"""What the monitors' writer leaves behind, read by a reader that knows only the specification."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors.monitor_journal import JournalWriter, start_ticks
from perfwrap.run_folder import RunFolder, create

Reader = Callable[[Path], Any]


def test_everything_written_is_read_back(tmp_path: Path, read_journal: Reader) -> None:
    journal = JournalWriter(tmp_path, "node-1")
    journal.fact("cpu_model", "a name that is longer than the twenty-four bytes of one piece, with ü")
    journal.mark("came", "")
    busy = journal.series("cpu/3", "busy_share")
    journal.samples(5, [(busy, 0.25)])
    journal.samples(6, [(busy, float("nan")), (busy, -0.0)])
    journal.watched("host", 7)
    journal.watched("host", 7, 9, "stopped")
    journal.not_watched("gpu", "no driver")
    journal.lost("processes", 3)
    journal.thin("host", 4)
    journal.close()
    content = read_journal(journal.path)
    assert content.header[:3] == (b"perfwrap", 1, os.getpid())
    assert content.facts == {
        "cpu_model": "a name that is longer than the twenty-four bytes of one piece, with ü"
    }
    assert content.marks == [("came", "")]
    times, values = zip(*content.samples["cpu/3", "busy_share"], strict=True)
    assert times == (5, 6, 6)
    assert repr(values) == "(0.25, nan, -0.0)"
    assert content.coverage[:2] == [("host", 7, 0, ""), ("host", 7, 2, "stopped")]
    assert content.coverage[2][0::2] == ("gpu", 1), "not watched is coverage of one nanosecond"
    assert content.notes("gpu") == ["no driver"]
    assert content.lost == [("processes", 3)]
    assert content.thin == [("host", 4)]
    assert len(content.clock) == 2
    assert len(content.end) == 1


def test_the_sources_read_the_same_journal(tmp_path: Path) -> None:
    source = pytest.importorskip(
        "perfwrap.sources.journals.run_journals", reason="needs the reading half's libraries"
    )
    folder = create(tmp_path / "run", ["x"])
    folder.write_manifest({})
    journal = JournalWriter(RunFolder(folder.path).journal, "node")
    journal.fact("role", "monitor")
    journal.fact("cpu_model", "Some Processor")
    series = [journal.series(f"cpu/{core}", "busy_share") for core in range(3)]
    for moment in range(1, 500):
        at = journal_time = journal_start(journal) + moment
        journal.samples(journal_time, [(number, moment + at % 3) for number in series])
    journal.not_watched("gpu", "no NVIDIA driver")
    journal.close()
    timeline = source.read(folder)
    assert timeline.warnings == ()
    assert timeline.samples.height == 3 * 499
    facts = dict(timeline.facts.select("key", "value").iter_rows())
    assert facts["cpu_model"] == "Some Processor"
    assert "no NVIDIA driver" in timeline.coverage["note"].to_list()


def journal_start(journal: JournalWriter) -> int:
    return int.from_bytes(journal.path.read_bytes()[16:24], "little")


def test_the_file_is_named_after_the_process(tmp_path: Path) -> None:
    ticks = start_ticks(os.getpid())
    assert JournalWriter(tmp_path, "node").path.name == f"node-{os.getpid()}-{ticks}-0.pwj"


def test_several_threads_write_whole_records(tmp_path: Path, read_journal: Reader) -> None:
    journal = JournalWriter(tmp_path, "node")

    def write(number: int) -> None:
        for turn in range(2000):
            journal.fact(f"thread {number} turn {turn}", turn, keep=False)
            journal.samples(turn, [(journal.series(f"thread/{number}", "turn"), turn)])
            journal.flush()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    content = read_journal(journal.path)
    assert len(content.facts) == 8000
    assert all(value == key.split()[-1] for key, value in content.facts.items())
    for number in range(4):
        assert content.values(f"thread/{number}", "turn") == list(range(2000))


def test_what_was_flushed_survives_a_kill(tmp_path: Path, read_journal: Reader) -> None:
    code = """
import sys, time
from pathlib import Path
from perfwrap.monitors.monitor_journal import JournalWriter
journal = JournalWriter(Path(sys.argv[1]), "node")
series = journal.series("host", "turn")
for turn in range(100000):
    journal.samples(turn + 1, [(series, turn)])
    if turn % 100 == 99:
        journal.flush()
print("written", flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    content = read_journal(next(tmp_path.glob("*.pwj")))
    assert content.values("host", "turn") == list(range(100000))
    assert content.end == []


@pytest.mark.parametrize("budget", [1 << 20, 3 << 20])
def test_a_journal_stays_in_its_budget_by_asking_for_fewer_looks(
    tmp_path: Path, read_journal: Reader, budget: int
) -> None:
    journal = JournalWriter(tmp_path, "node", budget)
    series = journal.series("host", "turn")
    turn = 0
    while turn < 200 * budget // 32:
        journal.samples(turn + 1, [(series, turn)])
        journal.flush()
        turn += journal.stride
    journal.close()
    content = read_journal(journal.path)
    assert content.size <= budget
    assert content.size > 3 * budget / 4
    strides = [stride for _, stride in content.thin]
    assert strides == [2**power for power in range(1, len(strides) + 1)]
    assert len(content.end) == 1, "it never came to the end of its budget"
    assert content.values("host", "turn")[-1] >= turn - strides[-1]


def test_a_journal_whose_budget_is_spent_falls_silent(tmp_path: Path, read_journal: Reader) -> None:
    journal = JournalWriter(tmp_path, "node", 65536)
    series = journal.series("host", "turn")
    journal.samples(1, [(series, turn) for turn in range(10000)])
    journal.flush()
    assert not journal.alive
    journal.fact("too", "late")
    journal.close()
    content = read_journal(journal.path)
    assert content.size == 65536
    assert content.facts == {}
    assert content.notes("journal") == ["nothing was written any more: the journal's budget is used up"]
    assert len(content.end) == 1


def test_a_disk_that_takes_no_more_only_silences_the_journal(tmp_path: Path, read_journal: Reader) -> None:
    code = """
import resource, sys
from pathlib import Path
from perfwrap.monitors.monitor_journal import JournalWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
journal = JournalWriter(Path(sys.argv[1]), "node")
series = journal.series("host", "turn")
journal.samples(1, [(series, turn) for turn in range(50000)])
journal.flush()
print(journal.alive)
journal.fact("too", "late")
journal.close()
"""
    answer = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "False\n", "")
    content = read_journal(next(tmp_path.glob("*.pwj")))
    values = content.values("host", "turn")
    assert 0 < len(values) < 50000
    ((what, start, duration, note),) = content.coverage
    assert (what, note) == ("journal", "nothing was written any more: the disk took no more")
    assert start + duration == content.end[0], "coverage says until when"
    assert content.facts == {}
    assert values == list(range(len(values)))


def test_texts_of_processes_that_are_gone_take_no_memory(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "node")
    before = len(journal._texts)
    for pid in range(1000):
        journal.series(f"process/{pid}", "cpu_cores", keep=False)
        journal.fact(f"process/{pid}/cmdline", "x", keep=False)
        journal.not_watched(f"process/{pid}", "y", keep=False)
    assert len(journal._texts) == before
