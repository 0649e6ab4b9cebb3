"""Watching real processes: what they use, who they are, and that they come and go without a trace."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors.monitor_journal import start_ticks
from perfwrap.monitors.processes import processes, procfs
from perfwrap.monitors.processes.processes import ProcessMonitor
from perfwrap.monitors.processes.watched_process import FULL_METRICS, WatchedProcess
from perfwrap.monitors.rounds import SECOND_NS

Start = Callable[..., subprocess.Popen[bytes]]

SPINNING = """
import sys, threading, time
threading.Thread(target=sys.stdin.read, daemon=True).start()
print("ready", flush=True)
while True:
    for number in range(1000):
        pass
"""
WRITING = """
import os, sys
block = bytearray(8 << 20)
with open(sys.argv[1], "wb") as file:
    for line in sys.stdin:
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
        print(line, flush=True)
"""
EXECUTING = """
import os, sys
child = os.fork()
if child == 0:
    sys.stdin.readline()
    os.execv(sys.executable, [sys.executable, "-c", "import sys; print('new', flush=True); sys.stdin.read()"])
print(child, flush=True)
os.waitpid(child, 0)
"""

CHURN = """
import os, sys
children = []
for line in sys.stdin:
    if line == "fork\\n":
        for _ in range(20):
            child = os.fork()
            if child == 0:
                import signal
                signal.pause()
            children.append(child)
    else:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)
        children.clear()
    print("done", flush=True)
