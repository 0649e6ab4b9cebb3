"""Read what /proc tells of one process, as cheaply as it can be had.

The fields are those of https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html. A file of /proc that is
held open stays with its process: once that is gone, reading fails, even when the pid is used again.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
FORKED_WITHOUT_EXEC = 0x40
"""PF_FORKNOEXEC of linux/sched.h."""
LONGEST_COMMAND = 1000
GONE = (FileNotFoundError, ProcessLookupError)


class Stat(NamedTuple):
    """What /proc/PID/stat tells."""

    state: bytes
    parent: int
    flags: int
    major_faults: int
    ticks: int
    """Processor time of all threads, in user and kernel mode."""
    threads: int
    start_ticks: int
    resident_bytes: int


def parse_stat(stat: bytes) -> Stat:
    """Return the fields; the name before them may hold blanks and brackets of its own."""
    words = stat[stat.rindex(b")") + 2 :].split(None, 22)
    return Stat(
        words[0],
        int(words[1]),
        int(words[6]),
        int(words[9]),
        int(words[11]) + int(words[12]),
        int(words[17]),
        int(words[19]),
        int(words[21]) * PAGE_BYTES,
    )


def read_stat(pid: int, proc: Path = PROC) -> Stat | None:
    """Return the process's stat; None when it is gone."""
    try:
        return parse_stat((proc / str(pid) / "stat").read_bytes())
    except GONE:
        return None


def read_numbers(path: str, keys: tuple[bytes, ...]) -> list[int]:
    """Return the numbers that stand behind these keys in a file of ``key: number`` lines."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(file, 8192)
    finally:
        os.close(file)
    numbers = []
    for key in keys:
        begin = text.index(key) + len(key)
        end = text.find(b"\n", begin)
        numbers.append(int(text[begin : end if end >= 0 else None]))
    return numbers


def read_command(pid: int) -> str:
    """Return the process's command line as a shell would take it, cut when it is very long; "" when gone."""
    try:
        with open(PROC / str(pid) / "cmdline", "rb") as file:
            text = file.read(LONGEST_COMMAND)
    except (*GONE, PermissionError):
        return ""
    return shlex.join(text.rstrip(b"\0").decode("utf-8", "replace").split("\0")) if text else ""
