from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from perfwrap import cli, private_files
from perfwrap.analysis import run_names
from perfwrap.errors import PerfwrapError


def test_a_link_that_another_user_planted_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "diagnosis.json").symlink_to(tmp_path / "mine")
    before = os.umask(0)
    try:
        private_files.replace_text(tmp_path / "diagnosis.json", "new")
    finally:
        os.umask(before)
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "diagnosis.json").read_text() == "new"
    assert (tmp_path / "diagnosis.json").lstat().st_mode & 0o777 == 0o600


def test_a_file_that_could_not_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        private_files.replace_text(tmp_path / "a", "\udc80")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "link to a pipe"])
def test_a_run_folder_with_a_pipe_or_a_device_in_it_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "run/journal"
    place.mkdir(parents=True)
    path = place / "h-1-1-0.pwj"
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / "pipe" if "link" in kind else path)
    if "link" in kind:
        path.symlink_to(tmp_path / "pipe")
    with pytest.raises(PerfwrapError, match="neither a file nor a folder"):
        run_names.find(str(tmp_path / "run"))


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(OSError, match="is not a regular file"):
        private_files.read_plain(tmp_path / "run.json", 100)
    (tmp_path / "large").write_bytes(bytes(200))
    with pytest.raises(OSError, match="is larger"):
        private_files.read_plain(tmp_path / "large", 100)


def test_what_a_tool_left_open_to_all_is_closed_but_links_and_the_recorder_are_left_alone(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    (run / "tools").mkdir(parents=True)
    (run / "inject").mkdir()
    (tmp_path / "other").touch()
    for path in (run / "tools/a", run / "inject/b"):
        path.touch()
        path.chmod(0o666)
    (tmp_path / "other").chmod(0o666)
    (run / "tools/link").symlink_to(tmp_path / "other")
    (run / "tools").chmod(0o777)
    private_files.restrict(run, but="inject")
    modes = {path.name: path.stat().st_mode & 0o777 for path in run.rglob("*")}
    assert (modes["tools"], modes["a"], modes["b"], modes["link"]) == (0o700, 0o600, 0o666, 0o666)


NOBODY = 65534


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with a file in it that we may not look into; its parent is the current folder."""
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "diagnosis.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o711)
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:  # To root nothing is closed.
        os.seteuid(NOBODY)
    yield Path("closed")
    os.seteuid(user)
    folder.chmod(0o700)


def test_a_run_folder_that_is_closed_to_us_is_refused(closed: Path) -> None:
    with pytest.raises(PerfwrapError, match="Cannot read .*closed: only the owner"):
        run_names.find(str(closed))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load what the command line needs as long as we are who may read where it is installed."""
    monkeypatch.setattr(sys, "argv", ["perfwrap", "report", "nowhere"])
    with pytest.raises(SystemExit):
        cli.main()


@pytest.mark.usefixtures("loaded")
def test_what_lies_in_a_closed_folder_is_reported_in_a_sentence(
    closed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["perfwrap", "report", "closed/run"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == cli.USAGE_ERROR
    assert "perfwrap: closed/run: Permission denied." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["trace.json.gz", "starts", "tools/x.csv", "parts"])
def test_a_run_folder_with_a_link_to_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").mkdir()
    run = tmp_path / "run"
    (run / "tools").mkdir(parents=True)
    (run / name).symlink_to(tmp_path / "mine")
    with pytest.raises(PerfwrapError, match="points out of the run folder"):
        run_names.find(str(run))


def test_links_within_a_run_folder_and_that_to_the_recorder_are_let_be(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "tools").mkdir(parents=True)
    (run / "tools" / "a.csv").touch()
    (run / "tools" / "b.csv").symlink_to("a.csv")
    (run / "inject").symlink_to(tmp_path)
    assert run_names.find(str(run)) == run
