"""Files of any mix of formats are recognised by their content, and what is wrong with one costs only itself."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.sources import files

from .traces import SAMPLE, launched, written


def test_a_trace_is_recognised_whatever_its_name(tmp_path: Path) -> None:
    odd = tmp_path / "notes.txt"
    shutil.copy(SAMPLE, odd)
    timeline, found = files.read([odd], {"a": 1})
    assert [(file.format, file.read) for file in found] == [("kineto", True)]
    assert timeline.run == {"a": 1, "imported": [{"file": str(odd), "format": "kineto"}]}
    assert timeline.spans.height > 100


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"hello", "does not know its format"),
        (b"\x1f\x8bxx", "does not know its format"),
        (gzip.compress(b"hello", mtime=0), "does not know its format"),
        (b"[[-1, 1, 37888, 7]]", "does not know its format"),
        (bytes(range(256)), "does not know its format"),
        (b'{"$schema": "https://www.speedscope.app/file-format-schema.json"}', ""),
    ],
)
def test_unrecognised_files_are_left_out_and_named(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "foreign.json"
    path.write_bytes(content)
    timeline, (first, second) = files.read([path, SAMPLE], {})
    assert second.read
    if problem:
        assert problem in first.problem
        assert timeline.warnings == (f"foreign.json was skipped: {first.problem}.",)
    assert timeline.spans.height > 100


def test_a_file_that_cannot_be_opened_is_left_out(tmp_path: Path) -> None:
    _, (found,) = files.read([tmp_path / "gone.json"], {})
    assert "cannot be opened" in found.problem


def test_a_format_can_be_given_and_is_then_not_guessed(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", [launched("k", 1, 2, 3)])
    _, (found,) = files.read([path], {}, "kineto")
    assert (found.format, found.read) == ("kineto", True)


def test_every_format_offers_both_functions() -> None:
    assert "kineto" in files.formats()
    assert "journal" not in files.formats()


def test_a_folder_represents_the_files_in_it_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", ".hidden"):
        (tmp_path / name).write_text("x")
    (tmp_path / "inner").mkdir()
    assert [path.name for path in files.expand([tmp_path, tmp_path / "a.json"])] == ["a.json", "b.json"]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PerfwrapError, match=r"There is no file .*gone"):
        files.expand([tmp_path / "gone"])


def test_files_of_different_times_are_reported_as_such(tmp_path: Path) -> None:
    log = tmp_path / "smi.csv"
    log.write_text(
        "timestamp, utilization.gpu [%]\n2020/01/01 00:00:00.000, 5 %\n2020/01/01 00:00:01.000, 6 %\n"
    )
    timeline, found = files.read([SAMPLE, log], {})
    assert [file.format for file in found] == ["kineto", "nvidia_smi"]
    assert any("do not overlap in time" in warning for warning in timeline.warnings)
    alone, _ = files.read([log], {})
    assert not any("do not overlap in time" in warning for warning in alone.warnings)
