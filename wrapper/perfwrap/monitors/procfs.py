"""Read what /proc tells of one process, as cheaply as it can be had.

The fields are those of https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html. A file of /proc that is
held open stays with its process: once that is gone, reading fails, even when the pid is used again.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import NamedTuple

from perfwrap.redaction import masked_words

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
FORKED_WITHOUT_EXEC = 0x40
"""PF_FORKNOEXEC of linux/sched.h."""
LONGEST_COMMAND = 1000
GONE = (FileNotFoundError, ProcessLookupError)


class Look(NamedTuple):
    """What is wanted of /proc/PID/stat ten times a second."""

    state: bytes
    flags: int
    ticks: int
    """Processor time of all threads, in user and kernel mode."""


class Stat(NamedTuple):
    """What /proc/PID/stat tells."""

    state: bytes
    parent: int
    flags: int
    minor_faults: int
    major_faults: int
    user_ticks: int
    """Processor time of all threads."""
    system_ticks: int
    threads: int
    start_ticks: int
    resident_bytes: int
    block_ticks: int
    """How long the main thread waited for disks; 0 as long as the system does not count that."""


def parse_look(stat: bytes) -> Look:
    """Return the first fields; the name before them may hold blanks and brackets of its own."""
    words = stat[stat.rindex(b")") + 2 :].split(None, 13)
    return Look(words[0], int(words[6]), int(words[11]) + int(words[12]))


def parse_stat(stat: bytes) -> Stat:
    """Return all fields; the name before them may hold blanks and brackets of its own."""
    words = stat[stat.rindex(b")") + 2 :].split(None, 40)
    return Stat(
        state=words[0],
        parent=int(words[1]),
        flags=int(words[6]),
        minor_faults=int(words[7]),
        major_faults=int(words[9]),
        user_ticks=int(words[11]),
        system_ticks=int(words[12]),
        threads=int(words[17]),
        start_ticks=int(words[19]),
        resident_bytes=int(words[21]) * PAGE_BYTES,
        block_ticks=int(words[39]) if len(words) > 39 else 0,
    )


def read_exit(stat: bytes) -> int:
    """Return the wait status of a process that has ended; 0 when it ended well or this user may not know."""
    words = stat[stat.rindex(b")") + 2 :].split()
    return int(words[49]) if len(words) > 49 else 0


def read_stat(pid: int, proc: Path = PROC) -> Stat | None:
    """Return the process's stat; None when it is gone."""
    try:
        return parse_stat((proc / str(pid) / "stat").read_bytes())
    except GONE:
        return None


def read_numbers(path: str, keys: tuple[bytes, ...]) -> list[int]:
    """Return the numbers that stand behind these keys in a file of ``key: number`` lines."""
    return _numbers(_read(path), keys)


def read_status(pid: int, keys: tuple[bytes, ...]) -> tuple[list[int], int | None]:
    """Return numbers of /proc/PID/status, and the bytes of memory that is no file's; None before Linux 4.5."""
    text = _read(f"/proc/{pid}/status")
    words = text.partition(b"\nRssAnon:")[2].split(None, 1)
    return _numbers(text, keys), 1024 * int(words[0]) if words else None


def _numbers(text: bytes, keys: tuple[bytes, ...]) -> list[int]:
    numbers = []
    for key in keys:
        begin = text.index(key) + len(key)
        end = text.find(b"\n", begin)
        numbers.append(int(text[begin : end if end >= 0 else None]))
    return numbers


def read_kibibytes(path: str, key: bytes) -> int:
    """Return in bytes what stands behind a key as ``12 kB``; 0 when it stands nowhere."""
    _, _, behind = _read(path).partition(key)
    words = behind.split(None, 1)
    return 1024 * int(words[0]) if words else 0


def read_waiting(pid: int) -> bytes:
    """Return the kernel's function in which a process's main thread sleeps; empty where it does not say."""
    where = _read(f"/proc/{pid}/wchan")
    return b"" if where == b"0" else where


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 8192)
    finally:
        os.close(file)


def read_command(pid: int) -> str:
    """Return the process's command line for a shell, without secrets, cut when it is very long; "" when gone."""
    try:
        with open(PROC / str(pid) / "cmdline", "rb") as file:
            text = file.read(LONGEST_COMMAND + 1)
    except (*GONE, PermissionError):
        return ""
    if len(text) > LONGEST_COMMAND:  # half a secret would not look like one
        text = text.rpartition(b"\0")[0]
    words = text.rstrip(b"\0").decode("utf-8", "replace").split("\0")
    return shlex.join(masked_words(words)) if text else ""
