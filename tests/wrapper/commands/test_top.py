"""`perfwrap top` on a real terminal of 80x24, beside real runs."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from perfwrap.commands import top as command
from perfwrap.errors import PerfwrapError

pyte = pytest.importorskip("pyte", reason="the screen is read by a terminal emulator")

PATIENCE_SECONDS = 200
LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"
MS = 1_000_000

TRAINING = """\
import pathlib, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
class Slow(TensorDataset):
    def __getitem__(self, index):
        time.sleep(0.001)
        return super().__getitem__(index)
data = Slow(torch.randn(64, 16), torch.randint(0, 4, (64,)))
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
end = pathlib.Path(sys.argv[1])
while not end.exists():
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


class Top:
    """`perfwrap top` on a terminal, and the screen that its user sees; ``output`` is where it prints instead."""

    def __init__(
        self, words: list[str], folder: Path, changed: dict[str, str], output: Path | None = None
    ) -> None:
        ready, go = os.pipe()
        self.pid, self.master = pty.fork()
        if not self.pid:
            os.read(ready, 1)  # Until the terminal has its size.
            os.chdir(folder)
            if output is not None:
                written = os.open(output, os.O_WRONLY | os.O_CREAT)
                os.dup2(written, 1)
                os.dup2(written, 2)
            environment = {**os.environ, "TERM": "xterm-256color", **changed}
            os.execve(sys.executable, [sys.executable, "-m", "perfwrap", *words], environment)
        self.screen, self.raw, self._status = pyte.Screen(80, 24), b"", -1
        self._is_closed = False
        self._stream = pyte.ByteStream(self.screen)
        self.settings = termios.tcgetattr(self.master)
        self.resize(24, 80)
        os.write(go, b".")
        os.close(ready)
        os.close(go)

    def resize(self, rows: int, columns: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def read(self) -> None:
        try:
            if select.select([self.master], [], [], 0.05)[0]:
                data = os.read(self.master, 65536)
                self.raw += data
                self._stream.feed(data)
        except OSError:
            self._is_closed = True

    def expect(self, pattern: str) -> str:
        """Return the screen once it shows that."""

        def seen() -> bool:
            self.read()
            return re.search(pattern, self.text()) is not None

        wait_for(seen, lambda: f"{pattern!r} on the screen:\n{self.text()}")
        return self.text()

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def wait(self) -> int:
        """Return the exit code."""

        def ended() -> bool:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else -1
            return bool(pid)

        wait_for(ended, lambda: f"the end of perfwrap top; its screen:\n{self.text()}")
        while not self._is_closed:
            self.read()  # One read returns at most some 4,000 bytes.
        return self._status

    def close(self) -> None:
        if self._status < 0:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)


def wait_for(condition: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what()}"
        select.select([], [], [], 0.01)


