"""Watch the CPU quota of the control group that the run lives in, versions 1 and 2.

Which files: https://docs.kernel.org/scheduler/sched-bwc.html (version 1) and
https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu (version 2). A group is limited by every group above
it, so all of them are looked at, up to what this mount namespace shows.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from perfwrap.monitors.journal import JournalWriter

NO_LIMIT = 1 << 60
"""Version 1 writes an enormous number where no memory limit is set."""


def groups(controller: str, root: Path = Path("/")) -> list[Path]:
    """Return the folders of this process's group for a controller and of all above it, innermost first.

    Empty when the controller is not mounted. ``root`` is where a test keeps its own /proc and /sys.
    """
    memberships = _memberships(root)
    unified = controller not in memberships
    own = memberships.get("" if unified else controller)
    found = _mount(None if unified else controller, root)
    if own is None or found is None:
        return []
    inside, mount_point = found
    below = own[len(inside) :] if inside != "/" and (own + "/").startswith(inside + "/") else own
    folder = mount_point / below.strip("/")
    if ".." in Path(below).parts or not folder.is_dir():
        # The mount shows another part of the tree than our path tells of, as in a container.
        folder = mount_point
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(mount_point))]


def cpu_quota(folders: list[Path]) -> float | None:
    """Return the tightest CPU quota of these groups in cores; None when nothing limits."""
    quotas = [quota for quota in map(_quota, folders) if quota is not None]
    return min(quotas, default=None)


def memory_limit(folders: list[Path]) -> int | None:
    """Return the tightest memory limit of these groups in bytes; None when nothing limits."""
    texts = [_text(folder / name) for folder in folders for name in ("memory.max", "memory.limit_in_bytes")]
    limits = [int(text) for text in texts if text.isdigit()]
    return min((limit for limit in limits if limit < NO_LIMIT), default=None)


def parse_statistics(text: bytes) -> tuple[int, int | None] | None:
    """Return how much processor time a quota withheld and how much was used, in nanoseconds, from a cpu.stat.

    None when no quota is counted here; the use is None in version 1, which tells it elsewhere.
    """
    words = text.split()
    numbers = dict(zip(words[::2], words[1::2], strict=False))
    if b"throttled_usec" in numbers:
        return int(numbers[b"throttled_usec"]) * 1000, int(numbers[b"usage_usec"]) * 1000
    return (int(numbers[b"throttled_time"]), None) if b"throttled_time" in numbers else None


class Group:
    """One group whose quota is counted."""

    def __init__(self, folder: Path, accounts: Path | None) -> None:
        """Open its files; ``accounts`` is the group's folder of the controller cpuacct, in version 1."""
        self._file = os.open(folder / "cpu.stat", os.O_RDONLY | os.O_CLOEXEC)
        usage = accounts and accounts / "cpuacct.usage"
        self._usage = os.open(usage, os.O_RDONLY | os.O_CLOEXEC) if usage and usage.exists() else None
        self._quota = _quota(folder) or 0.0
        self._last = self._count(time.monotonic_ns())

    def withheld_share(self, now_ns: int) -> float:
        """Return which part of the processor time wanted since the last time the group did not get."""
        before, self._last = self._last, self._count(now_ns)
        withheld, used = (max(0, now - then) for now, then in zip(self._last, before, strict=True))
        return withheld / (withheld + used) if withheld else 0.0

    def close(self) -> None:
        """Let go of its files."""
        for file in filter(None, (self._file, self._usage)):
            os.close(file)

    def _count(self, now_ns: int) -> tuple[int, int]:
        """Return withheld and used time so far; where the use is not told, as much as the quota gives."""
        withheld, used = parse_statistics(os.pread(self._file, 4096, 0)) or (0, None)
        if used is None and self._usage is not None:
            used = int(os.pread(self._usage, 64, 0))
        return withheld, int(self._quota * now_ns) if used is None else used


class CgroupMonitor:
    """Writes ``cgroup throttled_share``: which part of the processor time that was wanted a quota withheld.

    Withheld and used time are both summed over processors, so this is the part of the time for which a thread
    that wanted to run was stopped. Of several groups with a quota, the one that withheld most counts.
    """

    def __init__(self, journal: JournalWriter, found: list[Group]) -> None:
        self._journal, self._groups = journal, found
        self._series = journal.series("cgroup", "throttled_share")

    def quick(self, now_ns: int) -> None:
        """Do nothing: quotas are renewed each tenth of a second, so one look a second is enough."""

    def full(self, now_ns: int) -> None:
        """Write the share of the last second."""
        shares = [group.withheld_share(now_ns) for group in self._groups]
        self._journal.samples(now_ns, [(self._series, max(shares))])

    def close(self) -> None:
        """Let go of the files."""
        for group in self._groups:
            group.close()


def watch(journal: JournalWriter, root: Path = Path("/")) -> CgroupMonitor | None:
    """Start to watch this process's group and those above it, or write down why not."""
    folders, accounts = groups("cpu", root), groups("cpuacct", root)
    pairs = zip(folders, accounts if len(accounts) == len(folders) else [None] * len(folders), strict=True)
    found = [
        Group(folder, account)
        for folder, account in pairs
        if parse_statistics(_text(folder / "cpu.stat").encode())
    ]
    if found:
        return CgroupMonitor(journal, found)
    journal.not_watched("cgroup", "no control group here counts CPU throttling, so no quota limits this run")
    return None


def _memberships(root: Path) -> dict[str, str]:
    """Return the path of this process's group by controller; version 2 under the empty name."""
    found = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller or number == "0":
                found[controller] = path
    return found


def _mount(controller: str | None, root: Path) -> tuple[str, Path] | None:
    """Return what part of the tree is mounted and where; ``controller`` None asks for version 2."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        words, (kind, _, options) = left.split(), right.split(None, 2)
        if kind == "cgroup2" if controller is None else kind == "cgroup" and controller in options.split(","):
            return _unescaped(words[3]), root / _unescaped(words[4]).lstrip("/")
    return None


def _unescaped(path: str) -> str:
    """Return a path of mountinfo as it is: blanks and backslashes stand there as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _quota(folder: Path) -> float | None:
    """Return one group's own quota in cores."""
    words = _text(folder / "cpu.max").split() or [
        _text(folder / "cpu.cfs_quota_us"),
        _text(folder / "cpu.cfs_period_us"),
    ]
    if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    return None


def _text(path: Path) -> str:
    """Return a file's text without its last newline, or nothing when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
