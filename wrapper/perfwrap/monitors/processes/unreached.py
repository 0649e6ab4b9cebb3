"""Record why Python processes of the run have no start record, which means that the recorder was not loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.processes.process_tree import StartRecords
from perfwrap.monitors.processes.uninjected import explain

GRACE_NS = 2_000_000_000
"""The time within which a new interpreter writes its start record."""
MAX_EXPLANATIONS = 200


@dataclass
class Expected:
    """A process whose start record has not been seen yet."""

    since_ns: int
    reason: str | None = None


class UnreachedPythons:
    """Writes a COVERAGE record ``process/PID`` with the reason.

    The reason is determined early, because a short process cannot be examined later, and written when the grace
    period is over or the process has ended. A process that only forked is covered by its parent.
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
        """Find out, while the process runs, why it might not load the recorder."""
        expected = self._expected.get((pid, start_ticks))
        if expected is not None:
            expected.reason = self._explain(pid, self._hook)

    def look(self, now_ns: int, living: dict[tuple[int, int], bool]) -> None:
        """Drop the processes with a start record, and record the reason for those that will not get one.

        ``living`` maps each living process to whether it only forked.
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
        if self._written < MAX_EXPLANATIONS:
            self._journal.not_watched(f"process/{pid}", reason, keep=False)
        else:
            self._journal.lost("reasons why Python processes were not recorded", 1)
        self._written += 1
