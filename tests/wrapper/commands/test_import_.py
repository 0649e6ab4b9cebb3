"""`perfwrap import` diagnoses what other tools recorded and keeps a run that `perfwrap report` reads again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from perfwrap.commands.import_ import import_
from perfwrap.commands.report import report
from perfwrap.errors import PerfwrapError

SAMPLE = Path(__file__).resolve().parents[2] / "samples/kineto/cpu_training.json.gz"


def test_a_trace_is_diagnosed_and_the_report_can_be_drawn_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    import_([SAMPLE], out)
    first = capsys.readouterr().out
    assert "imported 1 file of kineto" in first
    assert "A step ends with each step mark (ProfilerStep)." in first
    assert str(out) in first
    written = (out / "diagnosis.json").read_text()
    report(out, html=True)
    assert capsys.readouterr().out == first
    assert first.splitlines()[-1] == f"Report: {out}/report.html"
    assert (out / "diagnosis.json").read_text() == written
    assert json.loads(written)["steps"]["anchor"] == "step mark (ProfilerStep)"
    assert json.loads(written)["steps"]["count"] == 4


def test_the_report_needs_the_imported_file_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes(SAMPLE.read_bytes())
    import_([trace], tmp_path / "run")
    trace.unlink()
    capsys.readouterr()
    report(tmp_path / "run")
    assert "steady steps" in capsys.readouterr().out


def test_unrecognised_files_are_named_beside_those_that_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("# about this run")
    import_([notes, SAMPLE], tmp_path / "run")
    assert "notes.md was skipped" in " ".join(capsys.readouterr().out.split())


def test_nothing_is_kept_when_no_file_can_be_read(tmp_path: Path) -> None:
    empty, foreign = tmp_path / "empty.json", tmp_path / "foreign.bin"
    empty.write_bytes(b"")
    foreign.write_bytes(b"MZ\x90")
    with pytest.raises(PerfwrapError, match="None of the files could be read") as error:
        import_([empty, foreign], tmp_path / "run")
    assert "empty.json: it is empty" in error.value.message
    assert "foreign.bin" in error.value.message
    assert "kineto" in (error.value.hint or "")
    assert not (tmp_path / "run").exists()


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(PerfwrapError, match="does not take 'word'") as error:
        import_([SAMPLE], tmp_path / "run", "word")
    assert "kineto" in (error.value.hint or "")


def test_the_command_line_has_it_and_shows_no_traceback(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json.gz"
    broken.write_bytes(SAMPLE.read_bytes()[:20_000])
    command = [sys.executable, "-m", "perfwrap", "import", str(broken), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "broken.json.gz is incomplete" in " ".join(done.stdout.split())
