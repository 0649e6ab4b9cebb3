"""How a run stands: starting, running, ended, or gone without a word."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Word = Literal["starting", "running", "quiet", "ended", "lost", "deleted"]

PATIENCE_NS = 15_000_000_000
"""A run of which nothing lives and nothing was written for so long has ended; monitors write each second."""


@dataclass(frozen=True)
class State:
    """``word`` says how the run stands; ``quiet_ns`` for how long nothing was written, 0 when it is over.

    ``lost``: its processes are gone and nobody wrote down how it ended. ``quiet``: nothing was written for a
    while, and whether its processes live cannot be seen from here.
    """

    word: Word
    quiet_ns: int = 0

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.word in ("ended", "lost", "deleted")


def judge(run: dict[str, Any], quiet_ns: int, any_journal: bool, living: bool | None) -> State:
    """Return how the run of that manifest stands.

    ``living`` says whether one of its processes lives; None when that cannot be seen from this machine.
    """
    if isinstance(run.get("exit"), dict):
        return State("ended")
    if living or quiet_ns < PATIENCE_NS:
        return State("running" if any_journal else "starting", quiet_ns)
    return State("quiet" if living is None else "lost", quiet_ns)


def is_living(pid: int, start_ticks: str) -> bool:
    """Say whether that process of this machine still lives; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    fields = stat[stat.rindex(b")") + 2 :].split()
    return fields[0] not in (b"Z", b"X") and fields[19].decode() == start_ticks
