"""Facts about the machine that are known at once, without calling a driver."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from perfwrap.control_groups import cpu_quota, groups, memory_limit, text
from perfwrap.run_folder import host_name


def facts(root: Path = Path("/")) -> dict[str, Any]:
    """Return cores, limits, memory and GPUs of this machine; None if something is not known.

    ``root`` is the folder of /proc and /sys, for tests.
    """
    return {
        "name": host_name(),
        "clock": clock_id(root),
        "kernel": os.uname().release,
        "cpu_model": _field(root / "proc/cpuinfo", "model name"),
        "cores_online": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "affinity": sorted(os.sched_getaffinity(0)),
        "cpu_quota_cores": cpu_quota(groups("cpu", root)),
        "memory_total_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "memory_limit_bytes": memory_limit(groups("memory", root)),
        "gpus": [
            _field(path, "Model") or path.parent.name
            for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
        ],
    }


def clock_id(root: Path = Path("/")) -> str | None:
    """Return an id of this machine's CLOCK_MONOTONIC, equal for all that share it; None if unknown.

    It is the id of the kernel's boot and, because containers may have a separate clock, the time namespace.
    """
    boot = text(root / "proc/sys/kernel/random/boot_id").strip()
    try:
        space = str((root / "proc/self/ns/time").readlink())
    except OSError:
        space = ""
    return f"{boot} {space}".strip() if boot else None


def _field(path: Path, name: str) -> str | None:
    """Return the value of the first line ``name: value``."""
    found = re.search(rf"^{name}\s*:\s*(.*)$", text(path), re.MULTILINE)
    return found[1].strip() if found else None