"""


@pytest.fixture
def watch(book: Any, tmp_path: Path) -> Callable[..., ProcessMonitor]:
    def start(*pids: int) -> ProcessMonitor:
        (tmp_path / "starts").mkdir()
        return processes.watch(book.writer, tmp_path / "starts", str(tmp_path / "inject"), deque(pids))

    return start


def look(monitor: ProcessMonitor) -> None:
    """Look as if a second had passed since the last time: who sleeps is not looked at more often."""
    monitor.later_ns = getattr(monitor, "later_ns", 0) + SECOND_NS
    now_ns = time.monotonic_ns() + monitor.later_ns
    monitor.quick(now_ns)
    monitor.full(now_ns)


def seconds_used(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_spinning_process_uses_a_core_and_a_waiting_one_does_not(
    book: Any, watch: Callable[..., ProcessMonitor], run_python: Start, wait_for: Any
) -> None:
    spinning, waiting = run_python(SPINNING), run_python("import sys; print(1, flush=True); sys.stdin.read()")
    for process in (spinning, waiting):
        assert process.stdout is not None
        process.stdout.readline()
    monitor = watch(spinning.pid, waiting.pid)
    look(monitor)
    begin = seconds_used(spinning.pid)
    wait_for(lambda: seconds_used(spinning.pid) - begin > 0.3, "the process to spin")
    look(monitor)
    monitor.close()
    content = book.read()
    busy, idle = (content.values(f"process/{p.pid}", "cpu_cores")[-1] for p in (spinning, waiting))
    assert 0 < busy < 2.5
    assert idle < 0.2 * busy
    for metric in FULL_METRICS:
        assert content.values(f"process/{spinning.pid}", metric), metric
    assert content.values(f"process/{spinning.pid}", "threads") == [2.0, 2.0]
    resident = content.values(f"process/{spinning.pid}", "rss_bytes")[-1]
    assert 1 << 20 < resident < 1 << 30
    assert content.values(f"process/{spinning.pid}", "involuntary_switches_per_s")[-1] >= 0
    assert 0 < content.values(f"process/{spinning.pid}", "anonymous_bytes")[-1] < resident


LOCKING = """
import fcntl, sys, threading, time
threading.Thread(target=sys.stdin.read, daemon=True).start()
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
threading.Event().wait()
"""


@pytest.mark.skipif(
    not Path("/proc/self/wchan").exists(), reason="the kernel does not show in what a thread sleeps"
)
def test_a_process_that_waits_for_a_lock_is_distinguished_from_one_that_sleeps(
    book: Any, watch: Callable[..., ProcessMonitor], run_python: Start, wait_for: Any, tmp_path: Path
) -> None:
    locking = LOCKING.replace("sys.argv[1]", repr(str(tmp_path / "lock")))
    holding = run_python(locking)
    assert holding.stdout is not None
    holding.stdout.readline()
    waiting = run_python(locking)
    wait_for(
        lambda: b"lock" in Path(f"/proc/{waiting.pid}/wchan").read_bytes(),
        "the second process to want the lock",
    )
    monitor = watch(waiting.pid, holding.pid)
    now_ns = time.monotonic_ns()
    for number in range(8):
        monitor.quick(now_ns + number)
    monitor.full(now_ns + 8)
    monitor.close()
    content = book.read()
    shares = [
        tuple(
            content.values(f"process/{process.pid}", f"{kind}lock_wait_share")[-1] for kind in ("file_", "")
        )
        for process in (waiting, holding)
    ]
    assert shares == [(1.0, 0.0), (0.0, 1.0)]


def test_what_a_process_writes_is_counted(
    book: Any, watch: Callable[..., ProcessMonitor], run_python: Start, tmp_path: Path
) -> None:
    process = run_python(WRITING.replace("sys.argv[1]", repr(str(tmp_path / "file"))))
    monitor = watch(process.pid)
    look(monitor)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"x\n")
    process.stdin.flush()
    process.stdout.readline()
    look(monitor)
    monitor.close()
    content = book.read()
    if not Path(f"/proc/{process.pid}/io").exists():
        pytest.skip("this kernel does not count the I/O of processes")
    written = content.values(f"process/{process.pid}", "write_bytes_per_s")
    if written == [0.0]:
        pytest.skip("the file system of the temporary folder does not count what is written")
    assert len(written) == 1
    assert written[0] > 1000
    assert content.values(f"process/{process.pid}", "voluntary_switches_per_s")[0] > 0


def test_a_process_is_described_again_when_it_executes_another_program(
    book: Any, watch: Callable[..., ProcessMonitor], run_python: Start
) -> None:
    parent = run_python(EXECUTING)
    assert parent.stdin is not None
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    monitor = watch(parent.pid)
    look(monitor)
    parent.stdin.write(b"go\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == b"new\n"
    look(monitor)
    content = book.read()
    commands = [value for key, value in content.history if key == f"process/{child}/cmdline"]
    assert len(commands) == 2
    assert "os.fork" in commands[0]
    assert "print(" in commands[1]
    assert content.facts[f"process/{child}/ppid"] == str(parent.pid)
    assert content.facts[f"process/{child}/start_ticks"] == str(start_ticks(child))
    os.kill(child, 9)
    monitor.close()


def test_processes_that_come_and_go_leave_nothing_behind(
    book: Any, watch: Callable[..., ProcessMonitor], run_python: Start
) -> None:
    parent = run_python(CHURN)
    assert parent.stdin is not None
    assert parent.stdout is not None
    monitor = watch(parent.pid)
    look(monitor)
    files = open_files()
    for _ in range(25):
        parent.stdin.write(b"fork\n")
        parent.stdin.flush()
        parent.stdout.readline()
        monitor._last_scan_ns = 0
        look(monitor)
        assert len(monitor._watched) == 21
        parent.stdin.write(b"end\n")
        parent.stdin.flush()
        parent.stdout.readline()
        look(monitor)
    assert set(monitor._watched) == {parent.pid}
    assert open_files() <= files  # those of earlier tests may be closed meanwhile
    monitor._last_scan_ns, monitor._newest = 0, b""
    look(monitor)
    assert set(monitor._tree.members) <= {parent.pid}
    assert len(monitor._unreached._expected) <= 1
    monitor.close()
    assert len({key for key in book.read().facts if key.endswith("/cmdline")}) > 100


def test_a_zombie_is_no_longer_watched(
    book: Any, watch: Callable[..., ProcessMonitor], run_python: Start, wait_for: Any
) -> None:
    parent = run_python("import os, sys\nprint(os.fork() or os._exit(0), flush=True); sys.stdin.read()")
    child = run_python("import sys; sys.stdin.read()")
    assert parent.stdout is not None
    grandchild = int(parent.stdout.readline())
    monitor = watch(parent.pid, child.pid)
    look(monitor)
    child.kill()
    for pid in (child.pid, grandchild):
        wait_for(lambda pid=pid: b") Z" in Path(f"/proc/{pid}/stat").read_bytes(), "its end")
    look(monitor)
    assert set(monitor._watched) == {parent.pid}
    look(monitor)
    assert set(monitor._watched) == {parent.pid}, "a zombie does not come back"
    monitor.close()


def test_a_process_that_ended_before_it_could_be_opened_is_no_error(book: Any, run_python: Start) -> None:
    process = run_python("pass")
    process.wait()
    with pytest.raises(processes.GONE):
        WatchedProcess(process.pid, book.writer)


def test_more_processes_than_can_be_watched_are_counted_as_lost(
    book: Any, watch: Callable[..., ProcessMonitor], run_python: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MAX_PROCESSES", 3)
    parent = run_python(CHURN)
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(b"fork\n")
    parent.stdin.flush()
    parent.stdout.readline()
    monitor = watch(parent.pid)
    look(monitor)
    assert len(monitor._watched) == 3
    parent.stdin.write(b"end\n")
    parent.stdin.flush()
    parent.stdout.readline()
    monitor.close()
    assert sum(count for what, count in book.read().lost if what == "processes") == 18


FLOOD = """
import os, signal, sys
for line in sys.stdin:
    for _ in range(int(line)):
        if os.fork() == 0:
            signal.pause()
    print("done", flush=True)
