"""How the command ended: exit code or signal, a core dump, and whether memory ran out.

The kernel counts in the control group the processes that it killed because memory ran out, and logs them; a readable
log has the pids. Formats: https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.events)
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
"""The clock of the kernel's log differs slightly from the monotonic one."""
MAX_MESSAGES = 100_000
KILLED = re.compile(
    r"(?:[Oo]ut of memory[^:]*: Kill(?:ed)? process |oom-kill:.*\bpid=)(?P<pid>\d+)(?: \((?P<name>.*?)\))?"
)
INITIAL_PIDS = 0xEFFFFFFC
"""Inode of the first pid namespace (PROC_PID_INIT_INO), whose pids are in the log."""
PID = START_FIELDS.index("pid")


@dataclass(frozen=True)
class MemoryCounts:
    """The counts at one moment."""

    kills: int | None
    """Processes of this process's group that were killed because memory ran out."""
    shortages: int
    """How often a group that limits this process had no memory left."""
    machine_kills: int | None
    """As ``kills``, of the whole machine."""


UNKNOWN = MemoryCounts(None, 0, None)


def count(root: Path = Path("/")) -> MemoryCounts:
    """Return the current counts."""
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
    """Return the processes that the kernel killed because memory ran out; None if none is known to be of this run."""
    now = count(root)
    ours = _more(now.kills, before.kills)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    machine = _more(now.machine_kills, before.machine_kills)
    if not ours and not (killed and now.kills is None and machine):
        return None
    named = _named_in_log(start_ns, root)
    known = None if named is None else sorted(named & ({child} | _recorded(folder)))
    if known == [] and (now.kills is None or status == 0):
        return None  # Other processes of the machine or the group; the command was not affected.
    short = now.shortages > before.shortages
    limit = control_groups.memory_limit(control_groups.groups("memory", root))
    return {
        "processes": ours or machine,
        "scope": "container" if short and limit is not None else "machine",
        "limit_bytes": limit if short else None,
        # Without the log, SIGKILL together with the count is enough evidence.
        "command": (killed and ours > 0) if known is None else child in known,
        "pids": known,
    }


def _more(now: int | None, before: int | None) -> int:
    """Return how much a counter has grown; 0 for a missing one."""
    return max(0, now - before) if now is not None and before is not None else 0


def _recorded(folder: RunFolder) -> set[int]:
    """Return the pids of the Python processes with a start record, here or on another host."""
    lines: list[bytes] = []
    for path in folder.starts.glob("*.log"):
        with suppress(OSError):
            lines += path.read_bytes().splitlines()
    rows = [line.split(b"\t") for line in lines]
    return {int(row[PID]) for row in rows if len(row) > PID and row[PID].isdigit()}


def _named_in_log(start_ns: int, root: Path) -> set[int] | None:
    """Return the pids that the kernel's log says were killed because memory ran out; None if that is unknown."""
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
    """Return the kernel's messages from that time on; each read of the log returns one."""
    found = []
    for _ in range(MAX_MESSAGES):
        try:
            record = os.read(log, 8192).decode("utf-8", "replace")
        except BrokenPipeError:
            continue  # Some were overwritten.
        except OSError:
            break
        if not record:
            break
        for line in record.splitlines():
            head, _, message = line.partition(";")
            words = head.split(",")
            if len(words) > 2 and words[2].isdecimal() and int(words[2]) >= since_us:
                found.append(message)
    return found
