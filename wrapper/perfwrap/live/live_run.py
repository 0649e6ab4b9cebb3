"""Follows one run: its journals as far as they were read, and the timeline of its recent part."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from perfwrap.errors import PerfwrapError
from perfwrap.journal_format import DESCRIBE
from perfwrap.live.starts_tail import StartsTail
from perfwrap.live.state import PATIENCE_NS, State, is_living, judge
from perfwrap.run_folder import PARTS, RunFolder
from perfwrap.sources.journals.journal_file import JournalFile, Unreadable
from perfwrap.sources.journals.journal_tail import JournalTail
from perfwrap.sources.journals.run_journals import NO_PROCESS_RECORDED, SUFFIX, assemble
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock, host_clock
from perfwrap.timeline.model import Timeline

MAX_RECORDS, MIN_RECORDS = 120_000, 2_000
"""Recent records that are kept of all recorded processes together, and the minimum for each."""
MAX_OF_ONE = 12_000
"""Recent records of one process: some thousand steps."""
MAX_OF_MONITOR = 60_000
"""Recent records of a monitor, which writes one for each value."""

MAX_GONE = 16
"""Ended workers that are kept: workers restart in each epoch, and the last ones represent all."""
MAX_ASKED = 64
"""Maximum number of processes in the start records that are checked for still running: the last ones."""


class LiveRun:
    """A run folder that is read repeatedly, at a cost that does not grow with the run."""

    def __init__(self, folder: RunFolder) -> None:
        """Read the manifest; PerfwrapError if the folder is not a run, or is one that several launchers joined."""
        if folder.is_joined:
            parts = folder.parts()
            raise PerfwrapError(
                f"{folder.path} is a run of several launchers. `perfwrap top` shows one of them at a time.",
                f"For example: perfwrap top {parts[0].path if parts else folder.path / PARTS}",
            )
        self.folder = folder
        self.manifest: dict[str, Any] = folder.read_manifest()
        self.state = State("starting")
        self._tails: dict[Path, JournalTail] = {}
        self._gone: dict[Path, int] = {}
        """Journals whose writers have ended or are no longer visible, and since when."""
        self._silent: set[Path] = set()
        """Journals that are complete."""
        self._unreadable: dict[Path, str] = {}
        self._starts = StartsTail(folder.starts)
        self._written = time.monotonic_ns()
        self._here = _host_name() == (self.manifest.get("host") or {}).get("name")

    def refresh(self) -> None:
        """Read new records, and determine the state of the run."""
        try:
            self.manifest = self.folder.read_manifest()
            news = self._starts.refresh()
        except PerfwrapError:
            if self.folder.manifest.exists():
                raise
            self.state = State("deleted")
            return
        for path in sorted(self.folder.journal.glob(SUFFIX)):
            news |= self._refresh(path)
        now = time.monotonic_ns()
        if news:
            self._written = now
        self.state = judge(self.manifest, now - self._written, bool(self._tails), self._any_living())

    @property
    def begin(self) -> int:
        """Time from which spans of all recorded processes are kept; 0 while the whole run is kept."""
        return max((tail.begin for tail in self._tails.values() if tail.role != "monitor"), default=0)

    @property
    def records(self) -> int:
        """Number of records read."""
        return sum(tail.slots for tail in self._tails.values())

    def timeline(self) -> Timeline:
        """Return the timeline of the kept records: the whole run while it is short, then its recent part."""
        builder = TimelineBuilder()
        for path, why in self._unreadable.items():
            builder.warn(f"The journal {path.name} {why}; it was skipped.")
        if not self._tails and self.state.over:
            builder.warn(NO_PROCESS_RECORDED)
        begin = self.begin
        files = {
            tail.path.name: tail.journal(0 if tail.role == "monitor" else begin, tail.path not in self._gone)
            for tail in self._reported()
        }
        # Otherwise the processes that are omitted here would be shown as having recorded nothing.
        left_out = {tail.header.pid for tail in self._tails.values() if tail.path.name not in files}
        starts = [start for start in self._starts.records if start.pid not in left_out]
        return assemble(self.manifest, files.items(), _clocks(files), starts, builder)

    def counted_before(self, pid: int | None) -> Counter[int]:
        """Return how many spans of each kind the processes with that pid had before the kept records."""
        found: Counter[int] = Counter()
        for tail in self._tails.values():
            if tail.header.pid == pid:
                found += tail.count_before(self.begin)
        return found

    def loaders(self, pid: int | None) -> dict[str, tuple[int, int, int | None]]:
        """Return for each loader of a process its iterations, and the batches of the current and the previous one."""
        tails = [tail for tail in self._tails.values() if tail.header.pid == pid]
        return tails[-1].loaders() if tails else {}

    def _refresh(self, path: Path) -> bool:
        """Read new records of one journal; a file that cannot be read is skipped."""
        if path in self._silent:
            return False
        tail = self._tails.get(path)
        try:
            if tail is None:
                tail = self._tails[path] = JournalTail(path)
                self._unreadable.pop(path, None)
            return self._read_on(path, tail)
        except Unreadable as error:
            self._unreadable[path] = str(error)
        except OSError as error:
            self._unreadable[path] = f"cannot be read: {error.strerror}"
        return False

    def _read_on(self, path: Path, tail: JournalTail) -> bool:
        """Read new records of a journal, and check whether its writer runs; return whether there were any."""
        gone = self._here and not is_living(tail.header.pid, tail.header.start_ticks)
        news, now = tail.refresh(self._most(tail)), time.monotonic_ns()
        if news and path in self._gone:
            # A writer that seemed to have ended writes: its processes are not visible from here (a container).
            self._here, gone = False, False
            self._gone.clear()
        if gone or tail.ended:
            self._gone.setdefault(path, now)
        if tail.ended or now - self._gone.get(path, now) > PATIENCE_NS:
            self._silent.add(path)
        return news

    def _most(self, tail: JournalTail) -> int:
        """Return the number of recent records that are kept of one journal."""
        if tail.role == "monitor":
            return MAX_OF_MONITOR
        return max(MIN_RECORDS, min(MAX_OF_ONE, MAX_RECORDS // len(self._tails)))

    def _any_living(self) -> bool | None:
        """Return whether a process of the run is running; None if that is not visible from here.

        Without a monitor, a running program that is not Python is unknown.
        """
        if not self._here:
            return None
        tails = self._tails.values()
        known = [(tail.header.pid, tail.header.start_ticks) for tail in tails if tail.path not in self._gone]
        known += [(start.pid, start.start_ticks) for start in list(self._starts.records)[-MAX_ASKED:]]
        watched = any(tail.role == "monitor" for tail in tails)
        return any(is_living(*process) for process in known) or (False if watched else None)

    def _reported(self) -> list[JournalTail]:
        """Return the journals for the timeline: of ended workers only the last ones."""
        gone = [path for path, tail in self._tails.items() if path in self._gone and tail.role == "worker"]
        gone.sort(key=lambda path: self._tails[path].header.monotonic)
        left_out = set(gone[:-MAX_GONE])
        return [tail for path, tail in self._tails.items() if path not in left_out]


def _clocks(files: dict[str, JournalFile]) -> dict[str, HostClock]:
    """Return each host's clock, the first host first."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for file in sorted(files.values(), key=lambda file: file.header.wall):
        clocks = file.records[file.records["kind"] == DESCRIBE["CLOCK"]]
        pairs.setdefault(file.header.host, []).append((file.header.monotonic, file.header.wall))
        pairs[file.header.host] += zip(clocks["start"].tolist(), clocks["value"].tolist(), strict=True)
    return {host: host_clock(found) for host, found in pairs.items()}


def _host_name() -> str:
    """Return this machine's name as manifests have it."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", os.uname().nodename) or "host"
