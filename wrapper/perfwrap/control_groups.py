"""Reads the kernel's control groups of this process: limits, and processes killed because memory ran out.

Which files: https://docs.kernel.org/admin-guide/cgroup-v2.html (version 2),
https://docs.kernel.org/scheduler/sched-bwc.html and https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
(version 1). A group is limited by every group above it, so all of them are read, as far as this mount namespace
shows them. ``root`` is the folder in which a test has its own /proc and /sys.
"""

from __future__ import annotations

import re
from pathlib import Path

NO_LIMIT = 1 << 60
"""Version 1 shows a number of this size or more if no memory limit is set."""


def groups(controller: str, root: Path = Path("/"), pid: int | None = None) -> list[Path]:
    """Return the folders of a process's group for a controller and of all groups above it, innermost first.

    Without a pid: of this process. Empty if the controller is not mounted.
    """
    memberships = _memberships(root, "self" if pid is None else str(pid))
    unified = controller not in memberships
    own = memberships.get("" if unified else controller)
    found = _mount(None if unified else controller, root)
    if own is None or found is None:
        return []
    inside, mount_point = found
    below = own[len(inside) :] if inside != "/" and (own + "/").startswith(inside + "/") else own
    folder = mount_point / below.strip("/")
    if ".." in Path(below).parts or not folder.is_dir():
        # The mount shows another part of the tree than the process's path, as in a container.
        folder = mount_point
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(mount_point))]


def cpu_quota(folders: list[Path]) -> float | None:
    """Return the lowest CPU quota of these groups in cores; None without a limit."""
    quotas = [found for found in map(quota, folders) if found is not None]
    return min(quotas, default=None)


def quota(folder: Path) -> float | None:
    """Return one group's own CPU quota in cores."""
    words = text(folder / "cpu.max").split() or [
        text(folder / "cpu.cfs_quota_us"),
        text(folder / "cpu.cfs_period_us"),
    ]
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    return None


def memory_limit(folders: list[Path]) -> int | None:
    """Return the lowest memory limit of these groups in bytes; None without a limit."""
    found = tightest_memory(folders)
    return None if found is None else found[1]


def tightest_memory(folders: list[Path]) -> tuple[Path, int] | None:
    """Return the group with the lowest memory limit, and the limit in bytes; None without a limit."""
    limits = []
    for folder in folders:
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = text(folder / name)
            if limit.isdecimal() and int(limit) < NO_LIMIT:
                limits.append((folder, int(limit)))
    return min(limits, key=lambda found: found[1], default=None)


def memory_kills(folders: list[Path]) -> int | None:
    """Return how many processes of the innermost group the kernel killed because memory ran out.

    None if the kernel does not count them: in the root group of version 2, and before Linux 4.13.
    """
    for name in ("memory.events", "memory.oom_control"):
        count = _count(folders[0] / name, "oom_kill") if folders else None
        if count is not None:
            return count
    return None


def memory_shortages(folders: list[Path]) -> int:
    """Return how often one of these groups requested more than its limit."""
    counts = [_count(folder / "memory.events", "oom") for folder in folders]
    counts += [
        int(failures) for folder in folders if (failures := text(folder / "memory.failcnt")).isdecimal()
    ]
    return sum(count for count in counts if count is not None)


def text(path: Path) -> str:
    """Return a small file's text without its last newline; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def unescaped(path: str) -> str:
    """Return a path from mountinfo, where spaces and backslashes are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _count(path: Path, name: str) -> int | None:
    """Return the number after a name in a file of ``name number`` lines."""
    found = re.search(rf"^{name} (\d+)$", text(path), re.MULTILINE)
    return int(found[1]) if found else None


def _memberships(root: Path, process: str) -> dict[str, str]:
    """Return the path of a process's group by controller; version 2 under the empty name."""
    found = {}
    for line in text(root / "proc" / process / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller or number == "0":
                found[controller] = path
    return found


def _mount(controller: str | None, root: Path) -> tuple[str, Path] | None:
    """Return which part of the tree is mounted and where; ``controller`` None means version 2."""
    for line in text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        words, (kind, _, options) = left.split(), right.split(None, 2)
        if kind == "cgroup2" if controller is None else kind == "cgroup" and controller in options.split(","):
            return unescaped(words[3]), root / unescaped(words[4]).lstrip("/")
    return None
