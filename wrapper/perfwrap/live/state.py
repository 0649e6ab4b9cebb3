"""The state of a run: starting, running, ended, or lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

Word = Literal["starting", "running", "quiet", "ended", "lost", "deleted"]

PATIENCE_NS = 15_000_000_000
"""A run without a running process that has written nothing for this long has ended; monitors write each second."""


class State(Struct, frozen=True):
    """``word`` is the state; ``quiet_ns`` is how long nothing has been written, 0 if the run is over.

    ``lost``: its processes have ended and no end was recorded. ``quiet``: nothing has been written for a
    while, and whether its processes are running is not visible from here.
    """

    word: Word
    quiet_ns: int = 0

    @property
    def over(self) -> bool:
        """Whether the run is over."""
        return self.word in ("ended", "lost", "deleted")


def judge(run: dict[str, Any], quiet_ns: int, any_journal: bool, living: bool | None) -> State:
    """Return the state of the run with that manifest.

    ``living`` is whether one of its processes is running; None if that is not visible from this machine.
    """
    if isinstance(run.get("exit"), dict):
        return State("ended")
    if living or quiet_ns < PATIENCE_NS:
        return State("running" if any_journal else "starting", quiet_ns)
    return State("quiet" if living is None else "lost", quiet_ns)


def is_living(pid: int, start_ticks: str) -> bool:
    """Return whether that process of this machine is still running; a zombie is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    fields = stat[stat.rindex(b")") + 2 :].split()
    return fields[0] not in (b"Z", b"X") and fields[19].decode() == start_ticks
