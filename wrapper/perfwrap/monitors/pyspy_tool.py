"""Finds py-spy and says whether this system lets it look into a process, and if not, why and what helps.

py-spy is described at https://github.com/benfred/py-spy; seen: 0.4.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

INSTALL = "Install it beside perfwrap: pip install py-spy (conda install -c conda-forge py-spy)."
PATIENCE_SECONDS = 20
FILTERED = "2"
"""``Seccomp`` of /proc/self/status where a filter is at work."""
REFUSALS = ("permission denied", "operation not permitted", "os error 1)")
"""What py-spy says where the system does not let it in."""

YAMA = {
    "1": (
        "kernel.yama.ptrace_scope is 1: only a process's ancestors may look into it",
        "sudo sysctl kernel.yama.ptrace_scope=0, or perfwrap with sudo",
    ),
    "2": (
        "kernel.yama.ptrace_scope is 2: only an administrator may look into processes",
        "perfwrap with sudo",
    ),
    "3": (
        "kernel.yama.ptrace_scope is 3: nobody may look into processes until this machine starts anew",
        "a machine where it is 0 or 1",
    ),
}
"""Reason and cure, see https://docs.kernel.org/admin-guide/LSM/Yama.html."""
SECCOMP = (
    "a seccomp filter forbids it, as those of containers do",
    "start the container with --cap-add=SYS_PTRACE; on Kubernetes add SYS_PTRACE to securityContext.capabilities",
)
OTHER = ("the system does not say why", "perfwrap with sudo, or the capability SYS_PTRACE")


def find() -> str | None:
    """Return the py-spy of perfwrap's own environment, or else of PATH; None where there is none."""
    folders = [str(Path(sys.executable).parent), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return shutil.which("py-spy", path=os.pathsep.join(folders))


def refusal(tool: str, pid: int, native: bool, granted: bool = False) -> tuple[str, str] | None:
    """Return why the system does not let py-spy look into that process, and what helps; None where it may.

    Tried for real, without stopping the process unless compiled code is to be sampled (``native``). ``granted`` says
    that the process allowed it as far as Yama is concerned. Other difficulties, a Python that py-spy does not know
    for instance, are no refusal.
    """
    try:
        done = subprocess.run(
            [tool, "dump", "--native" if native else "--nonblocking", "--pid", str(pid)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{tool} does not run: {error}", "install py-spy anew"
    return refused_because(granted) if done.returncode and is_refusal(done.stderr) else None


def is_refusal(said: str) -> bool:
    """Say whether what py-spy said means that the system did not let it in."""
    return any(words in said.lower() for words in REFUSALS)


def refused_because(granted: bool = False) -> tuple[str, str]:
    """Return reason and cure for a refusal on this system."""
    scope = _text("/proc/sys/kernel/yama/ptrace_scope")
    if scope in YAMA and not (scope == "1" and granted):
        return YAMA[scope]
    status = _text("/proc/self/status").splitlines()
    filters = [line.split()[1] for line in status if line.startswith("Seccomp:")]
    return SECCOMP if filters == [FILTERED] else OTHER


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
