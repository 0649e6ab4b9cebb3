"""What is known, without asking a driver, about the machine that the command runs on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes "no limit" as a number just below 2**63."""


def facts() -> dict[str, Any]:
    """Return cores, limits, memory and GPUs of this machine; None where something is not known."""
    groups = _groups()
    return {
        "name": host_name(),
        "kernel": os.uname().release,
        "cpu_model": _field(Path("/proc/cpuinfo"), "model name"),
        "cores_online": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "affinity": sorted(os.sched_getaffinity(0)),
        "cpu_quota_cores": min(filter(None, map(_quota, groups)), default=None),
        "memory_total_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "memory_limit_bytes": min(filter(None, map(_memory, groups)), default=None),
        "gpus": [
            _field(path, "Model") or path.parent.name
            for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        ],
    }


def host_name() -> str:
    """Return this machine's name as the names of journals and start records have it."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", os.uname().nodename) or "host"


def _groups() -> list[Path]:
    """Return the folders of the control groups that this process is in, with those around them."""
    found: list[Path] = []
    for line in (_text(MEMBERSHIP) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        # Version 2 has no controllers in the line; of version 1 only these two limit speed or memory.
        for name in {""} if not controllers else {"cpu", "memory"} & set(controllers.split(",")):
            top = CGROUPS / name
            below = top / path.lstrip("/")
            found += [folder for folder in (below, *below.parents) if folder == top or top in folder.parents]
    return found


def _quota(group: Path) -> float | None:
    """Return how many cores a control group may use."""
    limits = _text(group / "cpu.max")
    words = (
        limits.split() if limits else [_text(group / f"cpu.cfs_{what}_us") for what in ("quota", "period")]
    )
    quota, period = (int(word) if word and re.fullmatch(r"\d+", word) else 0 for word in words)
    return quota / period if quota and period else None


def _memory(group: Path) -> int | None:
    """Return how many bytes a control group may hold."""
    limit = _text(group / "memory.max") or _text(group / "memory.limit_in_bytes") or ""
    return int(limit) if limit.isdigit() and int(limit) < UNLIMITED_BYTES else None


def _text(path: Path) -> str | None:
    """Return a small file's text without its last newline, or None."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _field(path: Path, name: str) -> str | None:
    """Return the value of the first line ``name: value``."""
    found = re.search(rf"^{name}\s*:\s*(.*)$", _text(path) or "", re.MULTILINE)
    return found[1].strip() if found else None