@pytest.fixture
def show(tmp_path: Path) -> Iterator[Callable[..., Top]]:
    opened: list[Top] = []

    def start(*words: object, **changed: str) -> Top:
        opened.append(Top(["top", *map(str, words)], tmp_path, changed))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a command under perfwrap, its run folder ``tmp_path/run``."""
    started: list[subprocess.Popen[bytes]] = []

    def launch(*words: object) -> subprocess.Popen[bytes]:
        line = [
            sys.executable,
            "-m",
            "perfwrap",
            "run",
            "--out",
            str(tmp_path / "run"),
            "--",
            *map(str, words),
        ]
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen(line, cwd=tmp_path, start_new_session=True, **quiet))
        wait_for((tmp_path / "run" / "run.json").exists, lambda: "the run folder")
        return started[-1]

    yield launch
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait(seconds: int = 600) -> list[str]:
    """Return a command that does nothing for so long."""
    return [sys.executable, "-c", f"import time; time.sleep({seconds})"]


def finished(run: Any, **manifest: Any) -> Path:
    """Write a run of 40 steps."""
    journal = run.journal(opened=1_000 * MS)
    journal.fact("loader/1/num_workers", 0)
    for _ in range(40):
        journal.span("data", 10 * MS, "loader/1", 32, "train.py:20:main")
        journal.span("forward", 4 * MS, "Net", 3, "train.py:21:main")
        journal.span("backward", 5 * MS, line="train.py:23:main")
        journal.span("optimizer", MS, "SGD#1", line="train.py:24:main")
    journal.write()
    start = {"monotonic_ns": 1_000 * MS, "wall_ns": time.time_ns()}
    run.folder.write_manifest({"command": ["python", "train.py"], "start": start, "exit": None, **manifest})
    return Path(run.folder.path)


@pytest.mark.torch
def test_a_running_job_is_shown_until_it_ends_and_then_as_in_its_report(
    tmp_path: Path, show: Callable[..., Top], start: Callable[..., Any]
) -> None:
    pytest.importorskip("torch", reason="the script trains with PyTorch")
    (tmp_path / "train.py").write_text(TRAINING)
    job = start(sys.executable, "train.py", tmp_path / "end")
    view = show(tmp_path / "run")
    seen = view.expect(
        r"(?s)running for.*So far: Data-bound.*Steps  [\d,]+ so far, epoch \d+, batch \d+ of 8.*"
        r"steady steps: median.*cores.*q quits"
    )
    assert re.search(r"Time   data +\d\d\.\d %  █+", seen)
    assert re.search(r"Procs  trainer +\d+ +[\d.]+ cores", seen)
    view.resize(12, 100)
    view.expect(r"(?s)\Aperfwrap top .*q quits")
    (tmp_path / "end").touch()
    assert job.wait(PATIENCE_SECONDS) == 0
    assert view.wait() == 0
    final = view.raw.rpartition(LEAVE_ALTERNATE_SCREEN)[2].decode()
    assert "exit code 0" in final
    reported = json.loads((tmp_path / "run" / "diagnosis.json").read_text())
    assert f"Steps  {reported['steps']['count']:,}, epoch" in plain(final)
    median = float(re.search(r"median ([\d.]+) ms", plain(final))[1])  # type: ignore[index]
    assert median == pytest.approx(reported["steps"]["median_ns"] / 1e6, rel=0.005)
    steps = plain(final).partition("Time ")[2]
    for part, share in reported["account"].items():
        if share > 0.001:
            found = re.search(rf"{part} +([\d.]+) %", steps)
            assert found, part
            # Shown are tenths that sum to 100.0, so each may be rounded up or down.
            assert float(found[1]) == pytest.approx(100 * share, abs=0.11)
    sentence = " ".join(reported["verdict"]["sentence"].split())
    assert sentence in " ".join(plain(final).split())


@pytest.mark.torch
def test_a_run_shows_itself_on_the_terminal_while_its_output_goes_to_a_file(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the script trains with PyTorch")
    (tmp_path / "train.py").write_text(TRAINING + "print('done', sys.stdin.readline())\nsys.exit(7)\n")
    words = ["run", "--live", "--out", "run", "--", sys.executable, "train.py", "end"]
    job = Top(words, tmp_path, {}, tmp_path / "log.txt")
    try:
        seen = job.expect(
            r"(?s)So far: Data-bound.*Run +launch.*Time   data.*Lines  data +\d+ %  train.py:1[36]"
        )
        assert "q quits" not in seen
        job.press(b"for the program\n")
        (tmp_path / "end").touch()
        assert job.wait() == 7
    finally:
        job.close()
    assert LEAVE_ALTERNATE_SCREEN in job.raw
    log = (tmp_path / "log.txt").read_text()
    assert log.startswith("done for the program\n")
    assert "Data-bound" in log


def test_a_live_view_would_not_mix_with_output_on_the_terminal(tmp_path: Path) -> None:
    job = Top(["run", "--live", "--no-report", "--out", "run", "--", "echo", "mine"], tmp_path, {})
    try:
        assert job.wait() == 0
    finally:
        job.close()
    text = " ".join(plain(job.raw.decode()).split())
    assert "--live needs the terminal for itself" in text
    assert "mine" in text
    assert b"\x1b[?1049h" not in job.raw


def plain(text: str) -> str:
    """Return the text without what colours it."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.mark.parametrize("how", ["q", "interrupt", "end of input", "terminate"])
def test_the_view_is_left_with_the_terminal_as_it_was(how: str, run: Any, show: Callable[..., Top]) -> None:
    view = show(finished(run))
    view.expect("Data-bound")
    assert termios.tcgetattr(view.master)[3] & termios.ICANON == 0
    if how == "terminate":
        os.kill(view.pid, signal.SIGTERM)
    else:
        view.press({"q": b"q", "interrupt": b"\x03", "end of input": b"\x04"}[how])
    assert view.wait() == 0
    assert termios.tcgetattr(view.master) == view.settings
    assert LEAVE_ALTERNATE_SCREEN in view.raw
    assert b"Data-bound" in view.raw.rpartition(LEAVE_ALTERNATE_SCREEN)[2]


