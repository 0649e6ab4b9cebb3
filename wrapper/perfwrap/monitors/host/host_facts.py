"""The facts about a host: cores, memory, NUMA nodes, processor, driver, machine and container; read once.

Sources: https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-devices-node (NUMA),
https://docs.kernel.org/admin-guide/pm/cpufreq.html (governor) and ABI/testing/sysfs-bus-pci (a device's node).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from perfwrap.control_groups import cpu_quota, groups, memory_limit, text

DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""PCI classes of GPUs: VGA, 3D and other display controllers, and processing accelerators."""
GPU_VENDORS = ("0x10de", "0x1002")
"""NVIDIA and AMD: display controllers of other vendors do not compute."""
CONTAINERS = re.compile(r"[/:](kubepods|docker|libpod|lxc|crio|cri-containerd)(?!\.service)[-/.]")
"""The container engine, by a word in the path of the control group."""
FEATURES = (
    *("avx2", "avx512f"),
    *("avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16"),
    *("asimdhp", "bf16"),
)
"""Vector units of a processor and their arithmetic in 16 bits, as Linux names them: on x86, the last two on Arm."""
MARKERS = {
    ".dockerenv": "docker",
    "run/.containerenv": "podman",
    "singularity": "singularity",
    ".singularity.d": "apptainer",
}
"""Files that container engines create in the root of a container."""


def facts(root: Path = Path("/")) -> dict[str, str]:
    """Return the facts about the host; unknown ones are absent."""
    usable: float = len(os.sched_getaffinity(0))
    found = {"cores_online": str(os.cpu_count()), "cores_affinity": str(int(usable))}
    quota = cpu_quota(groups("cpu", root))
    if quota is not None:
        found["cpu_quota_cores"] = f"{quota:g}"
        usable = min(usable, quota)
    found["cores_usable"] = f"{usable:g}"
    limit = memory_limit(groups("memory", root))
    if limit is not None:
        found["memory_limit_bytes"] = str(limit)
    found["memory_total_bytes"] = str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    found["kernel"] = os.uname().release
    return (
        found | _processor(root) | _shared_memory(root) | _nodes(root) | _drivers(root) | _surroundings(root)
    )


def _processor(root: Path) -> dict[str, str]:
    """Return the processor's model and vector units, and the frequency governor."""
    folder = root / "sys/devices/system/cpu"
    information = text(root / "proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", information, re.MULTILINE)
    governors = sorted({text(path) for path in folder.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""})
    most = text(folder / "cpu0/cpufreq/cpuinfo_max_freq")
    return _known(
        cpu_model=model[1].strip() if model else "",
        cpu_features=_features(information),
        cpu_governor=", ".join(governors),
        cpu_frequency_driver=text(folder / "cpu0/cpufreq/scaling_driver"),
        cpu_max_hertz=str(1000 * int(most)) if most.isdecimal() else "",
        cpu_threads_per_core=_threads_per_core(folder),
    )


def _features(information: str) -> str:
    """Return which of FEATURES the first processor has; "" if it does not say what it has."""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", information, re.MULTILINE)
    if flags is None:
        return ""
    return " ".join(sorted(set(FEATURES) & set(flags[1].split()))) or "none seen"


def _threads_per_core(folder: Path) -> str:
    """Return the number of threads per core: two with hyper-threading."""
    siblings = text(folder / "cpu0/topology/thread_siblings_list")
    return str(_count(siblings)) if siblings else ""


def _shared_memory(root: Path) -> dict[str, str]:
    try:
        status = os.statvfs(root / "dev/shm")
    except OSError:
        return {}
    return {
        "shm_total_bytes": str(status.f_blocks * status.f_frsize),
        "shm_free_bytes": str(status.f_bavail * status.f_frsize),
    }


def _nodes(root: Path) -> dict[str, str]:
    """Return the NUMA nodes with their cores, and the node of each GPU."""
    found = {}
    folders = sorted((root / "sys/devices/system/node").glob("node[0-9]*"))
    for folder in folders:
        found[f"numa/{folder.name.removeprefix('node')}/cpus"] = text(folder / "cpulist")
    if folders:
        found["numa_nodes"] = str(len(folders))
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        if text(device / "vendor") in GPU_VENDORS and text(device / "class").startswith(DISPLAY_CLASSES):
            node = text(device / "numa_node")
            # -1 means unknown, as on many virtual machines.
            found[f"pci/{device.name.lower()}/numa_node"] = node if node.isdecimal() else ""
            found[f"pci/{device.name.lower()}/local_cpus"] = text(device / "local_cpulist")
    return _known(**found)


def _drivers(root: Path) -> dict[str, str]:
    """Return the versions of GPU drivers and of an installed CUDA toolkit, without loading them."""
    nvidia = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text(root / "proc/driver/nvidia/version"))
    toolkit = re.search(
        r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([^"]+)"', text(root / "usr/local/cuda/version.json")
    )
    return _known(
        nvidia_kernel_driver=nvidia[1] if nvidia else "",
        amdgpu_driver=text(root / "sys/module/amdgpu/version"),
        cuda_toolkit=toolkit[1] if toolkit else "",
    )


def _surroundings(root: Path) -> dict[str, str]:
    """Return the kind of machine and of container; ``none seen`` if no container was detected."""
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", text(root / "proc/cpuinfo"), re.MULTILINE)
    hypervisor = text(root / "sys/hypervisor/type")
    names = [text(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    virtual = f"virtual machine{f' ({hypervisor})' if hypervisor else ''}" if flags or hypervisor else ""
    return _known(
        machine=" ".join(name for name in names if name),
        virtualisation=virtual or ("none seen" if (root / "proc/cpuinfo").exists() else ""),
        container=_container(root),
    )


def _container(root: Path) -> str:
    for name, engine in MARKERS.items():
        if (root / name).exists():
            return engine
    found = CONTAINERS.search(text(root / "proc/self/cgroup"))
    return found[1] if found else "none seen"


def _count(numbers: str) -> int:
    """Return the number of items in a list such as ``0-3,8``."""
    count = 0
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count


def _known(**found: str) -> dict[str, str]:
    """Leave out unknown values."""
    return {key: value for key, value in found.items() if value}
