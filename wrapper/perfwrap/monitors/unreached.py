"""Explain each Python of the run that has no start record, which means that perfwrap did not reach it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfwrap.monitors.journal import JournalWriter
from perfwrap.monitors.process_tree import StartRecords
from perfwrap.monitors.uninjected import explain

GRACE_NS = 2_000_000_000
"""So long after it was first seen a starting interpreter may still write its start record."""
MOST_EXPLANATIONS = 200


@dataclass
class Expected:
    """A process whose start record has not been seen yet."""

    since_ns: int
    reason: str | None = None


class UnreachedPythons:
    """Writes a COVERAGE record ``process/PID`` with the reason.

    The reason is looked for soon, because a short process cannot be asked afterwards, and written when the
    time of grace is over or the process is gone. A process that only forked is covered by its parent.
    """

    def __init__(
        self,
        journal: JournalWriter,
        starts: StartRecords,
        hook: str,
        explain: Callable[[int, str], str | None] = explain,
    ) -> None:
        self._journal, self._starts, self._hook, self._explain = journal, starts, hook, explain
        self._expected: dict[tuple[int, int], Expected] = {}
        self._written = 0

    def expect(self, now_ns: int, pid: int, start_ticks: int) -> None:
        """Start to wait for a process's start record."""
        self._expected[pid, start_ticks] = Expected(now_ns)

    def ask(self, pid: int, start_ticks: int) -> None:
        """Find out, while that can be done, why this process might stay unreached."""
        expected = self._expected.get((pid, start_ticks))
        if expected is not None:
            expected.reason = self._explain(pid, self._hook)

    def look(self, now_ns: int, living: dict[tuple[int, int], bool]) -> None:
        """Drop the processes that perfwrap reached, and write down those that it will not reach any more.

        ``living`` says of each process that is there whether it only forked.
        """
        reached = self._starts.reached()
        for identity, expected in list(self._expected.items()):
            if living.get(identity):
                continue
            if identity not in reached:
                if identity in living:
                    expected.reason = self._explain(identity[0], self._hook)
                    if now_ns - expected.since_ns < GRACE_NS:
                        continue
                self._write(identity[0], expected.reason)
            del self._expected[identity]
        self._starts.keep(living.keys() | self._expected.keys())

    def _write(self, pid: int, reason: str | None) -> None:
        if reason is None:
            return
        if self._written < MOST_EXPLANATIONS:
            self._journal.not_watched(f"process/{pid}", reason, keep=False)
        else:
            self._journal.lost("explanations of Pythons that perfwrap did not reach", 1)
        self._written += 1
