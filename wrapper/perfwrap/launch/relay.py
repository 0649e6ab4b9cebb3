"""Runs the command on behalf of a tool, so that the tool cannot change how the command runs.

``nsys profile CMD`` and ``ncu CMD`` start the command themselves, connect its output to their own pipes, take its
signals, and may end with another status. So they start this small program instead. It gets the original standard
streams from the launcher over a socket, starts the command with them in the launcher's process group, and sends the
launcher its pid and, at the end, its wait status.

The socket is abstract, with a random name; both sides ask the kernel for the user of the other. A
message is a JSON object: from the launcher ``{"mask", "group"}`` with the three descriptors, from here ``{"pid",
"group"}`` or ``{"errno"}``, and then ``{"status"}``. If the launcher has ended, the command is killed with this
process, as without a tool.
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
"""Pid, user and group of the other side, from SO_PEERCRED."""
LONGEST_MESSAGE = 1 << 16


def words(name: str) -> list[str]:
    """Return the words that start this program before the command; ``name`` is that of the socket."""
    root = str(Path(perfwrap.__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {root!r}); import {MODULE} as relay; relay.main()"
    # -I and -S: without the PYTHONPATH and site-packages of the command, because this must not be recorded.
    return [sys.executable, "-I", "-S", "-B", "-c", code, name]


def is_own(peer: socket.socket) -> bool:
    """Return whether the other side belongs to the same user."""
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _, user, _ = CREDENTIALS.unpack(packed)
    return bool(user == os.geteuid())


def send(peer: socket.socket, **message: object) -> None:
    """Send a message; OSError if the other side has ended."""
    peer.sendall(json.dumps(message).encode() + b"\n")


def main() -> NoReturn:
    """Run the command in the command line; its first word is the socket of the launcher."""
    name, command = sys.argv[1], sys.argv[2:]
    launcher = socket.socket(socket.AF_UNIX)
    launcher.connect("\0" + name)
    if not is_own(launcher):
        sys.exit("perfwrap: the socket belongs to another user")
    data, streams, _, _ = socket.recv_fds(launcher, LONGEST_MESSAGE, len(STREAMS))
    asked = json.loads(data)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
    del blocked  # These belong to the tool; the launcher has those of the command.
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
    # The exit code for the tool, as of a shell.
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
    """Join the launcher's process group, which receives the signals of the terminal.

    nsys starts the command in a separate session, where that is impossible. Then the launcher forwards the signals of
    the terminal; in its own process group the command does not get them from the tool, too.
    """
    try:
        if os.getpgid(0) != group:
            os.setpgid(0, group)
    except OSError:
        os.setpgid(0, 0)


def _wait(child: int, launcher: socket.socket) -> int:
    """Return the wait status of the command; end at once, together with the command, if the launcher has ended."""
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
