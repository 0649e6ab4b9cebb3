"""One run from its start to its end: prepare, start, wait, finish, and end as the command ended.

What a command can notice, besides one directory on PYTHONPATH: its parent is the launcher; its process group has up
to three more processes, one of them with its name; SIGSTOP to the launcher's pid alone cannot be caught and does not
stop the command; a signal to the launcher's pid takes about 30 ms longer; and a Python daemon that outlives it delays
the launcher by 2 s.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

from perfwrap import private_files
from perfwrap.launch import behind as behind_tool
from perfwrap.launch import canary, descriptors, kernel, live_view, prefixes, proc, process, recording
from perfwrap.launch import environment as surroundings
from perfwrap.launch.options import Options
from perfwrap.launch.prefixes import Prefix
from perfwrap.launch.recording import Recording
from perfwrap.launch.signals import OriginalSignals, Supervisor, reset_what_python_changed
from perfwrap.run_folder import INJECT, RunFolder

Say = Callable[[str], None]
Report = Callable[[Path], None]


class Shown:
    """Prints the traceback of a bug in its block and continues, so that the command runs and its status counts."""

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Print what went wrong, if anything did."""
        if isinstance(error, Exception):
            traceback.print_exception(error)
            return True
        return False


def run(command: list[str], options: Options, say: Say, report: Report) -> NoReturn:
    """Run the command, recorded as far as possible, and end as it ends.

    ``say`` prints one line to the user and ``report`` the report of a run folder, both to standard error.
    Raises PerfwrapError, before anything is started, when ``options.out`` is in use.
    """
    descriptors.fill_standard()
    variables = proc.original_environment()
    outer = surroundings.outer_run(variables)
    if outer is not None and options.out is not None:
        say(f"perfwrap: already recording into {outer}; --out {options.out} is ignored")
    if outer is not None or surroundings.is_off(variables):
        _become(command, variables, say)
    recording.refuse_used(options, variables)
    tool = prefixes.choose(options, variables, say)
    original = OriginalSignals()
    recorded = Recording()
    with Shown():
        # No run folder is created for a missing command.
        if process.find(command[0], variables) is not None:
            recorded.prepare(command, options, variables)
    if recorded.problems:
        say("perfwrap: " + "; ".join(recorded.problems))
    supervisor = Supervisor(_hatch(command))
    environment = {**variables, **recorded.changes}
    behind = None
    if tool is not None and recorded.folder is not None:
        behind = _start_behind(tool, recorded.folder, command, environment, original, say)
    if behind is not None:
        child = behind.pid
    else:
        alone = partial(_go_alone, command, variables, original, supervisor, recorded, say)
        child = _start(command, environment, original, say, alone)
    recorded.watch(child)
    view = 0
    if options.live and recorded.folder is not None:
        with Shown():
            view = live_view.start(recorded.folder.path, variables, original, say)
    status = _wait(child, supervisor) if behind is None else _wait_behind(behind, supervisor)
    if view:
        with Shown():
            live_view.end(view, supervisor)
    with Shown():
        _finish(recorded, supervisor, status, say)
    if behind is not None and tool is not None and recorded.folder is not None:
        with Shown():
            _collect(tool, recorded.folder, environment, original, supervisor, say)
    if recorded.folder is not None:
        with Shown():
            private_files.restrict(recorded.folder.path, but=INJECT)
    if recorded.folder is not None and options.report:
        with Shown():
            _report(recorded.folder.path, supervisor, original, report)
    elif recorded.folder is not None and recorded.leads:
        path = recorded.folder.whole.path
        say(f"perfwrap: recorded in {path}. To print the report: perfwrap report {path}")
    process.exit_like(status)


def _become(command: list[str], variables: Mapping[str, str], say: Say) -> NoReturn:
    """Execute the command in place of this process, because nothing is recorded here."""
    reset_what_python_changed()
    try:
        process.execute(command, variables)
    except OSError as error:
        _fail(command, error, say)


def _hatch(command: list[str]) -> canary.Canary | None:
    """Return a canary; None if processes or descriptors run out, because the command may need them."""
    try:
        return canary.hatch(command)
    except OSError:
        return None


