"""Commands, bare and wrapped, on terminals and in process groups of their own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PATIENCE_SECONDS = 200
"""How long a condition may take on a machine that does ten other things; only failures take so long."""

COUNTER = """\
import os, signal, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(number, frame):
    os.write(log, (signal.Signals(number).name[3:] + "\\n").encode())
for name in sys.argv[2].split(","):
    signal.signal(getattr(signal, "SIG" + name), note)
os.write(log, f"ready {os.getpid()} {os.getppid()}\\n".encode())
while not os.path.exists(sys.argv[1] + ".end"):
    signal.sigtimedwait([], 0.02)
sys.exit(7)
"""
"""Notes each signal, in order, in a file, until a file beside it appears."""


@pytest.fixture(autouse=True)
def signals_arrive() -> Iterator[None]:
    """Take signals as usual where the tests run under nohup or in a script's background.

    There SIGHUP, or SIGINT and SIGQUIT, are ignored, which all commands inherit.
    """
    usual = {
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
        signal.SIGQUIT: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, action) for number, action in usual.items()}
    yield
    for number, action in before.items():
        signal.signal(number, action)


def wait_for(condition: Callable[[], object], what: str, so_far: Callable[[], object] = str) -> object:
    """Return the first true value of the condition; fail when there is none in time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}; so far: {so_far()!r}"
        select.select([], [], [], 0.01)
    return value


def state(pid: int) -> str:
    """Return the letter of the process's state; Z when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


class Counter:
    """A Python process that counts signals, seen from outside."""

    def __init__(self, folder: Path, names: str = "INT,TERM,HUP,USR1,USR2,WINCH,CONT") -> None:
        self.log = folder / "signals"
        script = folder / "counter.py"
        script.write_text(COUNTER)
        self.command = [sys.executable, str(script), str(self.log), names]

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def wait_until_ready(self) -> None:
        wait_for(self.lines, "the counter's start")
        _, pid, parent = self.lines()[0].split()
        self.pid, self.parent = int(pid), int(parent)

    def wait_until_seen(self, name: str) -> list[str]:
        """Return all signals seen when that one has been."""
        wait_for(lambda: name in self.lines()[1:], f"{name} to arrive", self.lines)
        return self.lines()[1:]

    def end(self) -> None:
        Path(f"{self.log}.end").touch()


@pytest.fixture
def counter(tmp_path: Path) -> Counter:
    return Counter(tmp_path)


@pytest.fixture
def wrap(tmp_path: Path) -> Callable[..., list[str]]:
    """Return what stands before a command to run it wrapped, each time with a new run folder.

    ``changed`` is code that runs in the launcher's process before perfwrap does.
    """
    runs = iter(range(1000))

    def prefix(*options: str, changed: str = "") -> list[str]:
        quick = options or ("--no-monitors", "--no-report")
        out = [] if "--out" in options else ["--out", str(tmp_path / f"run{next(runs)}")]
        main = ["-c", f"{changed}\nfrom perfwrap.cli import main\nmain()"] if changed else ["-m", "perfwrap"]
        return [sys.executable, *main, "run", *out, *quick, "--"]

    return prefix


@pytest.fixture(params=["bare", "wrapped"])
def prefix(request: pytest.FixtureRequest, wrap: Callable[..., list[str]]) -> list[str]:
    """Both ways to run a command: what holds for one must hold for the other."""
    return wrap() if request.param == "wrapped" else []


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test leaves behind when it fails."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def start(processes: list[subprocess.Popen[bytes]]) -> Callable[..., subprocess.Popen[bytes]]:
    """Start a command in a process group of its own, as a shell's job."""

    def popen(command: list[str], **settings: object) -> subprocess.Popen[bytes]:
        settings = {"stdin": subprocess.DEVNULL, "start_new_session": True, **settings}
        processes.append(subprocess.Popen(command, **settings))  # type: ignore[call-overload]
        return processes[-1]

    return popen


class Terminal:
    """A command on a terminal of its own, as its session's leader."""

    def __init__(self, command: list[str], folder: Path) -> None:
        environment = {**os.environ, "PS1": "prompt$ ", "TERM": "dumb", "HISTFILE": "/dev/null"}
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        self.text = ""
        self._status: int | None = None

    def read(self) -> bool:
        """Take in what was printed; False at the end."""
        if not select.select([self.master], [], [], 0.02)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until the pattern stands in what was printed since the last one, and go past it."""

        def found() -> re.Match[str] | None:
            self.read()
            return re.search(pattern, self.text, re.MULTILINE)

        match = wait_for(found, repr(pattern), lambda: self.text)
        assert isinstance(match, re.Match)
        self.text = self.text[match.end() :]
        return match

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1

    def wait(self) -> int:
        """Return the wait status."""

        def ended() -> bool:
            if self._status is None:
                if self.master >= 0:
                    self.read()
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._status = status if pid else None
            return self._status is not None

        wait_for(ended, "the command's end", lambda: self.text)
        while self.master >= 0 and select.select([self.master], [], [], 0)[0] and self.read():
            pass  # One read returns at most some 4,000 bytes.
        assert self._status is not None
        return self._status

    def close(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.master >= 0:
            os.close(self.master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[[list[str]], Terminal]]:
    """Start commands on terminals."""
    opened: list[Terminal] = []

    def start(command: list[str]) -> Terminal:
        opened.append(Terminal(command, tmp_path))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture(name="wait_for")
def wait_for_fixture() -> Callable[[Callable[[], object], str], object]:
    return wait_for


@pytest.fixture(name="state")
def state_fixture() -> Callable[[int], str]:
    return state
