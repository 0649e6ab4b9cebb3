"""On a terminal, alone or under an interactive shell, a wrapped command behaves as the bare one."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

TALKER = """\
import os, select, signal, sys
def note(number, frame):
    print("got", signal.Signals(number).name, flush=True)
for name in sys.argv[1].split(","):
    signal.signal(getattr(signal, name), note)
print("ready", os.getpid(), os.getppid(), flush=True)
while True:
    # A signal that comes right before a read is handled after it: do not read before there is something.
    while not select.select([0], [], [], 0.05)[0]:
        pass
    print("you said", input(), os.isatty(0), os.get_terminal_size().columns, flush=True)
"""


@pytest.fixture
def talker(tmp_path: Path) -> list[str]:
    """Return a program that prints its input and the signals it gets."""
    script = tmp_path / "talker.py"
    script.write_text(TALKER)
    return [sys.executable, str(script), "SIGINT,SIGQUIT,SIGWINCH,SIGUSR1,SIGHUP"]


@pytest.fixture
def shell(terminal: Any) -> Any:
    """Return an interactive shell with job control, as a user types into."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    opened = terminal(["bash", "--norc", "--noprofile", "-i"])
    opened.expect(r"prompt\$ ")
    opened.send("stty -echo\n")
    opened.expect(r"prompt\$ ")
    return opened


def wait_until_ready(terminal: Any) -> tuple[int, int]:
    ready = terminal.expect(r"ready (\d+) (\d+)\n")
    return int(ready[1]), int(ready[2])


@pytest.mark.parametrize(("key", "name"), [("\x03", "SIGINT"), ("\x1c", "SIGQUIT")])
def test_a_key_that_signals_arrives_once(
    key: str, name: str, prefix: list[str], talker: list[str], terminal: Any
) -> None:
    opened = terminal(prefix + talker)
    pid, parent = wait_until_ready(opened)
    opened.send(key)
    opened.expect(f"got {name}\n")
    os.kill(parent if prefix else pid, signal.SIGUSR1)
    seen = opened.expect(r"(?s)\A(.*)got SIGUSR1\n")
    assert "got" not in seen[1]
    opened.send("\x04")
    assert os.waitstatus_to_exitcode(opened.wait()) == 1  # EOFError


@pytest.mark.parametrize(("key", "name"), [("\x03", "SIGINT"), ("\x1c", "SIGQUIT")])
def test_an_unhandled_key_ends_the_command_and_is_reported(
    key: str, name: str, prefix: list[str], terminal: Any
) -> None:
    opened = terminal([*prefix, "sh", "-c", "ulimit -c 0; echo ready 0 0; exec sleep 600"])
    wait_until_ready(opened)
    opened.send(key)
    assert os.waitstatus_to_exitcode(opened.wait()) == -signal.Signals[name]


def test_a_python_that_is_interrupted_ends_as_bare(prefix: list[str], terminal: Any) -> None:
    code = "import time\nprint('ready 0 0', flush=True)\nwhile True: time.sleep(0.05)"
    opened = terminal([*prefix, sys.executable, "-c", code])
    wait_until_ready(opened)
    opened.send("\x03")
    assert os.waitstatus_to_exitcode(opened.wait()) == -signal.SIGINT
    assert opened.text.count("KeyboardInterrupt") == 1


def test_input_and_a_new_size_arrive(prefix: list[str], talker: list[str], terminal: Any) -> None:
    opened = terminal(prefix + talker)
    pid, parent = wait_until_ready(opened)
    opened.resize(50, 123)
    opened.expect("got SIGWINCH\n")
    opened.send("hello\n")
    opened.expect("you said hello True 123\n")
    os.kill(parent if prefix else pid, signal.SIGUSR1)
    assert "got" not in opened.expect(r"(?s)\A(.*)got SIGUSR1\n")[1]
    opened.send("\x04")
    opened.wait()


def test_ctrl_z_stops_the_job_and_fg_continues_it(
    prefix: list[str], talker: list[str], shell: Any, state: Any
) -> None:
    shell.send(shlex.join(prefix + talker) + "\n")
    pid, _ = wait_until_ready(shell)
    for word in ("once", "twice", "thrice"):
        shell.send("\x1a")
        shell.expect(r"Stopped(.|\n)*prompt\$ ")
        assert state(pid) == "T"
        shell.send("jobs\n")
        shell.expect(r"Stopped(.|\n)*prompt\$ ")
        shell.send("fg\n")
        shell.expect("talker")
        shell.send(word + "\n")
        shell.expect(f"you said {word}")
    shell.send("\x04")
    shell.expect(r"prompt\$ ")
    shell.send("echo status $?\n")
    shell.expect("status 1\n")


