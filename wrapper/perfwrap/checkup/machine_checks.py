"""What the monitors see on this machine, which tools are installed, and where runs can be written and read."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from perfwrap import units
from perfwrap.checkup.check_line import Line
from perfwrap.errors import PerfwrapError
from perfwrap.journal_words import Words, read_words
from perfwrap.monitors.gpu import nvidia
from perfwrap.monitors.host import cgroup
from perfwrap.monitors.host import host_load as host
from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.pyspy import pyspy_tool
from perfwrap.run_folder import RUNS, here

PATIENCE_SECONDS = 60
SEGMENT_BYTES = 1 << 20
PTRACE_BIT = 19
"""CAP_SYS_PTRACE."""
NVTX_MACHINES = ("x86_64", "aarch64")
"""The machines for which PyPI has wheels of nvtx."""
TOOLS = {
    "nsys": ("Nsight Systems", ("/opt/nvidia/nsight-systems/*/bin/nsys", "/usr/local/cuda/bin/nsys")),
    "ncu": ("Nsight Compute", ("/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda/bin/ncu")),
}
"""The command, its name, and where its installer puts it without adding it to PATH."""


def examine_monitors() -> list[Line]:
    """Return what the host, control group and GPU monitors see; each is started."""
    with tempfile.TemporaryDirectory(prefix="perfwrap-doctor-") as folder:
        journal = JournalWriter(Path(folder), "doctor")
        for monitor in (host.watch(journal), cgroup.watch(journal), nvidia.watch(journal)):
            if monitor is not None:
                monitor.close()
        journal.close()
        words = read_words(journal.path)
    return [_host(words), _quota(words), _gpus(words)]


def examine_tools() -> list[Line]:
    """Return which tools are installed beside perfwrap; none is needed to record."""
    return [*(_tool(command) for command in TOOLS), _py_spy(), _nvtx()]


def examine_run_folder(parent: Path) -> Line:
    """Return whether a run can be written into a folder, by trying."""
    what = "run folder"
    try:
        parent = here(parent)
        with (
            tempfile.TemporaryDirectory(prefix=".perfwrap-doctor-", dir=parent) as folder,
            open(Path(folder, "journal"), "wb") as file,
        ):
            os.posix_fallocate(file.fileno(), 0, SEGMENT_BYTES)
        free = shutil.disk_usage(parent).free
    except PerfwrapError as error:
        return Line("no", what, f"{error} {error.hint}")
    except OSError as error:
        return Line(
            "no", what, f"cannot write to {parent}: {error.strerror}; choose another folder with --out DIR"
        )
    return Line("yes", what, f"{parent / RUNS} ({units.size(free)} free)")


def examine_reading() -> Line:
    """Return whether reports can be made on this machine; tried in another process, because a library may crash."""
    code = "import polars, numpy, rich; print(polars.__version__)"
    answer = _answer([sys.executable, "-c", code])
    if answer is not None and answer.returncode == 0:
        return Line("yes", "reports", f"polars {answer.stdout.strip()}")
    why = answer.stderr.strip().splitlines()[-1:] if answer is not None else []
    reason = why[0] if why else "polars cannot be loaded"
    return Line("no", "reports", f"{reason}; runs can be recorded here and read on another machine")


def _host(words: Words) -> Line:
    facts = words.facts
    memory = units.size(float(facts["memory_total_bytes"]))
    cores = f"{facts['cores_usable']} of {facts['cores_online']} cores usable, {memory} of memory"
    missing = [f"{what}: {note}" for what, _, note in words.coverage if what.startswith(("memory", "disk"))]
    detail = "; ".join([cores, f"shared memory {_size(facts.get('shm_total_bytes'))}", *missing])
    return Line("partly" if missing else "yes", "host", detail)


def _quota(words: Words) -> Line:
    notes = words.notes("cgroup") + words.notes("cgroup quota")
    quota = words.facts.get("cpu_quota_cores")
    limit = words.facts.get("memory_limit_bytes")
    limits = [f"CPU limit {quota} cores" if quota else "no CPU limit"]
    limits += [f"memory limit {_size(limit)}"] if limit else []
    return Line("partly" if notes else "yes", "control group", "; ".join([*limits, *notes]))


def _gpus(words: Words) -> Line:
    names = [value for key, value in words.facts.items() if key.startswith("gpu/") and key.endswith("/name")]
    missing = [
        note if what == "gpu" else f"{what}: {note}"
        for what, _, note in words.coverage
        if what.startswith("gpu") and note
    ]
    if not names:
        return Line("no", "GPU", "; ".join(missing))
    driver = words.facts.get("nvidia_driver")
    detail = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    detail += [f"driver {driver}"] if driver else []
    return Line("partly" if missing else "yes", "GPU", "; ".join([*detail, *missing]))


def _size(byte_count: str | None) -> str:
    return units.size(float(byte_count) if byte_count is not None else None)


def _tool(command: str) -> Line:
    """Return whether a command line tool of NVIDIA is installed."""
    name, places = TOOLS[command]
    path = shutil.which(command)
    if path is not None:
        return Line("yes", command, f"{path}{_version(path)}")
    elsewhere = [str(found) for place in places for found in sorted(Path("/").glob(place.lstrip("/")))]
    hint = f" (found at {elsewhere[-1]})" if elsewhere else ""
    return Line(
        "no", command, f"{name} is not on PATH{hint}; optional, for `perfwrap run --{command}` on GPUs"
    )


def _py_spy() -> Line:
    """Return whether py-spy is installed and is permitted to read processes that it did not start."""
    path = pyspy_tool.find()
    if path is None:
        why = _absence("py-spy", pyspy_tool.MACHINES)
        detail = f"{why}; without it reports name no hot lines of model, loss and dataset"
        return Line("no", "py-spy", detail)
    scope = _text("/proc/sys/kernel/yama/ptrace_scope")
    if scope in ("", "0") or _may_trace():
        return Line("yes", "py-spy", f"{path}{_version(path)}")
    if scope == "1":
        detail = f"{path}{_version(path)}; `perfwrap attach` is forbidden by kernel.yama.ptrace_scope=1"
        return Line("partly", "py-spy", detail)
    return Line("no", "py-spy", f"{path}; forbidden by kernel.yama.ptrace_scope={scope}")


def _nvtx() -> Line:
    """Return whether nvtx is installed here; programs of other environments use their own."""
    try:
        return Line("yes", "nvtx", f"{metadata.version('nvtx')}, for ranges of `perfwrap run --nsys`")
    except metadata.PackageNotFoundError:
        why = f"{_absence('nvtx', NVTX_MACHINES)}; ranges for nsys then come from torch.cuda.nvtx"
        return Line("no", "nvtx", why)


def _absence(package: str, machines: tuple[str, ...]) -> str:
    """Return why a package that belongs to perfwrap's dependencies is missing, and what to do."""
    if platform.machine() not in machines:
        return f"not installed, because PyPI has no {package} for {platform.machine()}"
    return f"not installed: {sys.executable} -m pip install {package}"


def _may_trace() -> bool:
    lines = [line for line in _text("/proc/self/status").splitlines() if line.startswith("CapEff:")]
    return bool(lines) and bool(int(lines[0].split()[1], 16) >> PTRACE_BIT & 1)


def _version(path: str) -> str:
    """Return the version that a program prints, in brackets, or an empty text."""
    answer = _answer([path, "--version"])
    words = answer.stdout.split() if answer is not None and answer.returncode == 0 else []
    numbers = [word for word in words if word[:1].isdecimal()]
    return f" ({numbers[0]})" if numbers else ""


def _answer(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
