"""What the command holds, only the command holds: pipes end when they would end without perfwrap."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

UNTIL_END = "while [ ! -e end ]; do sleep 0.05; done"


def has_ended(descriptor: int, seconds: float = 60) -> bool:
    """Say whether a pipe ends within that time."""
    while select.select([descriptor], [], [], seconds)[0]:
        if not os.read(descriptor, 4096):
            return True
    return False


@pytest.mark.parametrize("options", [("--no-monitors", "--no-report"), ("--no-report",), ("--no-monitors",)])
def test_a_pipe_ends_with_the_command_and_not_later(
    options: tuple[str, ...], wrap: Any, start: Any, tmp_path: Path
) -> None:
    script = f"echo hi; exec >&-; {UNTIL_END}"
    process = start([*wrap(*options), "sh", "-c", script], stdout=subprocess.PIPE, cwd=tmp_path)
    assert has_ended(process.stdout.fileno())
    assert process.poll() is None
    (tmp_path / "end").touch()
    assert process.wait() == 0


def test_a_pipe_that_a_daemon_holds_stays_open(prefix: list[str], start: Any, tmp_path: Path) -> None:
    process = start([*prefix, "sh", "-c", f"({UNTIL_END}) & echo hi"], stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.wait() == 0
    assert os.read(process.stdout.fileno(), 4096) == b"hi\n"
    assert not has_ended(process.stdout.fileno(), 0)
    (tmp_path / "end").touch()
    assert has_ended(process.stdout.fileno())


def test_a_daemon_that_holds_nothing_delays_nothing(prefix: list[str], start: Any, tmp_path: Path) -> None:
    script = f"({UNTIL_END}) >/dev/null 2>&1 & echo hi"
    process = start(
        [*prefix, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert has_ended(process.stdout.fileno())
    assert has_ended(process.stderr.fileno())
    (tmp_path / "end").touch()
    assert process.wait() == 0


def test_who_feeds_the_command_learns_that_it_stopped_reading(
    prefix: list[str], start: Any, tmp_path: Path
) -> None:
    process = start([*prefix, "sh", "-c", f"exec <&-; {UNTIL_END}"], stdin=subprocess.PIPE, cwd=tmp_path)
    poll = select.poll()
    poll.register(process.stdin.fileno(), 0)
    assert poll.poll(60000)[0][1] & select.POLLERR
    assert process.poll() is None
    (tmp_path / "end").touch()
    process.wait()


def test_monitors_and_canary_hold_nothing_of_the_command_but_where_to_speak(
    wrap: Any, counter: Any, start: Any, wait_for: Any
) -> None:
    process = start(wrap("--no-report") + counter.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    counter.wait_until_ready()
    output, errors = (Path(f"/proc/{counter.pid}/fd/{number}").readlink() for number in (1, 2))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    speaking = 0
    for child in set(map(int, children)) - {counter.pid}:
        held = [one.readlink() for one in Path(f"/proc/{child}/fd").iterdir() if one.exists()]
        assert output not in held
        speaking += errors in held
    assert speaking == 1  # the monitors, which say at once when the training hangs
    counter.end()
    process.communicate()


def test_with_standard_error_closed_nothing_comes_to_standard_output(wrap: Any, tmp_path: Path) -> None:
    command = [*wrap("--out", "/proc/none/x"), sys.executable, "-c", "print('mine')"]
    answer = subprocess.run(["sh", "-c", '"$@" 2>&-', "-", *command], capture_output=True, text=True)
    assert (answer.stdout, answer.stderr) == ("mine\n", "")
