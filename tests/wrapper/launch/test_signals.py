"""Signals reach a wrapped command as they would reach it bare: as often, and with the same effect."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SIGNALS = ["TERM", "INT", "USR1", "USR2", "HUP"]


def number(name: str) -> signal.Signals:
    return signal.Signals[f"SIG{name}"]


def other(name: str) -> str:
    """Return the signal that is sent last, to know that all before it have been dealt with."""
    return "USR1" if name != "USR1" else "USR2"


def is_pending(pid: int, number: int) -> bool:
    """Return whether that signal is pending; a second one that arrives while it is pending is merged with it."""
    status = Path(f"/proc/{pid}/status").read_text()
    pending = next(line for line in status.splitlines() if line.startswith("ShdPnd:")).split()[1]
    return bool(int(pending, 16) & 1 << number - 1)


@pytest.mark.parametrize("name", [*SIGNALS, "WINCH"])
def test_a_signal_to_the_pid_arrives_once(name: str, prefix: list[str], counter: Any, start: Any) -> None:
    process = start(prefix + counter.command)
    counter.wait_until_ready()
    process.send_signal(number(name))
    counter.wait_until_seen(name)
    process.send_signal(number(other(name)))
    assert counter.wait_until_seen(other(name)) == [name, other(name)]
    counter.end()
    assert process.wait() == 7


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_to_the_group_arrives_once(name: str, prefix: list[str], counter: Any, start: Any) -> None:
    process = start(prefix + counter.command)
    counter.wait_until_ready()
    os.killpg(process.pid, number(name))
    counter.wait_until_seen(name)
    process.send_signal(number(other(name)))
    assert counter.wait_until_seen(other(name)) == [name, other(name)]
    counter.end()
    assert process.wait() == 7


@pytest.mark.parametrize("name", SIGNALS)
def test_gnu_timeout_signals_pid_and_group_and_one_arrives(
    name: str, wrap: Any, counter: Any, start: Any
) -> None:
    if shutil.which("timeout") is None:
        pytest.skip("there is no timeout(1)")
    process = start(["timeout", "-s", name, "600", *wrap(), *counter.command])
    counter.wait_until_ready()
    process.send_signal(signal.SIGALRM)  # What its timer would do.
    counter.wait_until_seen(name)
    os.kill(counter.parent, number(other(name)))
    seen = counter.wait_until_seen(other(name))
    assert [one for one in seen if one != "CONT"] == [name, other(name)]  # timeout sends CONT, too.
    counter.end()
    assert process.wait() == 124


def test_a_sender_held_up_between_pid_and_group_sends_one(wrap: Any, counter: Any, start: Any) -> None:
    process = start(wrap() + counter.command)
    counter.wait_until_ready()
    held_up = "end = time.monotonic() + 0.12\nwhile time.monotonic() < end: pass"
    code = f"import os, time\nos.kill({process.pid}, 10)\n{held_up}\nos.killpg({process.pid}, 10)"
    subprocess.run([sys.executable, "-c", code], check=True)
    counter.wait_until_seen("USR1")
    process.send_signal(signal.SIGUSR2)
    assert counter.wait_until_seen("USR2") == ["USR1", "USR2"]
    counter.end()
    assert process.wait() == 7


def test_signals_one_after_the_other_all_arrive(wrap: Any, counter: Any, start: Any) -> None:
    process = start(wrap() + counter.command)
    counter.wait_until_ready()
    names = ["USR1", "USR2", "WINCH", "HUP", "TERM", "USR1", "INT"]
    for name in names:
        before = len(counter.lines())
        process.send_signal(number(name))
        while len(counter.lines()) == before:
            assert process.poll() is None
    assert counter.lines()[1:] == names
    counter.end()
    assert process.wait() == 7


def test_one_signal_to_the_pid_after_one_of_another_sender_to_the_group_arrives(
    wrap: Any, counter: Any, start: Any, wait_for: Any
) -> None:
    process = start(wrap() + counter.command)
    counter.wait_until_ready()
    os.killpg(process.pid, signal.SIGUSR1)
    counter.wait_until_seen("USR1")
    wait_for(lambda: not is_pending(process.pid, signal.SIGUSR1), "the launcher to take the first")
    subprocess.run([sys.executable, "-c", f"import os; os.kill({process.pid}, {int(signal.SIGUSR1)})"])
    # Of two that arrive at once, Python may run the second one's handler inside the first one's.
    wait_for(lambda: counter.lines()[1:] == ["USR1", "USR1"], "the second to arrive", counter.lines)
    process.send_signal(signal.SIGUSR2)
    assert counter.wait_until_seen("USR2") == ["USR1", "USR1", "USR2"]
    counter.end()
    assert process.wait() == 7


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "ALRM", "ABRT"])
def test_an_unhandled_signal_ends_the_command_and_is_reported(
    name: str, prefix: list[str], start: Any, wait_for: Any, tmp_path: Path
) -> None:
    process = start([*prefix, "sh", "-c", f"ulimit -c 0; : > {tmp_path}/ready; exec sleep 600"])
    wait_for((tmp_path / "ready").exists, "the command's start")
    process.send_signal(number(name))
    assert process.wait() == -number(name)


def test_what_pkill_sends_to_all_that_match_the_command_arrives_once(
    wrap: Any, counter: Any, start: Any
) -> None:
    if shutil.which("pkill") is None:
        pytest.skip("there is no pkill(1)")
    process = start(wrap() + counter.command)
    counter.wait_until_ready()
    assert subprocess.run(["pkill", "-USR1", "-f", str(counter.log)]).returncode == 0
    counter.wait_until_seen("USR1")
    process.send_signal(signal.SIGUSR2)
    assert counter.wait_until_seen("USR2") == ["USR1", "USR2"]
    counter.end()
    process.wait()


def test_what_pkill_sends_to_perfwrap_arrives_in_the_command(wrap: Any, counter: Any, start: Any) -> None:
    if shutil.which("pkill") is None:
        pytest.skip("there is no pkill(1)")
    process = start(wrap() + counter.command)
    counter.wait_until_ready()
    out = wrap()[wrap().index("--out") + 1].rstrip("0123456789")
    assert subprocess.run(["pkill", "-USR1", "-f", f"perfwrap run --out {out}"]).returncode == 0
    counter.wait_until_seen("USR1")
    process.send_signal(signal.SIGUSR2)
    assert counter.wait_until_seen("USR2") == ["USR1", "USR2"]
    counter.end()
    process.wait()


def test_an_alarm_set_before_the_execution_ends_the_command(prefix: list[str], start: Any) -> None:
    code = "import os, signal, sys; signal.alarm(2); os.execvp(sys.argv[1], sys.argv[1:])"
    process = start([sys.executable, "-c", code, *prefix, "sleep", "600"])
    assert process.wait() == -signal.SIGALRM


def test_a_signal_that_the_command_sends_to_its_parent_reaches_who_would_have_been_it(
    prefix: list[str], tmp_path: Path
) -> None:
    script = "import os, signal; os.kill(os.getppid(), signal.SIGUSR1); signal.sigtimedwait([], 1)"
    waiter = (
        "import signal, subprocess, sys; signal.pthread_sigmask(0, [signal.SIGUSR1]);"
        "child = subprocess.Popen(sys.argv[1:]); got = signal.sigtimedwait([signal.SIGUSR1], 60);"
        "print(got is not None, child.wait())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", waiter, *prefix, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert answer.stdout == "True 0\n"


def test_a_stopped_job_continues_as_a_whole(
    prefix: list[str], counter: Any, start: Any, wait_for: Any, state: Any
) -> None:
    process = start(prefix + counter.command)
    counter.wait_until_ready()
    process.send_signal(signal.SIGTSTP)
    # In an orphaned process group, as here, the kernel ignores terminal stops, for the bare command, too.
    os.kill(counter.pid, signal.SIGSTOP)
    wait_for(lambda: state(counter.pid) == "T" and state(process.pid) == "T", "both to stop")
    process.send_signal(signal.SIGCONT)
    assert counter.wait_until_seen("CONT") == ["CONT"]
    counter.end()
    assert process.wait() == 7


STOPPED_ANEW = """\
import os, signal, subprocess
from perfwrap.launch.signals import OriginalSignals, Supervisor

