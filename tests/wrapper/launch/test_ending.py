"""The ways in which a command ends are distinguished: code, signal, core dump, out of memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from perfwrap.launch import ending
from perfwrap.run_folder import RunFolder

KILLED, CODE_1 = signal.SIGKILL, 1 << 8
"""Wait statuses."""
SECOND_US = 1_000_000


class Machine:
    """A made-up machine on which some memory runs out."""

    def __init__(self, made_up: Any, folder: Path) -> None:
        self.made_up, self.folder = made_up, RunFolder(folder)
        self.folder.starts.mkdir(parents=True)
        self.group = made_up.version_2() / "work/job"
        made_up.write("proc/vmstat", "nr_free_pages 1\noom_kill 5\n")
        made_up.write(self.group / "memory.max", f"{2 << 30}\n")
        self.count(0, 0)

    def count(self, shortages: int, kills: int) -> None:
        self.made_up.write(self.group / "memory.events", f"max 0\noom {shortages}\noom_kill {kills}\n")

    def find(self, before: ending.MemoryCounts, status: int, child: int = 77) -> dict[str, Any] | None:
        start_ns = 1_000 * SECOND_US * 1000
        return ending.find_out_of_memory(self.folder, child, status, before, start_ns, self.made_up.root)


@pytest.fixture
def machine(made_up: Any, tmp_path: Path) -> Machine:
    return Machine(made_up, tmp_path / "run")


def test_a_signal_is_distinguished_from_a_code() -> None:
    assert ending.describe(3 << 8) == {"code": 3}
    assert ending.describe(signal.SIGTERM) == {"signal": 15}


def test_a_core_dump_is_reported_with_where_cores_go(made_up: Any) -> None:
    made_up.write("proc/sys/kernel/core_pattern", "|/usr/lib/systemd/systemd-coredump %P\n")
    assert ending.describe(signal.SIGSEGV | 0x80, root=made_up.root) == {
        "signal": 11,
        "core_dumped": True,
        "core_pattern": "|/usr/lib/systemd/systemd-coredump %P",
    }


def test_a_kill_that_was_not_counted_is_only_a_signal(machine: Machine) -> None:
    before = ending.count(machine.made_up.root)
    machine.made_up.write("proc/vmstat", "oom_kill 6\n")
    assert machine.find(before, KILLED) is None, "the machine killed somebody, but nobody of our group"


def test_a_limit_that_was_hit_is_the_containers(machine: Machine) -> None:
    before = ending.count(machine.made_up.root)
    machine.count(1, 1)
    assert machine.find(before, KILLED) == {
        "processes": 1,
        "scope": "container",
        "limit_bytes": 2 << 30,
        "command": True,
        "pids": None,
    }


def test_without_a_limit_that_was_hit_the_machine_ran_out(machine: Machine) -> None:
    before = ending.count(machine.made_up.root)
    machine.count(0, 1)
    found = machine.find(before, KILLED)
    assert found is not None
    assert (found["scope"], found["limit_bytes"]) == ("machine", None)


def test_a_command_that_ended_by_itself_was_not_the_one_that_was_killed(machine: Machine) -> None:
    before = ending.count(machine.made_up.root)
    machine.count(1, 1)
    found = machine.find(before, CODE_1)
    assert found is not None
    assert found["command"] is False


LOG = """\
6,100,1000,-;Memory cgroup out of memory: Killed process 5 (an old story), UID 0
6,101,1005000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/work/job,task=python,pid=88,uid=0
 SUBSYSTEM=none
