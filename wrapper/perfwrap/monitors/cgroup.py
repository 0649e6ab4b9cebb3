"""Watch the CPU quota of the control group that the run lives in, versions 1 and 2.

Which files: https://docs.kernel.org/scheduler/sched-bwc.html (version 1) and
https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu (version 2). A group is limited by every group above
it, so all of them are looked at, up to what this mount namespace shows.
"""

from __future__ import annotations

import os
import re
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


def parse_throttling(statistics: bytes) -> tuple[int, int] | None:
    """Return how many periods the group ran in and in how many it was stopped; None when not counted."""
    words = statistics.split()
    if b"nr_periods" not in words or b"nr_throttled" not in words:
        return None
    return int(words[words.index(b"nr_periods") + 1]), int(words[words.index(b"nr_throttled") + 1])


class CgroupMonitor:
    """Writes ``cgroup throttled_share``: the share of quota periods in which the group was stopped.

    Of several groups with a quota the one that was stopped most counts. A second in which the group did not
    run at all counts as not throttled.
    """

    def __init__(self, journal: JournalWriter, folders: list[Path]) -> None:
        self._journal = journal
        self._files = [os.open(folder / "cpu.stat", os.O_RDONLY | os.O_CLOEXEC) for folder in folders]
        self._counted = [self._count(file) for file in self._files]
        self._series = journal.series("cgroup", "throttled_share")

    def quick(self, now_ns: int) -> None:
        """Do nothing: quota periods are a tenth of a second long, so one look a second is enough."""

    def full(self, now_ns: int) -> None:
        """Write the share of the last second."""
        before, self._counted = self._counted, [self._count(file) for file in self._files]
        shares = [
            (now[1] - then[1]) / (now[0] - then[0])
            for then, now in zip(before, self._counted, strict=True)
            if now[0] > then[0]
        ]
        self._journal.samples(now_ns, [(self._series, min(1.0, max(shares, default=0.0)))])

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files:
            os.close(file)

    def _count(self, file: int) -> tuple[int, int]:
        return parse_throttling(os.pread(file, 4096, 0)) or (0, 0)


def watch(journal: JournalWriter, root: Path = Path("/")) -> CgroupMonitor | None:
    """Start to watch this process's group, or write down why not."""
    folders = [
        folder for folder in groups("cpu", root) if parse_throttling(_text(folder / "cpu.stat").encode())
    ]
    if folders:
        return CgroupMonitor(journal, folders)
    journal.not_watched(
        "cgroup", "no control group here counts CPU throttling, so no quota limits this process"
    )
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
        _text(folder / "cpu.cfs_quota_us").strip(),
        _text(folder / "cpu.cfs_period_us").strip(),
    ]
    if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    return None


def _text(path: Path) -> str:
    """Return a file's text, or nothing when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
