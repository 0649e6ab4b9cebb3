"""Runs the command for a tool that stands before it, so that the tool cannot change how the command runs.

``nsys profile CMD`` and ``ncu CMD`` start the command themselves, put their own pipes before its output, take its
signals, and may end with another status. So they are given this small program to start instead. It asks the
launcher, over a socket, for the standard streams that the command would have had, starts the command with them in
the launcher's process group, and tells the launcher its pid and, at the end, its wait status.

The socket is an abstract one with a name that nobody can guess; both sides ask the kernel whose the other is. A
message is a JSON object: from the launcher ``{"mask", "group"}`` with the three descriptors, from here ``{"pid",
"group"}`` or ``{"errno"}``, and then ``{"status"}``. When the launcher is gone, the command is killed with this
process, as it is without a tool.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

import perfwrap
from perfwrap.launch import kernel, proc, process
from perfwrap.launch.signals import ALL, reset_what_python_changed

MODULE = "perfwrap.launch.relay"
STREAMS = (0, 1, 2)
CREDENTIALS = struct.Struct("3i")
"""Pid, user and group of the other side, as SO_PEERCRED gives them."""
LONGEST_MESSAGE = 1 << 16


def words(name: str) -> list[str]:
    """Return what starts this program to run the command behind it; ``name`` is the socket's."""
    root = str(Path(perfwrap.__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {root!r}); import {MODULE} as relay; relay.main()"
    # -I and -S: the command's PYTHONPATH and site-packages are not for this one, which must not be recorded.
    return [sys.executable, "-I", "-S", "-B", "-c", code, name]


def is_own(peer: socket.socket) -> bool:
    """Say whether the other side belongs to the same user."""
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _, user, _ = CREDENTIALS.unpack(packed)
    return bool(user == os.geteuid())


def send(peer: socket.socket, **message: object) -> None:
    """Send a message; OSError when the other side is gone."""
    peer.sendall(json.dumps(message).encode() + b"\n")


def main() -> NoReturn:
    """Run the command of the command line, for the launcher whose socket is its first word."""
    name, command = sys.argv[1], sys.argv[2:]
    launcher = socket.socket(socket.AF_UNIX)
    launcher.connect("\0" + name)
    if not is_own(launcher):
        sys.exit("perfwrap: the socket belongs to somebody else")
    data, streams, _, _ = socket.recv_fds(launcher, LONGEST_MESSAGE, len(STREAMS))
    asked = json.loads(data)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
    del blocked  # The tool's; the launcher knows the command's.
    try:
        child = _start(command, asked, streams)
    except OSError as error:
        send(launcher, errno=error.errno)
        os._exit(process.failure_status(error))
    for stream in streams:
        os.close(stream)
    send(launcher, pid=child, group=os.getpgid(child))
    status = _wait(child, launcher)
    send(launcher, status=status)
    # For the tool: as a shell would put it.
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _start(command: list[str], asked: dict[str, Any], streams: list[int]) -> int:
    """Start the command and return its pid; OSError when it cannot be executed."""
    environment = proc.original_environment()
    parent = os.getpid()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kernel.die_with(parent)
            _join(asked["group"])
            for number, stream in zip(STREAMS, streams, strict=True):
                os.dup2(stream, number)
            reset_what_python_changed()
            signal.pthread_sigmask(signal.SIG_SETMASK, asked["mask"])
            process.execute(command, environment)
        except OSError as error:
            os.write(write_end, process.ERRNO.pack(error.errno or errno.EINVAL))
        finally:
            os._exit(process.NOT_FOUND)
    os.close(write_end)
    failure = os.read(read_end, process.ERRNO.size)
    os.close(read_end)
    if failure:
        os.waitpid(child, 0)
        number = process.ERRNO.unpack(failure)[0]
        raise OSError(number, os.strerror(number), command[0])
    return child


def _join(group: int) -> None:
    """Go into the launcher's process group, where the terminal's signals arrive.

    nsys has a session of its own for the command, from which that is impossible. The launcher learns of it, and
    passes on what the terminal sends; in a group of its own the command does not get it from the tool once more.
    """
    try:
        if os.getpgid(0) != group:
            os.setpgid(0, group)
    except OSError:
        os.setpgid(0, 0)


def _wait(child: int, launcher: socket.socket) -> int:
    """Return the wait status of the command; end at once, and it with us, when the launcher is gone."""
    ended = os.pidfd_open(child)
    watched = select.poll()
    watched.register(ended, select.POLLIN)
    watched.register(launcher, select.POLLIN)
    while True:
        ready = {number for number, _ in watched.poll()}
        if ended in ready:
            return os.waitpid(child, 0)[1]
        if launcher.fileno() in ready and not launcher.recv(1):
            os._exit(128 + signal.SIGKILL)
