"""Read the facts of /proc about one process, as cheaply as possible.

The fields are those of https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html. An open
file of /proc stays bound to its process: once that has ended, reading fails, even if the pid is reused.
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


class StatSample(NamedTuple):
    """The fields of /proc/PID/stat that are read ten times a second."""

    state: bytes
    flags: int
    ticks: int
    """CPU time of all threads, in user and kernel mode."""


class Stat(NamedTuple):
    """The fields of /proc/PID/stat."""

    state: bytes
    parent: int
    flags: int
    minor_faults: int
    major_faults: int
    user_ticks: int
    """CPU time of all threads."""
    system_ticks: int
    threads: int
    start_ticks: int
    resident_bytes: int
    block_ticks: int
    """How long the main thread waited for disks; 0 if the system does not count that."""


def parse_sample(stat: bytes) -> StatSample:
    """Return the first fields; the name before them may contain blanks and brackets."""
    words = stat[stat.rindex(b")") + 2 :].split(None, 13)
    return StatSample(words[0], int(words[6]), int(words[11]) + int(words[12]))


def parse_stat(stat: bytes) -> Stat:
    """Return all fields; the name before them may contain blanks and brackets."""
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
    """Return the wait status of a process that has ended; 0 if it succeeded or this user may not read it."""
    words = stat[stat.rindex(b")") + 2 :].split()
    return int(words[49]) if len(words) > 49 else 0


def read_stat(pid: int, proc: Path = PROC) -> Stat | None:
    """Return the stat of the process; None if it has ended."""
    try:
        return parse_stat((proc / str(pid) / "stat").read_bytes())
    except GONE:
        return None


def read_numbers(path: str, keys: tuple[bytes, ...]) -> list[int]:
    """Return the numbers of these keys in a file of ``key: number`` lines."""
    return _numbers(_read(path), keys)


def read_status(pid: int, keys: tuple[bytes, ...]) -> tuple[list[int], int | None]:
    """Return numbers of /proc/PID/status, and the bytes of memory that is not file-backed; None before Linux 4.5."""
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
    """Return the bytes of a key whose value is e.g. ``12 kB``; 0 if the key is missing."""
    _, _, behind = _read(path).partition(key)
    words = behind.split(None, 1)
    return 1024 * int(words[0]) if words else 0


def read_waiting(pid: int) -> bytes:
    """Return the kernel function in which the main thread of a process sleeps; empty if unknown."""
    where = _read(f"/proc/{pid}/wchan")
    return b"" if where == b"0" else where


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 8192)
    finally:
        os.close(file)


def read_command(pid: int) -> str:
    """Return the process's command line for a shell, without secrets, cut if very long; "" if it has ended."""
    try:
        with open(PROC / str(pid) / "cmdline", "rb") as file:
            text = file.read(LONGEST_COMMAND + 1)
    except (*GONE, PermissionError):
        return ""
    if len(text) > LONGEST_COMMAND:  # half a secret would not be recognized
        text = text.rpartition(b"\0")[0]
    words = text.rstrip(b"\0").decode("utf-8", "replace").split("\0")
    return shlex.join(masked_words(words)) if text else ""
