"""The separate process that runs the monitors, so that the launcher stays simple.

It is a fork of the launcher that runs ``perfwrap.monitors.sidecar``: another interpreter would import most of the same
modules again, 40 ms of CPU time. Its standard input has the line ``child PID`` once the command runs and the line ``end
JSON`` with the exit status of the command; the end of the input means that the command or the launcher has ended: then
it must finish within FINISH_SECONDS. It blocks all signals.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

from perfwrap.launch import descriptors, kernel
from perfwrap.launch.options import Options
from perfwrap.monitor_options import MonitorSettings
from perfwrap.run_folder import RunFolder

NAME = "perfwrap-monitors"
"""The command line of the process, as ps shows it."""
LOG = "monitors.log"
"""The standard error of the monitors' process: a file in the run folder, removed if empty."""
FINISH_SECONDS = 2.0
GARBAGE_THRESHOLDS = (2_000, 10, 10)
"""As in a new Python."""


class Waiting(Protocol):
    """Reaps children that end."""

    @property
    def ended(self) -> dict[int, int]:
        """Wait status of each child that has ended."""

    def pause(self, seconds: float, /) -> bool:
        """Wait for any event, at most that long."""


class Sidecar:
    """The launcher's end of the monitors' process."""

    def __init__(self, pid: int, orders: int, log: Path) -> None:
        """Hold the pid, the pipe to the process and its log."""
        self.pid = pid
        self._orders = orders
        self._log = log

    def watch(self, child: int) -> None:
        """Set the process of the command."""
        self._say(f"child {child}")

    def dismiss(self, how: Mapping[str, Any] | None = None) -> None:
        """Tell the monitors to finish, and how the command ended, if known."""
        if how is not None:
            self._say(f"end {json.dumps(how)}")
        os.close(self._orders)

    def _say(self, line: str) -> None:
        try:
            os.write(self._orders, f"{line}\n".encode())
        except OSError:
            return  # It has ended: its wait status has the reason.

    def wait(self, supervisor: Waiting) -> str | None:
        """Wait for the finishing process, or kill it; return what went wrong, if anything."""
        deadline = time.monotonic() + FINISH_SECONDS
        while self.pid not in supervisor.ended and time.monotonic() < deadline:
            supervisor.pause(deadline - time.monotonic())
        if self.pid not in supervisor.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return f"did not finish within {FINISH_SECONDS:.0f} s and were killed"
        status = supervisor.ended[self.pid]
        said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if not said:
            self._log.unlink()
        if status == 0:
            return None
        ended = f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "failed"
        return f"{ended}: {said[-1]}" if said else ended


def start(folder: RunFolder, options: Options, hook: str, attached: int = 0, local_rank: int = 0) -> Sidecar:
    """Start the monitors in a process of this group; OSError if that is not possible.

    ``hook`` is the folder on the PYTHONPATH of the command; ``attached`` the first process of a running job. Of the
    launchers of a machine, the one of ``local_rank`` 0 watches host and GPUs.
    """
    launcher = os.getpid()
    log = folder.path / LOG
    log_descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    orders_out, orders = os.pipe()
    if options.metrics_port:
        # Launchers of one machine cannot share a port.
        options = replace(options, metrics_port=options.metrics_port + local_rank)
    # The monitors print urgent messages themselves, to the same place as the launcher.
    say = os.dup(2)
    trial = options.trial
    settings = MonitorSettings.of(
        options,
        hook=hook,
        attached=attached,
        only_processes=local_rank != 0,
        say=say,
        timed_trial=trial.steps > 0 and trial.values_seed is None,
    )
    pid = os.fork()
    if pid == 0:
        _run(folder, launcher, settings, orders_out, log_descriptor)
    os.close(say)
    os.close(orders_out)
    os.close(log_descriptor)
    return Sidecar(pid, orders, log)


def _run(folder: RunFolder, launcher: int, settings: MonitorSettings, orders: int, log: int) -> NoReturn:
    """Become the monitors' process, in a fork of the launcher."""
    try:
        os.dup2(log, 2)  # First: there is the traceback of what fails.
        kernel.die_with(launcher)
        descriptors.point_at_null(1)
        os.dup2(orders, 0)
        descriptors.close_all_but(settings.say)
        kernel.look_like([NAME])
        # The launcher collects garbage rarely, because it ends soon; its own objects are no garbage of this process.
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        # The first entry is the launcher's script or current directory, whose modules are not for the monitors.
        if not getattr(sys.flags, "safe_path", False):
            del sys.path[0]
        from perfwrap.monitors import sidecar

        sidecar.main(folder, launcher, settings)
    except BaseException:  # noqa: BLE001 - whatever it is, the launcher's code must not go on here
        traceback.print_exc()
    finally:
        os._exit(1)
