"""Names that are none, pipes where files are expected, and a working directory that is gone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from perfwrap import private_files, run_folder
from perfwrap.analysis import run_names
from perfwrap.launch import environment, joining
from perfwrap.launch.jobs import Job

PERFWRAP = [sys.executable, "-m", "perfwrap"]
TOO_LONG = "a" * 5_000
ODD_NAMES = [TOO_LONG, "a/" * 3_000, "\udcff\udcfe", "a\nb", "..", "~", "", "nothing/\U0001f600"]
DELETED = "The current directory has been deleted."


def perfwrap(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PERFWRAP, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        env={**os.environ, **more},
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, a pipe without reader or writer, a socket, a link to itself and a file."""
    folder = tmp_path_factory.mktemp("place")
    assert perfwrap(folder, "run", "--no-monitors", "--no-report", "--out", "a", "--", "true").returncode == 0
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "file").write_text("x")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket"))
    server.close()
    return folder


OTHERS = [
    ["compare", "@,@", "a"],
    ["check", "a", "--baseline", "@"],
    ["clean", "@"],
    ["import", "@", "--out", "imported"],
    ["list", "@"],
]


@pytest.mark.parametrize(
    ("words", "name"),
    [(["report", "@"], name) for name in ODD_NAMES]
    + [(words, name) for words in OTHERS for name in (TOO_LONG, "\udcff\udcfe", "")],
    ids=lambda value: value[0] if isinstance(value, list) else ascii(value[:8]),
)
def test_what_is_no_name_is_answered_in_plain_words(place: Path, words: list[str], name: str) -> None:
    done = perfwrap(place, *(word.replace("@", name) for word in words))
    assert "Traceback" not in done.stderr
    if words != ["list", "@"] or name not in ("..", ""):
        assert done.returncode == 2
        assert done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["check", "a", "--baseline", "a", "--junit", TOO_LONG],
        ["merge", "a", "--any-job", "--out", TOO_LONG],
        ["merge", TOO_LONG, "--out", "merged"],
        ["export", "a", "--to", "prometheus", "--out", f"{TOO_LONG}.prom"],
        ["export", "a", "--to", "prometheus", "--out", "loop/x.prom"],
        ["demo", "--out", TOO_LONG],
        ["try", "--out", TOO_LONG, "--", "true"],
        ["attach", str(os.getpid()), "--seconds", "1", "--out", TOO_LONG],
        ["run", "--metrics-port", "9", "--metrics-token-file", TOO_LONG, "--", "true"],
        ["top", TOO_LONG],
        ["explain", TOO_LONG],
        ["import", "file/x"],
        ["list", "loop"],
    ],
    ids=lambda words: f"{words[0]}-{words[-1][:8]}",
)
def test_a_place_that_cannot_be_is_a_mistake_of_the_users(place: Path, words: list[str]) -> None:
    done = perfwrap(place, *words)
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["check", "a", "--baseline", "a", "--junit", "fifo"],
        ["export", "a", "--to", "prometheus", "--out", "fifo"],
        ["export", "a", "--to", "prometheus", "--out", "socket"],
        ["export", "a", "--to", "otlp", "--out", "fifo"],
        ["run", "--metrics-port", "9", "--metrics-token-file", "fifo", "--", "true"],
        ["import", "fifo"],
        ["import", "socket"],
        ["report", "fifo"],
        ["report", "socket"],
        ["compare", "fifo", "a"],
        ["merge", "fifo", "--out", "merged"],
        ["merge", "a", "--any-job", "--out", "fifo"],
        ["list", "fifo"],
        ["run", "--out", "fifo", "--", "true"],
    ],
    ids=" ".join,
)
def test_no_command_waits_for_an_unused_pipe(place: Path, words: list[str]) -> None:
    done = perfwrap(place, *words)
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert done.stderr


def test_a_pipe_with_a_reader_takes_what_is_written(place: Path) -> None:
    script = '"$0" -m perfwrap check a --baseline a --junit >(cat >&2) >&2'
    done = subprocess.run(["bash", "-c", script, sys.executable], cwd=place, capture_output=True, text=True)
    assert "<testsuite" in done.stderr and "annot write" not in done.stderr


def test_a_summary_that_is_a_pipe_is_named_and_nothing_waits(place: Path) -> None:
    words = ["report", "a", "--format", "github"]
    done = perfwrap(place, *words, GITHUB_STEP_SUMMARY=str(place / "fifo"))
    assert done.returncode == 0
    assert "without a reader" in done.stderr


def test_pipes_in_the_way_of_a_run_do_not_make_its_command_wait(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "path/x").mkdir(parents=True)
    os.mkfifo(tmp_path / "job" / run_folder.MANIFEST)
    os.mkfifo(tmp_path / "path/x" / environment.SETTINGS)
    (tmp_path / "path/sitecustomize.py").write_text("")
    assert environment.outer_run({"PYTHONPATH": str(tmp_path / "path")}) is None
    job = Job(id="j", started_by="a test", rank=None, size=None, local_rank=None, restart=0)
    with pytest.raises((OSError, run_folder.PerfwrapError)):
        joining.join(tmp_path / "job", ["true"], "", job)


def test_a_name_with_a_null_is_nothing() -> None:
    assert not private_files.leads_somewhere("a\0b")
    with pytest.raises(run_folder.PerfwrapError):
        run_names.find("a\0b")


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["report", "."],
        ["top"],
        ["check", "a", "--baseline", "b"],
        ["import", "x.json"],
        ["try", "--", "true"],
        ["attach", str(os.getpid()), "--seconds", "1"],
    ],
    ids=lambda words: words[0],
)
def test_a_working_directory_that_is_gone_is_said_and_what_to_do(tmp_path: Path, words: list[str]) -> None:
    done = in_deleted(tmp_path, *words)
    assert done.returncode == 2
    assert DELETED in done.stderr and "cd ~" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_doctor_says_that_the_working_directory_is_gone(tmp_path: Path) -> None:
    done = in_deleted(tmp_path, "doctor", "--", "true")
    assert (done.returncode, done.stderr) == (1, "")
    assert DELETED in " ".join(done.stdout.split())


def test_without_a_working_directory_a_command_runs_and_is_recorded_where_out_leads(tmp_path: Path) -> None:
    done = in_deleted(tmp_path, "run", "--no-monitors", "--", "bash", "-c", "exit 3")
    assert done.returncode == 3
    assert f"perfwrap: this run is not recorded: {DELETED}" in done.stderr
    words = ["run", "--no-monitors", "--out", str(tmp_path / "kept"), "--", "bash", "-c", "exit 3"]
    done = in_deleted(tmp_path, *words)
    assert done.returncode == 3
    assert "not recorded" not in done.stderr
    assert in_deleted(tmp_path, "report", str(tmp_path / "kept")).returncode == 0


def in_deleted(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory that has been deleted."""
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    return subprocess.run(
        ["bash", "-c", script, "bash", *PERFWRAP, *words], cwd=tmp_path, capture_output=True, text=True
    )
