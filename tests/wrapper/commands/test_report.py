from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from perfwrap.commands.report import report
from perfwrap.commands.run_report import report_run
from perfwrap.errors import PerfwrapError

MS = 1_000_000


def write(run: Any) -> Path:
    journal = run.journal(opened=1_000 * MS)
    journal.fact("loader/1/num_workers", 0)
    for _ in range(40):
        journal.span("data", 10 * MS, "loader/1", 32, "train.py:20:main")
        journal.span("forward", 4 * MS, "Net", 3, "train.py:21:main")
        journal.span("backward", 5 * MS, line="train.py:23:main")
        journal.span("optimizer", MS, "SGD#1", line="train.py:24:main")
    journal.write()
    return Path(run.folder.path)


def test_the_report_of_a_run_goes_to_stderr_and_into_the_folder(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(run)
    report_run(folder)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Data-bound: 50 %" in err
    assert err.splitlines()[-3] == f"Run folder: {folder}"
    assert err.splitlines()[-1] == f"Report: {folder}/report.html"
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert json.loads((folder / "diagnosis.json").read_text())["verdict"]["id"] == "data-bound"


def test_an_earlier_run_is_shown_again_on_stdout(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(run)
    report(folder)
    out, err = capsys.readouterr()
    assert "Data-bound: 50 %" in out
    assert err == ""


def test_the_html_report_of_an_earlier_run_is_written_where_it_is_requested(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(run)
    report(folder)
    assert not (folder / "report.html").exists()
    report(folder, html=True)
    assert capsys.readouterr().out.splitlines()[-1] == f"Report: {folder}/report.html"
    assert (folder / "report.html").stat().st_size < 8_000_000


def test_where_the_html_report_cannot_be_written_the_report_is_still_shown(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(run)
    (folder / "report.html").mkdir()
    report(folder, html=True)
    out, err = capsys.readouterr()
    assert "Data-bound" in out
    assert f"cannot write {folder}/report.html" in err
    assert list(folder.glob(".report*")) == []


def test_a_folder_that_cannot_be_written_is_still_reported(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(run)
    (folder / "diagnosis.json").mkdir()
    report(folder)
    out, err = capsys.readouterr()
    assert "Data-bound" in out
    assert "cannot write" in err


@pytest.mark.parametrize("name", ["missing", "empty", "file"])
def test_what_is_no_run_folder_is_refused_with_a_hint(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("hello")
    with pytest.raises(PerfwrapError) as raised:
        report(tmp_path / name)
    assert str(tmp_path / name) in raised.value.message
    assert "perfwrap list" in raised.value.hint


def test_a_wrong_folder_is_one_clear_line_and_exit_code_two(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "perfwrap", "report", str(tmp_path / "gone")], capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("perfwrap: There is no folder")
    assert "Traceback" not in ended.stderr