def test_a_stopped_job_goes_on_in_the_background(
    prefix: list[str], counter: Any, shell: Any, state: Any, wait_for: Any
) -> None:
    shell.send(shlex.join(prefix + counter.command) + "\n")
    counter.wait_until_ready()
    shell.send("\x1a")
    shell.expect(r"Stopped(.|\n)*prompt\$ ")
    assert state(counter.pid) == "T"
    shell.send("bg\n")
    assert counter.wait_until_seen("CONT") == ["CONT"]
    counter.end()
    shell.send("wait %1; echo status $?\n")
    shell.expect("status 7\n")


def test_ctrl_z_does_nothing_to_a_command_that_ignores_it(
    prefix: list[str], talker: list[str], shell: Any
) -> None:
    shell.send(f"{shlex.join(prefix)} sh -c 'trap \"\" TSTP; exec {shlex.join(talker)}'\n")
    wait_until_ready(shell)
    shell.send("\x1a")
    shell.send("hello\n")
    shell.expect("you said hello")
    shell.send("\x04")
    shell.expect(r"prompt\$ ")
    assert "Stopped" not in shell.text


def test_a_command_that_stops_itself_gives_the_shell_back(prefix: list[str], shell: Any) -> None:
    shell.send(f"{shlex.join(prefix)} sh -c 'kill -STOP $$; echo went on; exit 4'\n")
    shell.expect(r"Stopped(.|\n)*prompt\$ ")
    shell.send("fg\n")
    shell.expect("went on\n")
    shell.expect(r"prompt\$ ")
    shell.send("echo status $?\n")
    shell.expect("status 4\n")


def test_ctrl_c_ends_a_loop_of_the_shell(prefix: list[str], shell: Any) -> None:
    command = shlex.join([*prefix, "sh", "-c", "echo ready 0 0; exec sleep 600"])
    shell.send(f"for i in 1 2 3; do {command}; echo went on; done\n")
    wait_until_ready(shell)
    shell.send("\x03")
    shell.expect(r"prompt\$ ")
    shell.send("echo status $?\n")
    shell.expect("status 130\n")
    assert "went on" not in shell.text


def test_kill_ends_a_stopped_job(prefix: list[str], shell: Any, state: Any, wait_for: Any) -> None:
    shell.send(shlex.join([*prefix, "sh", "-c", "echo ready $$ $PPID; exec sleep 600"]) + "\n")
    pid, parent = wait_until_ready(shell)
    shell.send("\x1a")
    shell.expect(r"Stopped(.|\n)*prompt\$ ")
    shell.send("kill %1\n")
    wait_for(lambda: state(pid) == "Z", "the command's end")
    wait_for(lambda: not prefix or state(parent) == "Z", "the launcher's end")


def test_a_hang_up_reaches_a_command_that_leads_the_session(
    prefix: list[str], counter: Any, terminal: Any
) -> None:
    opened = terminal(prefix + counter.command)
    counter.wait_until_ready()
    opened.hang_up()
    counter.wait_until_seen("HUP")
    os.kill(opened.pid, signal.SIGUSR1)
    seen = counter.wait_until_seen("USR1")
    assert seen.count("HUP") == 1
    counter.end()
    assert os.waitstatus_to_exitcode(opened.wait()) == 7


def test_a_hang_up_reaches_the_job_of_a_shell(
    prefix: list[str], counter: Any, shell: Any, wait_for: Any, state: Any
) -> None:
    shell.send(shlex.join(prefix + counter.command) + "\n")
    counter.wait_until_ready()
    shell.hang_up()
    counter.wait_until_seen("HUP")
    wait_for(lambda: state(shell.pid) == "Z", "the shell's end")
    os.kill(counter.parent if prefix else counter.pid, signal.SIGUSR1)
    seen = counter.wait_until_seen("USR1")
    # bash signals its jobs; its own end signals the foreground again, often before the first is handled.
    assert 1 <= seen.count("HUP") <= 2
    counter.end()
    wait_for(lambda: state(counter.pid) == "Z", "the command's end")


def test_a_hang_up_wakes_a_stopped_command(
    prefix: list[str], counter: Any, terminal: Any, wait_for: Any, state: Any
) -> None:
    opened = terminal(prefix + counter.command)
    counter.wait_until_ready()
    os.kill(counter.pid, signal.SIGSTOP)
    wait_for(lambda: state(counter.pid) == "T" and state(opened.pid) == "T", "the command to stop")
    opened.hang_up()
    counter.wait_until_seen("HUP")
    counter.wait_until_seen("CONT")
    counter.end()
    assert os.waitstatus_to_exitcode(opened.wait()) == 7
