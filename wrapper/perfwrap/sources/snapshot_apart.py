"""Reads a memory snapshot in a process of its own, which may die without harm.

Ten bytes of a pickle can ask for more memory than there is, and tuples that are nested deep enough end the interpreter
that looks at them, although no code in the file is ever run. So the process that loads it has limited memory, and hands
back plain numbers and texts.
"""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from perfwrap.errors import PerfwrapError
from perfwrap.sources.memory_snapshot import (
    DeviceMemory,
    Group,
    MemoryEvent,
    MemorySnapshot,
    PlainUnpickler,
    read_snapshot,
)

LEAST_MEMORY = 3 << 30
"""Bytes of addresses that the process may use, however small the file is."""
MEMORY_PER_BYTE = 128
"""What a byte of a packed file may take: it unpacks to ten times that, of which Python makes ten times that again."""
LONGEST_S = 600
CODE = "import sys; sys.path.insert(0, sys.argv[2]); from perfwrap.sources import snapshot_apart; snapshot_apart.main()"
PACKAGE = Path(__file__).resolve().parents[2]


def read_apart(path: Path) -> MemorySnapshot:
    """Return what a snapshot file says; PerfwrapError when it is none, would run code, or cannot be loaded."""
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-c", CODE, str(path), str(PACKAGE)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PerfwrapError(
            f"{path.name} takes too long to be read as a memory snapshot", "Is it one?"
        ) from error
    if child.returncode:
        raise PerfwrapError(
            f"{path.name} cannot be loaded as a memory snapshot: it is damaged, or made to do harm",
            "Let torch.cuda.memory._dump_snapshot() write it again.",
        )
    return _of_plain(PlainUnpickler(io.BytesIO(child.stdout)).load())


def main() -> None:
    """Read the file that is named first on the command line and write what it says to standard output."""
    path = Path(sys.argv[1])
    _limit_memory(path.stat().st_size)
    try:
        found = _plain(read_snapshot(path))
    except PerfwrapError as error:
        found = {"error": error.message, "hint": error.hint}
    except OSError as error:
        found = {"error": f"{path.name} cannot be read: {error.strerror}", "hint": ""}
    pickle.dump(found, sys.stdout.buffer, 4)


def _limit_memory(size: int) -> None:
    """Let this process have no more memory than a file of that size may need."""
    import resource  # noqa: PLC0415 - not on every system, and needed in the child only

    most = LEAST_MEMORY + MEMORY_PER_BYTE * size
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))


def _plain(snapshot: MemorySnapshot) -> dict[str, Any]:
    """Return a snapshot as numbers, texts and containers."""
    return {
        **vars(snapshot),
        "groups": [tuple(group) for group in snapshot.groups],
        "devices": [tuple(device) for device in snapshot.devices],
        "events": [tuple(event) for event in snapshot.events],
    }


def _of_plain(content: dict[str, Any]) -> MemorySnapshot:
    """Return the snapshot of such values; PerfwrapError for the words of one."""
    if "error" in content:
        raise PerfwrapError(content["error"], content["hint"])
    return MemorySnapshot(
        **{
            **content,
            "groups": tuple(Group(*values) for values in content["groups"]),
            "devices": tuple(DeviceMemory(*values) for values in content["devices"]),
            "events": tuple(MemoryEvent(*values) for values in content["events"]),
        }
    )