def test_control_z_gives_the_terminal_back_until_the_view_is_continued(
    run: Any, show: Callable[..., Top]
) -> None:
    view = show(finished(run))
    view.expect("Data-bound")
    view.press(b"\x1a")
    wait_for(lambda: view.read() or state(view.pid) == "T", lambda: "the view to stop")
    assert termios.tcgetattr(view.master) == view.settings
    view.read()
    assert view.raw.count(LEAVE_ALTERNATE_SCREEN) == 1
    os.kill(view.pid, signal.SIGCONT)
    wait_for(lambda: view.read() or view.raw.count(b"\x1b[?1049h") == 2, lambda: "the view to come back")
    view.expect("(?s)Data-bound.*q quits")
    view.press(b"q")
    assert view.wait() == 0


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_arrow_keys_do_not_quit(run: Any, show: Callable[..., Top]) -> None:
    view = show(finished(run))
    view.expect("Data-bound")
    view.press(b"\x1b[A")
    view.press(b"x")
    view.resize(30, 100)
    view.expect(r"Data-bound")
    assert os.waitpid(view.pid, os.WNOHANG) == (0, 0)


def test_a_run_folder_that_is_deleted_during_the_view_ends_the_view(
    run: Any, show: Callable[..., Top]
) -> None:
    folder = finished(run)
    view = show(folder)
    view.expect("Data-bound")
    shutil.rmtree(folder)
    assert view.wait() == 0
    final = plain(view.raw.rpartition(LEAVE_ALTERNATE_SCREEN)[2].decode())
    assert "The run folder was deleted" in final
    assert "Data-bound" in final


def test_a_job_that_never_trains_is_shown_until_it_is_killed(
    tmp_path: Path, show: Callable[..., Top], start: Callable[..., Any]
) -> None:
    job = start(*wait())
    view = show(tmp_path / "run")
    view.expect(r"(?s)running for.*Procs")
    child = next(int(pid) for pid in re.findall(r" (\d+) +[\d.]+ cores", view.expect("cores")))
    os.kill(child, signal.SIGKILL)
    assert view.wait() == 0
    job.wait(PATIENCE_SECONDS)
    assert "killed by signal 9" in plain(view.raw.rpartition(LEAVE_ALTERNATE_SCREEN)[2].decode())


def test_without_a_terminal_one_snapshot_is_printed(tmp_path: Path, start: Callable[..., Any]) -> None:
    job = start(*wait())
    done = subprocess.run(
        [sys.executable, "-m", "perfwrap", "top", tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert job.poll() is None
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert re.search("running for|started", done.stdout)


def test_without_a_folder_the_newest_run_is_shown(run: Any, tmp_path: Path) -> None:
    folder = finished(run, exit={"code": 0})
    runs = tmp_path / "work" / "perfwrap-runs"
    for name, moment in (("b", 2), ("a", 3), ("c", 1)):
        shutil.copytree(folder, runs / name)
        manifest = json.loads((runs / name / "run.json").read_text())
        manifest["command"], manifest["start"]["wall_ns"] = ["python", f"{name}.py"], moment
        (runs / name / "run.json").write_text(json.dumps(manifest))
    done = subprocess.run(
        [sys.executable, "-m", "perfwrap", "top"], cwd=tmp_path / "work", capture_output=True, text=True
    )
    assert "perfwrap top  python a.py" in done.stdout
    assert "Data-bound: 50 %" in done.stdout


def test_with_no_color_set_nothing_is_coloured(run: Any, show: Callable[..., Top]) -> None:
    view = show(finished(run, exit={"code": 1}), NO_COLOR="1")
    assert view.wait() == 0
    assert b"exit code 1" in view.raw
    assert not re.search(rb"\x1b\[[0-9;]*3[0-7][;m]", view.raw)


def test_a_dumb_terminal_gets_a_snapshot(run: Any, show: Callable[..., Top]) -> None:
    view = show(finished(run), TERM="dumb")
    assert view.wait() == 0
    assert b"Data-bound" in view.raw
    assert b"\x1b[?1049h" not in view.raw


@pytest.mark.parametrize("name", ["gone", "empty", "file"])
def test_what_is_no_run_folder_is_refused_with_a_hint(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("hello")
    with pytest.raises(PerfwrapError) as raised:
        command.top(tmp_path / name)
    assert "perfwrap list" in raised.value.hint


def test_where_nothing_was_ever_run_it_is_said_how_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PerfwrapError) as raised:
        command.top(None)
    assert "perfwrap run" in raised.value.hint
