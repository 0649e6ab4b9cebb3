"""How the command ended: exit code or signal, a core dump, and whether memory had run out.

The kernel counts in the control group whom it killed for want of memory, and says so in its log; where the log
may be read, it names the processes. Formats: https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.events)
and https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfwrap import control_groups
from perfwrap.run_folder import START_FIELDS, RunFolder

LOG_SLACK_SECONDS = 60
"""The clock of the kernel's log is not quite the monotonic one."""
MOST_MESSAGES = 100_000
KILLED = re.compile(
    r"(?:[Oo]ut of memory[^:]*: Kill(?:ed)? process |oom-kill:.*\bpid=)(?P<pid>\d+)(?: \((?P<name>.*?)\))?"
)
INITIAL_PIDS = 0xEFFFFFFC
"""Inode of the first pid namespace (PROC_PID_INIT_INO): there the log's pids are ours."""
PID = START_FIELDS.index("pid")


@dataclass(frozen=True)
class MemoryCounts:
    """What had been counted at one moment."""

    kills: int | None
    """Processes of our own group that were killed for want of memory."""
    shortages: int
    """How often a group that limits us had no memory left."""
    machine_kills: int | None
    """As ``kills``, of the whole machine."""


UNKNOWN = MemoryCounts(None, 0, None)


def count(root: Path = Path("/")) -> MemoryCounts:
    """Return the counts of now."""
    folders = control_groups.groups("memory", root)
    killed = re.search(r"^oom_kill (\d+)$", control_groups.text(root / "proc/vmstat"), re.MULTILINE)
    return MemoryCounts(
        control_groups.memory_kills(folders),
        control_groups.memory_shortages(folders),
        int(killed[1]) if killed else None,
    )


def describe(status: int, memory: dict[str, Any] | None = None, root: Path = Path("/")) -> dict[str, Any]:
    """Return the manifest's ``exit`` for a wait status and what is known of memory."""
    how: dict[str, Any] = {"code": os.WEXITSTATUS(status)}
    if os.WIFSIGNALED(status):
        how = {"signal": os.WTERMSIG(status)}
    if os.WCOREDUMP(status):
        how |= {
            "core_dumped": True,
            "core_pattern": control_groups.text(root / "proc/sys/kernel/core_pattern"),
        }
    return how | ({"oom_kill": memory} if memory else {})


def find_out_of_memory(
    folder: RunFolder, child: int, status: int, before: MemoryCounts, start_ns: int, root: Path = Path("/")
) -> dict[str, Any] | None:
    """Return whom the kernel killed for want of memory since then; None when nothing says that it was ours."""
    now = count(root)
    ours = _more(now.kills, before.kills)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    machine = _more(now.machine_kills, before.machine_kills)
    if not ours and not (killed and now.kills is None and machine):
        return None
    named = _named_in_log(start_ns, root)
    known = None if named is None else sorted(named & ({child} | _recorded(folder)))
    if known == [] and (now.kills is None or status == 0):
        return None  # Others of the machine or of the group, and the command did not mind.
    short = now.shortages > before.shortages
    limit = control_groups.memory_limit(control_groups.groups("memory", root))
    return {
        "processes": ours or machine,
        "scope": "container" if short and limit is not None else "machine",
        "limit_bytes": limit if short else None,
        # Without the log, SIGKILL and the count together are as good as a name.
        "command": (killed and ours > 0) if known is None else child in known,
        "pids": known,
    }


def _more(now: int | None, before: int | None) -> int:
    """Return how much a counter has grown; 0 for one that is not there."""
    return max(0, now - before) if now is not None and before is not None else 0


def _recorded(folder: RunFolder) -> set[int]:
    """Return the pids of the Python processes that were reached, here or on another host."""
    lines: list[bytes] = []
    for path in folder.starts.glob("*.log"):
        with suppress(OSError):
            lines += path.read_bytes().splitlines()
    rows = [line.split(b"\t") for line in lines]
    return {int(row[PID]) for row in rows if len(row) > PID and row[PID].isdigit()}


def _named_in_log(start_ns: int, root: Path) -> set[int] | None:
    """Return the pids that the kernel's log says were killed for want of memory; None when it tells nothing."""
    try:
        if (root / "proc/self/ns/pid").stat().st_ino != INITIAL_PIDS:
            return None
        log = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        messages = _messages(log, start_ns // 1000 - LOG_SLACK_SECONDS * 1_000_000)
    finally:
        os.close(log)
    return {int(found["pid"]) for message in messages if (found := KILLED.search(message))} or None


def _messages(log: int, since_us: int) -> list[str]:
    """Return the kernel's messages from then on; each read of the log gives one."""
    found = []
    for _ in range(MOST_MESSAGES):
        try:
            record = os.read(log, 8192).decode("utf-8", "replace")
        except BrokenPipeError:
            continue  # Some were overwritten meanwhile.
        except OSError:
            break
        if not record:
            break
        for line in record.splitlines():
            head, _, message = line.partition(";")
            words = head.split(",")
            if len(words) > 2 and words[2].isdigit() and int(words[2]) >= since_us:
                found.append(message)
    return found
