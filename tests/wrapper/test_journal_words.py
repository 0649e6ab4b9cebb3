"""The reader of words agrees with the writer, and with a journal that was cut short."""

from __future__ import annotations

import os
from pathlib import Path

from perfwrap.journal_words import read_words
from perfwrap.monitors.monitor_journal import JournalWriter


def write(folder: Path) -> Path:
    journal = JournalWriter(folder, "node")
    journal.fact("cpu_model", "a name longer than one piece of twenty-four bytes, ü")
    journal.fact("again", "old")
    journal.fact("again", "new")
    journal.watched("host", 5)
    journal.not_watched("gpu", "no driver")
    journal.samples(7, [(journal.series("host", "runnable_tasks"), 3.0)])
    journal.close()
    return journal.path


def test_facts_and_coverage_are_read(tmp_path: Path) -> None:
    words = read_words(write(tmp_path))
    assert words.pid == os.getpid()
    assert words.facts == {
        "cpu_model": "a name longer than one piece of twenty-four bytes, ü",
        "again": "new",
    }
    assert words.coverage == [("host", 0, ""), ("gpu", 1, "no driver")]
    assert words.notes("gpu") == ["no driver"]
    assert words.notes("host") == []


def test_a_journal_is_read_as_far_as_it_was_written(tmp_path: Path) -> None:
    path = write(tmp_path)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        words = read_words(path)
        assert set(words.facts) <= {"cpu_model", "again", ""}
        assert len(words.coverage) <= 2