3,102,1005000100,-;Memory cgroup out of memory: Killed process 88 (python) total-vm:12kB, anon-rss:8kB
3,103,1006000100,-;Out of memory: Killed process 999 (somebody else's) total-vm:12kB
"""


def write_log(machine: Machine) -> None:
    machine.made_up.write("dev/kmsg", LOG)
    place = machine.made_up.root / "proc/self/ns"
    place.mkdir(parents=True)
    # The link's inode identifies a pid namespace; a link to our own, if that is the first, is enough.
    (place / "pid").symlink_to("/proc/self/ns/pid")


@pytest.mark.skipif(
    Path("/proc/self/ns/pid").stat().st_ino != ending.INITIAL_PIDS, reason="not in the first pid namespace"
)
def test_the_kernels_log_says_which_processes_of_the_run_were_killed(machine: Machine) -> None:
    write_log(machine)
    line = "start\t88\t1\t5\t9\t3.11\tsitecustomize\tpython worker.py"
    (machine.folder.starts / "host.log").write_text(line + "\n")
    before = ending.count(machine.made_up.root)
    machine.count(1, 1)
    found = machine.find(before, CODE_1)
    assert found is not None
    assert (found["command"], found["pids"]) == (False, [88])
    found = machine.find(before, KILLED, child=88)
    assert found is not None
    assert (found["command"], found["pids"]) == (True, [88])
    assert machine.find(before, 0, child=77) is not None, "a worker was killed, though the command ended well"
    (machine.folder.starts / "host.log").unlink()
    assert machine.find(before, 0, child=77) is None, "others were killed, and the command ended well"
    found = machine.find(before, CODE_1, child=77)
    assert found is not None
    assert (found["command"], found["pids"]) == (False, [])
    (machine.folder.starts / "host.log").write_text(line + "\n")
    found = machine.find(before, KILLED, child=999)
    assert found is not None
    assert found["pids"] == [88, 999]


def test_other_pid_namespaces_do_not_read_the_log(machine: Machine) -> None:
    machine.made_up.write("dev/kmsg", LOG)
    machine.made_up.write("proc/self/ns/pid", "")
    before = ending.count(machine.made_up.root)
    machine.count(1, 1)
    found = machine.find(before, KILLED, child=88)
    assert found is not None
    assert found["pids"] is None


def manifest_of(prefix: list[str]) -> Any:
    return json.loads((Path(prefix[prefix.index("--out") + 1]) / "run.json").read_text())


def test_a_real_core_dump_is_reported(wrap: Any, tmp_path: Path) -> None:
    code = (
        "import os, resource; most = resource.getrlimit(resource.RLIMIT_CORE)[1];"
        "resource.setrlimit(resource.RLIMIT_CORE, (most, most)); os.abort()"
    )
    bare = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import os\nprint(os.fork() or exec({code!r}), flush=True); print(os.WCOREDUMP(os.wait()[1]))",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    if "True" not in bare.stdout:
        pytest.skip("no core is dumped here")
    prefix = wrap("--no-monitors", "--no-report")
    subprocess.run([*prefix, sys.executable, "-c", code], capture_output=True, cwd=tmp_path)
    how = manifest_of(prefix)["exit"]
    assert (how["signal"], how["core_dumped"]) == (signal.SIGABRT, True)
    assert how["core_pattern"] == Path("/proc/sys/kernel/core_pattern").read_text().strip()


def real_group() -> Path:
    """Return a new group with 256 MiB of memory, or skip."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    folder = Path("/sys/fs/cgroup") / ("" if unified else "memory") / f"perfwrap-test-{os.getpid()}"
    limits = (
        {"memory.max": 256 << 20, "memory.swap.max": 0} if unified else {"memory.limit_in_bytes": 256 << 20}
    )
    try:
        folder.mkdir()
        for name, limit in limits.items():
            (folder / name).write_text(str(limit))
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        pytest.skip(f"control groups cannot be made here: {error}")
    return folder


def is_removed(folder: Path) -> bool:
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def test_a_command_that_really_eats_too_much_is_killed_and_the_report_says_so(
    wrap: Any, wait_for: Any
) -> None:
    folder = real_group()
    prefix = wrap("--no-report")
    # The one that eats is what the kernel takes: its score is the highest.
    hog = "open('/proc/self/oom_score_adj', 'w').write('1000')\nheap = []\nwhile True: heap.append(b'x' * (8 << 20))"
    inside = f'echo $$ > {folder}/cgroup.procs; exec "$@"'
    try:
        answer = subprocess.run(
            ["sh", "-c", inside, "-", *prefix, sys.executable, "-c", hog],
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        # The launcher's own helpers need a moment to be gone.
        wait_for(lambda: is_removed(folder), "the group to be empty")
    assert answer.returncode == -signal.SIGKILL, answer.stderr
    memory = manifest_of(prefix)["exit"]["oom_kill"]
    assert (memory["processes"], memory["scope"], memory["limit_bytes"]) == (1, "container", 256 << 20)
    assert memory["command"] is True
    report = subprocess.run(
        [sys.executable, "-m", "perfwrap", "report", prefix[prefix.index("--out") + 1]],
        capture_output=True,
        text=True,
        timeout=120,
    )
    first = " ".join(" ".join(report.stdout.splitlines()[:4]).split())
    assert "killed by SIGKILL: the container ran out of memory (limit 256 MiB)" in first
