"""Finds py-spy and tests whether it may read a process; if not, gives the reason and the fix.

py-spy is described at https://github.com/benfred/py-spy; seen: 0.4.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

INSTALL = "Install it in perfwrap's environment: pip install py-spy (conda install -c conda-forge py-spy)."
MACHINES = ("x86_64", "aarch64", "armv7l", "i686")
"""The machines for which PyPI has wheels of py-spy; on them it is installed with perfwrap (pyproject.toml)."""
PATIENCE_SECONDS = 20
FILTERED = "2"
"""``Seccomp`` of /proc/self/status if a filter is active."""
REFUSALS = ("permission denied", "operation not permitted", "os error 1)")
"""What py-spy prints if the system refuses access."""

SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
YAMA = {
    "1": (
        "kernel.yama.ptrace_scope is 1: only the ancestors of a process may read it",
        "sudo sysctl kernel.yama.ptrace_scope=0, or run perfwrap with sudo",
    ),
    "2": (
        "kernel.yama.ptrace_scope is 2: only root may read other processes",
        "run perfwrap with sudo",
    ),
    "3": (
        "kernel.yama.ptrace_scope is 3: no process may read another until this machine is restarted",
        "use a machine where it is 0 or 1",
    ),
}
"""Reason and fix, see https://docs.kernel.org/admin-guide/LSM/Yama.html."""
SECCOMP = (
    "a seccomp filter forbids it (usual in containers)",
    "start the container with --cap-add=SYS_PTRACE; on Kubernetes add SYS_PTRACE to securityContext.capabilities",
)
OTHER = ("the system gave no reason", "run perfwrap with sudo, or with the capability SYS_PTRACE")


def find() -> str | None:
    """Return the py-spy of perfwrap's own environment, or else of PATH; None if there is none."""
    folders = [str(Path(sys.executable).parent), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return shutil.which("py-spy", path=os.pathsep.join(folders))


def refusal(tool: str, pid: int, native: bool, granted: bool = False) -> tuple[str, str] | None:
    """Return why py-spy may not read that process, and the fix; None if it may.

    py-spy is run for that, without stopping the process unless compiled code is to be sampled (``native``). ``granted``
    means that the process permitted it with respect to Yama. Other errors, e.g. a Python that py-spy does not support,
    are not a refusal.
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
        return f"{tool} does not run: {error}", "reinstall py-spy"
    return refused_because(granted) if done.returncode and is_refusal(done.stderr) else None


def is_refusal(said: str) -> bool:
    """Return whether this message of py-spy means that the system refused access."""
    return any(words in said.lower() for words in REFUSALS)


def needs_permission() -> bool:
    """Return whether another process may only be read once it has permitted that."""
    return _text(SCOPE) == "1"


def refused_because(granted: bool = False) -> tuple[str, str]:
    """Return the reason and the fix for a refusal on this system."""
    scope = _text(SCOPE)
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
