"""The launcher's end of a relay: starts a tool that starts the command, and still supervises the command.

See ``relay.py``: the command keeps its streams, its signals and its exit status, whatever the tool does.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfwrap.launch import process, relay
from perfwrap.launch.signals import OriginalSignals, Supervisor

START_SECONDS = 120.0
"""How long a tool may take to start the command; on a large machine nsys needs some seconds."""
LOOK_SECONDS = 0.05


class NotStarted(Exception):
    """The tool ended or timed out without having started the command."""


@dataclass
class Behind:
    """A command that runs behind a tool."""

    tool: int
    """Pid of the tool."""
    peer: socket.socket
    pid: int = 0
    """Pid of the command."""
    is_apart: bool = False
    """Whether the tool runs it in a separate session, where signals of the terminal do not arrive."""
    status: int | None = None
    """The command's wait status, once it has ended."""
    _read: bytes = field(default=b"", repr=False)

    def wait(self, supervisor: Supervisor) -> int:
        """Wait for the command and then for the tool; return the wait status of the command.

        If the relay was killed, the status of the command is unknown and reported as SIGKILL.
        """
        supervisor.stand_for(self.pid, self.is_apart)
        tool_status = supervisor.wait(self.tool)
        # If the tool died early, the command still runs.
        while self.status is None and self._take(LOOK_SECONDS):
            supervisor.attend()
        supervisor.stand_for(0, False)
        if self.status is None:
            self.status = tool_status if os.WIFSIGNALED(tool_status) else int(signal.SIGKILL)
        return self.status

    def _take(self, seconds: float) -> bool:
        """Read the messages of the relay; False if it has ended."""
        if not select.select([self.peer], [], [], seconds)[0]:
            return True
        data = self.peer.recv(relay.LONGEST_MESSAGE)
        self._read += data
        *lines, self._read = self._read.split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.pid = message.get("pid", self.pid)
            self.is_apart = message.get("group", os.getpgid(0)) != os.getpgid(0) or self.is_apart
            self.status = message.get("status", self.status)
            if "errno" in message:
                raise OSError(message["errno"], os.strerror(message["errno"]))
        return bool(data)


def start(
    tool: list[str],
    command: list[str],
    environment: Mapping[str, str],
    original: OriginalSignals,
    log: Path,
) -> Behind:
    """Start a command behind a tool; the output of the tool goes to ``log``.

    Raises NotStarted if the tool does not start it, OSError if the command cannot be executed.
    """
    name = f"perfwrap-{os.urandom(16).hex()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen(1)
        try:
            pid = process.start([*tool, *relay.words(name), *command], environment, original, log)
        except OSError as error:
            raise NotStarted(f"{tool[0]} cannot be executed: {error.strerror}") from error
        try:
            peer = _accept(listener, pid)
        except NotStarted:
            _end(pid)
            raise
    message = json.dumps({"mask": sorted(original.mask), "group": os.getpgid(0)}).encode()
    socket.send_fds(peer, [message], relay.STREAMS)
    behind = Behind(pid, peer)
    try:
        while not behind.pid and behind._take(START_SECONDS):
            continue
    except OSError:
        _end(pid)
        raise
    if not behind.pid:
        _end(pid)
        raise NotStarted("it exited before the command started")
    return behind


def _end(tool: int) -> None:
    """End a tool that is not needed; it may have ended already."""
    os.kill(tool, signal.SIGKILL)
    os.waitpid(tool, 0)


def _accept(listener: socket.socket, tool: int) -> socket.socket:
    """Return the connection of the relay; NotStarted if the tool ends first, or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if select.select([listener], [], [], LOOK_SECONDS)[0]:
            peer = listener.accept()[0]
            if relay.is_own(peer):
                return peer
            peer.close()
        ended = os.waitid(os.P_PID, tool, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            raise NotStarted("it exited before the command started")
    raise NotStarted(f"it did not start the command within {START_SECONDS:.0f} s")
