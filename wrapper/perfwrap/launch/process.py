"""Start a command with its original signal state, and end as it ended."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from perfwrap.launch import descriptors, kernel
from perfwrap.launch.signals import ALL, OriginalSignals

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a command that could not be started, as in every shell."""
ERRNO = struct.Struct("i")


def start(
    command: list[str],
    environment: Mapping[str, str],
    original: OriginalSignals,
    log: Path | None = None,
) -> int:
    """Start ``command`` in this process group and return its pid; OSError if it cannot be executed.

    With ``log`` it has no input, and its output is appended to that file.
    """
    launcher = os.getpid()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.die_with(launcher)
            if log is not None:
                _print_to(log)
            original.restore()
            execute(command, environment)
        except OSError as error:
            os.write(write_end, ERRNO.pack(error.errno or errno.EINVAL))
        finally:
            os._exit(NOT_FOUND)
    os.close(write_end)
    # If the execution succeeds, the pipe closes without a message.
    failure = os.read(read_end, ERRNO.size)
    os.close(read_end)
    if failure:
        os.waitpid(pid, 0)
        number = ERRNO.unpack(failure)[0]
        raise OSError(number, os.strerror(number), command[0])
    return pid


def _print_to(log: Path) -> None:
    """Redirect the input of this process to /dev/null and its output to that file."""
    descriptors.point_at_null(0)
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(opened, 1)
    os.dup2(opened, 2)


def execute(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Execute the command in this process; OSError if that is not possible."""
    if not command[0]:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "")
    try:
        os.execvpe(command[0], command, dict(environment))
    except OSError as error:
        script = find(command[0], environment) if error.errno == errno.ENOEXEC else None
        if script is None:
            raise
        # A script without "#!" in its first line: shells and execvp(3) run it with sh.
        os.execve("/bin/sh", ["/bin/sh", script, *command[1:]], dict(environment))


def find(program: str, environment: Mapping[str, str]) -> str | None:
    """Return the file that ``program`` names, or None if there is no executable one."""
    return shutil.which(program, path=environment.get("PATH", os.defpath))


def failure_status(error: OSError) -> int:
    """Return the exit code of a shell for a command that could not be executed."""
    return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE


def exit_like(status: int) -> NoReturn:
    """End as the process with this wait status did: same exit code, or same signal without a core dump."""
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kernel.forbid_core_dump()
    try:
        signal.signal(number, signal.SIG_DFL)
    except (OSError, ValueError):
        pass  # The handler of SIGKILL cannot be changed, and need not be.
    signal.pthread_sigmask(signal.SIG_SETMASK, [other for other in ALL if other != number])
    os.kill(os.getpid(), number)
    # Process 1 of a container cannot kill itself.
    os._exit(128 + number)