def _start(
    command: list[str],
    variables: Mapping[str, str],
    original: OriginalSignals,
    say: Say,
    alone: Callable[[OSError], NoReturn],
) -> int:
    """Start the command and return its pid; end as a shell does if it cannot be executed.

    Call ``alone`` if the system has no process or descriptor left for a second process.
    """
    try:
        return process.start(command, variables, original)
    except OSError as error:
        if error.filename is None:
            alone(error)
        _fail(command, error, say)


def _go_alone(
    command: list[str],
    variables: Mapping[str, str],
    original: OriginalSignals,
    supervisor: Supervisor,
    recorded: Recording,
    say: Say,
    error: OSError,
) -> NoReturn:
    """Release all resources and execute the command in place of this process, without recording."""
    say(f"perfwrap: this run is not recorded: {error.strerror}")
    for helper in (supervisor.canary, recorded.monitors):
        if helper is not None:
            os.kill(helper.pid, signal.SIGKILL)
            os.waitpid(helper.pid, 0)
    original.restore()
    _become(command, variables, say)


def _start_behind(
    tool: Prefix,
    folder: RunFolder,
    command: list[str],
    environment: Mapping[str, str],
    original: OriginalSignals,
    say: Say,
) -> behind_tool.Behind | None:
    """Start the command behind a tool; if the tool does not start it, print why and return None."""
    try:
        place = prefixes.place(folder)
        log = place / f"{tool.name}.log"
        changed = {**environment, **tool.variables()}
        return behind_tool.start(tool.words(place), command, changed, original, log)
    except behind_tool.NotStarted as error:
        say(f"perfwrap: {tool.name} is not profiling this run: {error}{prefixes.last_words(log)}")
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOEXEC) and error.filename is None:
            _fail(command, error, say)
        say(f"perfwrap: {tool.name} is not profiling this run: {error}")
    return None


def _wait_behind(behind: behind_tool.Behind, supervisor: Supervisor) -> int:
    """Wait for the command behind its tool and return its wait status."""
    with Shown():
        descriptors.let_go()
    return behind.wait(supervisor)


def _collect(
    tool: Prefix,
    folder: RunFolder,
    environment: Mapping[str, str],
    original: OriginalSignals,
    supervisor: Supervisor,
    say: Say,
) -> None:
    """Convert the output of the tool; print what went wrong."""
    place = prefixes.place(folder)
    log = place / f"{tool.name}.log"

    def run(words: list[str]) -> int:
        return supervisor.wait(process.start(words, environment, original, log))

    for problem in tool.finish(place, run):
        say(f"perfwrap: {problem}")


def _fail(command: list[str], error: OSError, say: Say) -> NoReturn:
    """End as a shell does if a command cannot be executed."""
    say(f"perfwrap: {command[0]}: {error.strerror}")
    os._exit(process.failure_status(error))


def _wait(child: int, supervisor: Supervisor) -> int:
    """Wait for the command and return its wait status."""
    status = None
    with Shown():
        # From here on only the command has its inherited files open: the other end of a pipe detects its end.
        descriptors.let_go()
        status = supervisor.wait(child)
    return status if status is not None else os.waitpid(child, 0)[1]


def _finish(recorded: Recording, supervisor: Supervisor, status: int, say: Say) -> None:
    """End the recording; print what went wrong."""
    try:
        for problem in recorded.finish(supervisor, status):
            say(f"perfwrap: {problem}")
    except OSError as error:
        say(f"perfwrap: cannot write the end of this run: {error}")


def _report(folder: Path, supervisor: Supervisor, original: OriginalSignals, report: Report) -> None:
    """Print the report in a separate process, so that it cannot affect the exit status of this one."""
    launcher = os.getpid()
    child = os.fork()
    if child:
        supervisor.wait(child)
        return
    try:
        with Shown():
            kernel.die_with(launcher)
            os.dup2(2, 1)  # Standard output belongs to the command.
            signal.pthread_sigmask(signal.SIG_SETMASK, original.mask)
            report(folder)
            sys.stdout.flush()
    except KeyboardInterrupt:
        pass  # The user interrupted the report.
    finally:
        os._exit(0)