class Late:
    # A canary that the second stop has robbed of the SIGCONT before.
    pid = -1
    def saw(self, number, sender, moment):
        if number == signal.SIGCONT:
            os.kill(child, signal.SIGSTOP)
            os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)
        return False
    def wake_launcher_when_runs(self, child):
        pass

original = OriginalSignals()
child = os.fork()
if child == 0:
    original.restore()
    os.execvp("sleep", ["sleep", "600"])
print(child, flush=True)
subprocess.run(["sh", "-c", f"kill -CONT {os.getpid()}"])
Supervisor(Late()).wait(child)
"""


def test_a_stop_right_after_a_continuation_holds(start: Any, wait_for: Any, state: Any) -> None:
    process = start([sys.executable, "-c", STOPPED_ANEW], stdout=subprocess.PIPE)
    child = int(process.stdout.readline())
    wait_for(lambda: state(process.pid) == "T" and state(child) == "T", "both to stop")


def test_the_launcher_goes_on_when_only_the_command_is_continued(
    wrap: Any, counter: Any, start: Any, wait_for: Any, state: Any
) -> None:
    process = start(wrap() + counter.command)
    counter.wait_until_ready()
    os.kill(counter.pid, signal.SIGSTOP)
    wait_for(lambda: state(process.pid) == "T", "the launcher to stop with the command")
    os.kill(counter.pid, signal.SIGCONT)
    wait_for(lambda: state(process.pid) != "T", "the launcher to go on with the command")
    counter.end()
    assert process.wait() == 7


def test_signals_arrive_even_when_the_canary_is_dead(
    wrap: Any, counter: Any, start: Any, wait_for: Any, state: Any
) -> None:
    process = start(wrap() + counter.command)
    counter.wait_until_ready()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in set(map(int, children)) - {counter.pid}:
        os.kill(child, signal.SIGKILL)
        wait_for(lambda child=child: state(child) == "Z", "the canary's end")
    process.send_signal(signal.SIGUSR1)
    counter.wait_until_seen("USR1")
    counter.end()
    assert process.wait() == 7


@pytest.mark.parametrize("options", [[], ["--ignore", "slow_start"]])
def test_no_other_thread_of_the_launcher_takes_a_signal(options: list[str], wrap: Any) -> None:
    reader = (
        "import os, pathlib\n"
        "for task in pathlib.Path(f'/proc/{os.getppid()}/task').iterdir():\n"
        "    for line in (task / 'status').read_text().splitlines():\n"
        "        if line.startswith('SigBlk') and task.name != str(os.getppid()): print(line.split()[1])"
    )
    command = [*wrap("--no-monitors", "--no-report", *options), sys.executable, "-c", reader]
    masks = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert len(masks) >= (1 if options else 0)
    asked = sum(1 << number - 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1))
    assert all(int(mask, 16) & asked == asked for mask in masks)