"""


def test_five_hundred_processes_are_all_watched_each_in_its_turn(
    book: Any, watch: Callable[..., ProcessMonitor], run_python: Start
) -> None:
    parent = run_python("import os\nos.setsid()\n" + FLOOD)
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(b"500\n")
    parent.stdin.flush()
    parent.stdout.readline()
    try:
        monitor = watch(parent.pid)
        begin_ns = time.monotonic_ns()
        for second in range(4):
            for tenth in range(10):
                monitor.quick(begin_ns + second * SECOND_NS + tenth * SECOND_NS // 10)
            monitor.full(begin_ns + second * SECOND_NS + SECOND_NS * 9 // 10)
        assert len(monitor._watched) == 501
        monitor.close()
        content = book.read()
        looks = [len(values) for key, values in content.samples.items() if key[1] == "cpu_cores"]
        assert len(looks) == 501, "everybody had a turn"
        assert max(looks) <= 10 + 3 * 2, "after the first second each had one look in eight"
        assert len([key for key in content.samples if key[1] == "rss_bytes"]) == 501
        assert ("processes", 8) in content.thin
        assert content.lost == []
    finally:
        os.killpg(parent.pid, 9)


COMING = """
import os, sys, time
begin, started = time.monotonic(), 0
while started < 300:
    due = int(100 * (time.monotonic() - begin))
    while started < min(due, 300):
        started += 1
        if os.fork() == 0:
            time.sleep(0.3)
            os._exit(0)
    time.sleep(0.005)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""


def test_processes_that_come_and_go_at_a_hundred_a_second_are_seen(
    start_sidecar: Callable[..., Any], run_python: Start
) -> None:
    sidecar = start_sidecar()
    command = run_python(COMING)
    sidecar.watch(command.pid)
    command.wait(timeout=240)
    content = sidecar.finish()
    seen = {key for key in content.facts if key.endswith("/ppid") and content.facts[key] == str(command.pid)}
    assert len(seen) > 30, "as many as there was time to look for; on a quiet machine nearly all of 300"
    assert [what for what, _, duration, note in content.coverage if duration and "stopped" in note] == []
    assert len(content.end) == 1


def test_a_zombie_process_shows_how_it_was_killed(
    book: Any, watch: Callable[..., ProcessMonitor], run_python: Start, wait_for: Any
) -> None:
    parent = run_python("import sys; sys.stdin.read()")
    child = run_python("import sys; sys.stdin.read()")
    monitor = watch(parent.pid, child.pid)
    look(monitor)
    child.kill()
    wait_for(lambda: b") Z" in Path(f"/proc/{child.pid}/stat").read_bytes(), "its end")
    look(monitor)
    monitor.close()
    content = book.read()
    assert content.facts[f"process/{child.pid}/exit"] == "SIGKILL"
    assert content.marks == [("process_killed", f"process/{child.pid}: SIGKILL")]
    assert f"process/{parent.pid}/exit" not in content.facts


def test_memory_is_weighed_when_a_process_has_lived_for_a_while(
    book: Any, watch: Callable[..., ProcessMonitor], run_python: Start
) -> None:
    process = run_python("import sys; print(1, flush=True); sys.stdin.read()")
    assert process.stdout is not None
    process.stdout.readline()
    if not os.access(f"/proc/{process.pid}/smaps_rollup", os.R_OK):
        pytest.skip("this kernel does not sum up what processes share")
    monitor = watch(process.pid)
    look(monitor)
    assert book.read().values(f"process/{process.pid}", "pss_bytes") == []
    for _ in range(12):
        look(monitor)
    monitor.close()
    (weight,) = book.read().values(f"process/{process.pid}", "pss_bytes")
    assert 0 < weight <= book.read().values(f"process/{process.pid}", "rss_bytes")[-1]


def test_a_command_line_that_is_cut_keeps_no_part_of_a_secret() -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    command = [sys.executable, "-c", "input()"]
    padding = "x" * (procfs.LONGEST_COMMAND - len("\0".join(command)) - 22)
    with subprocess.Popen([*command, padding, key], stdin=subprocess.PIPE) as process:
        said = ""
        while not said and process.poll() is None:  # Linux has it a moment after the program has begun
            said = procfs.read_command(process.pid)
        process.kill()
    assert padding in said
    assert key[:10] not in said
