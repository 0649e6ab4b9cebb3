"""Facts about a process from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from perfwrap.launch.uv_tool import without_tool

RUNNING, STOPPED = "R", "T"
ENDED = ("Z", "X", "x")
"""States, as in proc(5)."""


def status(pid: int) -> tuple[str, int] | None:
    """Return state and start time (fields 3 and 22 of ``stat``), or None if there is no such process."""
    try:
        if Path("/proc/self").readlink().name != str(os.getpid()):
            return None  # The /proc of another pid namespace.
        fields = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    words = fields[fields.rindex(b")") + 2 :].split()
    return words[0].decode(), int(words[19])


def identity() -> dict[str, int | str]:
    """Return what identifies this process: pid, start time, and the namespace of its pid."""
    found = status(os.getpid())
    return {"pid": os.getpid(), "start_ticks": found[1] if found else 0, "namespace": namespace()}


def namespace() -> str:
    """Return which pid namespace this process is in, e.g. ``pid:[4026531836]``; empty if /proc does not contain it."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def runs(pid: int, start_ticks: int) -> bool:
    """Return whether this process still runs."""
    found = status(pid)
    return found is not None and found[1] == start_ticks and found[0] not in ENDED


def is_stopped(pid: int) -> bool:
    """Return whether a job control signal has stopped the process."""
    found = status(pid)
    return found is not None and found[0] == STOPPED


def is_running(pid: int) -> bool:
    """Return whether the process runs or would run if there were a free core."""
    found = status(pid)
    return found is not None and found[0] == RUNNING


def open_descriptors() -> list[int]:
    """Return the open descriptors of this process (the listing's own may be among them)."""
    try:
        return sorted(int(path.name) for path in Path("/proc/self/fd").iterdir())
    except OSError:
        return list(range(1024))


def ancestors() -> Iterator[list[str]]:
    """Return the command lines of this process's parent, its parent's parent and so on, as far as /proc has them."""
    pid = os.getppid()
    while pid > 1:
        folder = Path(f"/proc/{pid}")
        try:
            stat, line = (folder / "stat").read_bytes(), (folder / "cmdline").read_bytes()
        except OSError:
            return
        yield os.fsdecode(line).rstrip("\0").split("\0")
        pid = int(stat[stat.rindex(b")") + 2 :].split()[1])


def descendants(pid: int) -> Iterator[int]:
    """Return the descendants of the process, parents first, without those whose parent has ended."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_bytes()
            except OSError:
                continue
            children.setdefault(int(stat[stat.rindex(b")") + 2 :].split()[1]), []).append(int(entry.name))
    waiting = sorted(children.get(pid, ()))
    while waiting:
        found = waiting.pop(0)
        yield found
        waiting += sorted(children.get(found, ()))


def original_environment() -> dict[str, str]:
    """Return the environment at the start of this process, without what `uv tool run` added to it.

    Not ``os.environ``: in the C locale Python adds LC_CTYPE to it, which the command would inherit.
    """
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return without_tool(os.environ)
    environment: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if equals and name:
            environment.setdefault(os.fsdecode(name), os.fsdecode(value))
    return without_tool(environment)
