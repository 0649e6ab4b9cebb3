"""The parts of a run that several launchers joined: names of hosts, and which hosts share a clock."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals.journal_file import JournalFile


class Part(Struct, frozen=True):
    """One launcher's folder; ``host`` is the name of its machine in the run, empty if unknown."""

    folder: RunFolder
    host: str = ""
    clock: str = ""
    """Identifies the clock of its machine; machines with the same value share a clock."""
    _shown: dict[str, str] = field(default_factory=dict)

    def shown(self, host: str) -> str:
        """Return the name in the run of a host that this part's files name."""
        return self._shown.get(host, host)

    def clock_of(self, host: str) -> str:
        """Return what identifies a host's clock, by the host's name in the run."""
        return self.clock if self.clock and host == self.host else f"host {host}"

    def renamed(self, journal: JournalFile) -> JournalFile:
        """Return the journal with the name of its host in the run."""
        shown = self.shown(journal.header.host)
        if shown == journal.header.host:
            return journal
        return replace(journal, header=replace(journal.header, host=shown))


def find_parts(folders: Sequence[RunFolder]) -> tuple[Part, ...]:
    """Return the parts with the names of their hosts: machines with the same name get a number."""
    known: dict[str, list[str]] = {}
    parts = []
    for folder in folders:
        name, clock = _machine(folder)
        machines = known.setdefault(name, [])
        if clock not in machines:
            machines.append(clock)
        number = machines.index(clock) + 1
        shown = name if number == 1 else f"{name} ({number})"
        parts.append(Part(folder, shown, clock, {name: shown}))
    return tuple(parts)


def _machine(folder: RunFolder) -> tuple[str, str]:
    """Return the name of a launcher's machine, and what identifies its clock; empty if unknown."""
    try:
        host = folder.read_manifest().get("host")
    except PerfwrapError:
        host = None
    known = host if isinstance(host, dict) else {}
    return str(known.get("name") or ""), str(known.get("clock") or "")
