"""The process beside the command that runs the monitors, so that the launcher itself can stay boring.

Its main module is ``perfwrap.monitors.sidecar``, which says what arguments it takes. On its standard input
it gets the line ``child PID`` once the command runs and the line ``end JSON``, which says how the command
ended; the input's end means that the command has ended, or that the launcher has: then it is to finish within
FINISH_SECONDS. It starts with all signals blocked.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import perfwrap
from perfwrap.launch import descriptors, kernel
from perfwrap.launch.options import Options
from perfwrap.run_folder import RunFolder

MODULE = "perfwrap.monitors.sidecar"
LOG = "monitors.log"
"""What the monitors' process writes to its standard error; a file in the run folder, removed when empty."""
FINISH_SECONDS = 2.0


class Waiting(Protocol):
    """Somebody who takes in children that end."""

    @property
    def ended(self) -> dict[int, int]:
        """Wait status of each child that has ended."""

    def pause(self, seconds: float, /) -> bool:
        """Wait for anything, that long at most."""


class Sidecar:
    """The launcher's end of the monitors' process."""

    def __init__(self, pid: int, orders: int, log: Path) -> None:
        """Hold the pid, the pipe to the process and its log."""
        self.pid = pid
        self._orders = orders
        self._log = log

    def watch(self, child: int) -> None:
        """Say which process is the command."""
        self._say(f"child {child}")

    def dismiss(self, how: Mapping[str, Any] | None = None) -> None:
        """Say that there is nothing to watch any more, and how the command ended where that is known."""
        if how is not None:
            self._say(f"end {json.dumps(how)}")
        os.close(self._orders)

    def _say(self, line: str) -> None:
        try:
            os.write(self._orders, f"{line}\n".encode())
        except OSError:
            return  # Gone: its wait status will tell.

    def wait(self, supervisor: Waiting) -> str | None:
        """Wait for the dismissed process, or kill it; return what went wrong, if anything."""
        deadline = time.monotonic() + FINISH_SECONDS
        while self.pid not in supervisor.ended and time.monotonic() < deadline:
            supervisor.pause(deadline - time.monotonic())
        if self.pid not in supervisor.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return f"did not finish within {FINISH_SECONDS:.0f} s and were killed"
        status = supervisor.ended[self.pid]
        said = self._log.read_text(errors="replace").strip().splitlines()
        if not said:
            self._log.unlink()
        if status == 0:
            return None
        ended = f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "failed"
        return f"{ended}: {said[-1]}" if said else ended


def start(folder: RunFolder, options: Options, hook: str, attached: int = 0, local_rank: int = 0) -> Sidecar:
    """Start the monitors in a process of this group; OSError when that is not possible.

    ``hook`` is the folder that the command finds on its PYTHONPATH; ``attached`` the first process of a job that
    runs already. Of the launchers of a machine the one of ``local_rank`` 0 watches host and GPUs.
    """
    launcher = os.getpid()
    log = folder.path / LOG
    log_descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    orders_out, orders = os.pipe()
    arguments = _arguments(folder, launcher, options, hook, attached)
    arguments += ["--only-processes"] if local_rank else []
    if options.metrics_port:
        # Launchers of one machine cannot share a port.
        words = (str(options.metrics_port + local_rank), options.metrics_address, options.metrics_token_file)
        arguments += ["--metrics", ",".join(words)]
    # What cannot wait for the report is said by the monitors themselves, where the launcher would say it.
    say = os.dup(2)
    arguments += ["--say", str(say)]
    pid = os.fork()
    if pid == 0:
        try:
            kernel.die_with(launcher)
            descriptors.point_at_null(1)
            os.dup2(orders_out, 0)
            os.dup2(log_descriptor, 2)
            os.set_inheritable(say, True)
            descriptors.close_all_but(say)
            os.execv(sys.executable, arguments)
        finally:
            os._exit(1)
    os.close(say)
    os.close(orders_out)
    os.close(log_descriptor)
    return Sidecar(pid, orders, log)


def _arguments(folder: RunFolder, launcher: int, options: Options, hook: str, attached: int) -> list[str]:
    """Return a command line that finds this very perfwrap and its libraries, however the launcher did.

    ``-I`` keeps the current directory and every PYTHONPATH out: the monitors must not be recorded themselves.
    """
    # The first entry is the launcher's script or current directory: nothing there is for us but perfwrap.
    path = sys.path[0 if getattr(sys.flags, "safe_path", False) else 1 :]
    root = str(Path(perfwrap.__file__).parent.parent)
    code = (
        f"import runpy, sys; sys.path[:] = [{root!r}]; import perfwrap; sys.path[:] = {path!r};"
        f"runpy.run_module({MODULE!r}, None, '__main__', True)"
    )
    flags = ["-I", "-B"] if sys.dont_write_bytecode else ["-I"]
    settings = ["--rate", f"{options.rate_hz:g}", "--hook", hook, "--budget", str(options.budget_bytes)]
    if attached:
        settings += ["--attached", str(attached)]
    settings += ["--stall-after", f"{options.stall_after_s:g}"]
    if options.kill_on_stall:
        settings += ["--kill-on-stall", f"{options.kill_grace_s:g}"]
    if options.py_spy:
        settings += ["--py-spy", options.py_spy, "--py-spy-rate", f"{options.py_spy_hz:g}"]
        settings += ["--py-spy-native"] if options.py_spy_native else []
        settings += ["--glance"] if options.glance else []
    return [sys.executable, *flags, "-c", code, str(folder.path), str(launcher), *settings]
