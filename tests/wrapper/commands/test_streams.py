"""Standard output and standard error that are full, closed, or no longer read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PERFWRAP = f"{sys.executable} -m perfwrap"
COMMANDS = [
    "--version",
    "--help",
    "check --help",
    "explain",
    "explain slow_optimizer",
    "list --format json .",
]
FULL = "No space left on device"
CLOSED = "Bad file descriptor"


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("where", "why"), [(">/dev/full", FULL), (">&-", CLOSED), ("<&- >&-", CLOSED)])
def test_output_that_cannot_be_written_is_one_line_and_a_failure(
    tmp_path: Path, command: str, where: str, why: str
) -> None:
    done = shell(f"{PERFWRAP} {command} {where}", tmp_path)
    assert done.stderr == f"perfwrap: cannot write to standard output: {why}.\n"
    assert done.returncode == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path: Path, command: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = [*PERFWRAP.split(), *command.split()]
    done = subprocess.run(words, cwd=tmp_path, stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
def test_without_standard_error_a_mistake_has_its_exit_code(tmp_path: Path, where: str) -> None:
    assert shell(f"{PERFWRAP} report nothing {where}", tmp_path).returncode == 2
    assert shell(f"{PERFWRAP} --nonsense {where}", tmp_path).returncode == 2
    done = shell(f"{PERFWRAP} --version {where}", tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("perfwrap ")


@pytest.mark.parametrize("where", ["> /dev/full", ">&-", "2> /dev/full", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("report", ["", "--no-report"])
def test_a_run_ends_as_its_command_wherever_its_streams_lead(tmp_path: Path, where: str, report: str) -> None:
    done = shell(f"{PERFWRAP} run --no-monitors {report} -- bash -c 'exit 7' {where}", tmp_path)
    assert done.returncode == 7
    assert "Traceback" not in done.stderr


def test_no_file_of_ours_is_taken_for_a_closed_standard_output(tmp_path: Path) -> None:
    shell(f"{PERFWRAP} run --no-monitors --no-report --out run -- true", tmp_path)
    done = shell(f"{PERFWRAP} report run --html >&-", tmp_path)
    assert done.stderr == f"perfwrap: cannot write to standard output: {CLOSED}.\n"
    assert (tmp_path / "run/report.html").read_text().startswith("<!")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_names_that_the_encoding_does_not_have_are_shown_all_the_same(tmp_path: Path, encoding: str) -> None:
    name = b"r\xc3\xbcn-\xe2\x82\xac-\xff"
    folder = os.fsdecode(name)
    script = f"{PERFWRAP} run --no-monitors --out '{folder}' -- true; {PERFWRAP} open --path '{folder}'"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout.endswith(b"/report.html\n") and b"\xff/" in done.stdout


def test_a_slow_reader_gets_all_of_a_pipe_that_does_not_block(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with subprocess.Popen(
        [*PERFWRAP.split(), "explain"], stdout=write_end, stderr=subprocess.PIPE
    ) as process:
        os.close(write_end)
        with open(read_end, "rb") as pipe:
            reported = pipe.read()
        assert process.stderr is not None and process.stderr.read() == b""
    assert process.returncode == 0
    assert reported == subprocess.run([*PERFWRAP.split(), "explain"], capture_output=True).stdout


@pytest.mark.parametrize(
    ("command", "columns"),
    [
        ("report run", "0"),
        ("report run", "1"),
        ("explain slow_optimizer", "-5"),
        ("explain slow_optimizer", "10"),
        ("top run", "1"),
        ("list .", "x"),
        ("--help", "1"),
    ],
)
def test_no_width_of_a_terminal_breaks_a_command(tmp_path: Path, command: str, columns: str) -> None:
    run = tmp_path / "run"
    (run / "journal").mkdir(parents=True)
    (run / "run.json").write_text('{"format": 1, "command": ["train"]}')
    done = shell(f"{PERFWRAP} {command}", tmp_path, COLUMNS=columns)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_traceback_is_written_though_the_launcher_ends_at_once(tmp_path: Path, unbuffered: str) -> None:
    code = "from perfwrap import run_folder; run_folder.create = None; from perfwrap.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--no-monitors", "--no-report", "--", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert done.returncode == 0
    assert done.stderr.endswith("TypeError: 'NoneType' object is not callable\n")
