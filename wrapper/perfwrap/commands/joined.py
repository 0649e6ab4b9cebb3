"""What is to be done for a run that several launchers joined: condense a part, put clocks right, read many ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder

if TYPE_CHECKING:
    from perfwrap.configuration import Choice
    from perfwrap.diagnosis import Diagnosis
    from perfwrap.measures.fleet import Fleet
    from perfwrap.measures.host_clocks import ClockOffset
    from perfwrap.timeline.model import Timeline
    from perfwrap.timeline.step_tables import StepTable

MOST_PARTS = 16
"""Launchers whose recordings are read in full, all together."""
MOST_BYTES = 4 << 30
"""What those may hold together: reading takes some two to three times as much memory."""
MOST_NAMED = 4


def end_part(folder: Path) -> Path | None:
    """Return the folder whose report is to be shown now that a launcher has ended; None when that is another's task.

    A part of a joined run is condensed first: each launcher does that with its own recording, on its own machine.
    """
    own = RunFolder(folder)
    part = own.read_manifest().get("part")
    if not isinstance(part, dict):
        return folder
    condense(own)
    return own.whole.path if part.get("leads") else None


def condense(folder: RunFolder) -> tuple[StepTable, ...]:
    """Write the step tables of a run folder, and return them."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.measures.evidence import Evidence
    from perfwrap.measures.step_table import step_table, summary
    from perfwrap.sources import journal
    from perfwrap.timeline import step_tables

    evidence = Evidence(journal.read(folder))
    made = ((summary(evidence, each), step_table(evidence, each)) for each in evidence.trainers)
    try:
        step_tables.write(folder.steps, made)
    except OSError as error:
        raise PerfwrapError(
            f"The step tables cannot be written to {folder.steps}: {error.strerror}.",
            "Reading a run of many ranks needs them; copy the run to a place that can be written to.",
        ) from error
    return step_tables.read(folder.steps) or ()


def put_clocks_right(timeline: Timeline) -> Timeline:
    """Return the timeline with the clocks of its hosts put right, and with a warning that says how well."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.measures.host_clocks import aligned

    timeline, offsets = aligned(timeline)
    if not offsets:
        return timeline
    errors = [offset.error_ns for offset in offsets.values() if offset is not None]
    told = (*timeline.warnings, *_told(timeline.run["hosts"][0], offsets))
    return replace(
        timeline, run={**timeline.run, "clock_uncertainty_ns": max(errors, default=0)}, warnings=told
    )


def _told(first: str, offsets: Mapping[str, ClockOffset | None]) -> Iterator[str]:
    """Say how the hosts' clocks were put right."""
    from perfwrap import units

    known = {host: offset for host, offset in offsets.items() if offset is not None}
    if known:
        apart = max(abs(offset.offset_ns) for offset in known.values())
        error = max(offset.error_ns for offset in known.values())
        least = min(offset.exchanges for offset in known.values())
        certain = all(offset.proven for offset in known.values())
        yield (
            f"The clocks of {_named(list(known))} were put on that of {first} by {units.counted(least, 'exchange')} or "
            f"more between their ranks: by their wall clocks they were up to {units.duration(apart)} apart. What is "
            f"said of moments on different machines is right to within {units.duration(error)}"
            + ("." if certain else "; the clocks drifted during the run, so that is an estimate.")
        )
    unknown = [host for host in offsets if host not in known]
    if unknown:
        yield (
            f"The clocks of {_named(unknown)} were put on that of {first} by their wall clocks alone: how far those "
            "differ is not known, so moments on different machines cannot be compared. Lengths of time can."
        )


def _named(hosts: list[str]) -> str:
    """Return the hosts' names; of many the first ones."""
    if len(hosts) <= MOST_NAMED + 1:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:MOST_NAMED])} and {len(hosts) - MOST_NAMED} other hosts"


def has_many_ranks(folder: RunFolder) -> bool:
    """Say whether a run is too large for its recordings to be read all together, or has only step tables."""
    parts = folder.parts()
    recorded = sum(map(_recorded_bytes, parts))
    if not recorded:
        return any(any(part.steps.glob("*.parquet")) for part in parts)
    return len(parts) > MOST_PARTS or (len(parts) > 1 and recorded > MOST_BYTES)


def _recorded_bytes(part: RunFolder) -> int:
    return sum(path.stat().st_size for path in part.journal.glob("*.pwj"))


def diagnose_many(folder: RunFolder, overview: bool, choice: Choice) -> tuple[Diagnosis, Timeline]:
    """Return the diagnosis of a large run: all ranks by their step tables, a few of them in full.

    Those are the lowest, the one with most work of its own, the one with least and a usual one. Also returns the
    timeline of these few.
    """
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.diagnosis import Diagnosis, diagnose, with_fleet
    from perfwrap.measures.fleet import find_fleet
    from perfwrap.sources import journal
    from perfwrap.timeline.model import Timeline
    from perfwrap.verdict import only_tables

    tables = {table.path: table for part in folder.parts() for table in _tables(part)}
    fleet = find_fleet(list(tables.values()))
    chosen = _chosen(fleet, list(tables.values()))
    if not any(map(_recorded_bytes, chosen)):
        timeline = Timeline(run=folder.read_manifest())
        return with_fleet(Diagnosis(only_tables(), run=timeline.run), fleet), timeline
    timeline = put_clocks_right(journal.read(folder, chosen))
    diagnosis = diagnose(timeline, skipped=choice.skipped, thresholds=choice.thresholds, overview=overview)
    return with_fleet(diagnosis, fleet), timeline


def _tables(part: RunFolder) -> tuple[StepTable, ...]:
    """Return a part's step tables, made anew where its launcher never came to that, or is still at work."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.timeline import step_tables

    known = step_tables.read(part.steps)
    unfinished = part.read_manifest().get("end") is None and any(part.journal.glob("*.pwj"))
    return condense(part) if known is None or unfinished else known


def _chosen(fleet: Fleet, tables: list[StepTable]) -> tuple[RunFolder, ...]:
    """Return the parts of the few ranks that are read in full."""
    by_work = sorted(fleet.ranks, key=lambda rank: rank.own_ns or 0.0)
    wanted = [*fleet.ranks[:1], *by_work[-1:], *by_work[:1], *by_work[len(by_work) // 2 :][:1]]
    summaries = {id(rank.summary) for rank in wanted}
    folders = {table.path.parent.parent for table in tables if id(table.summary) in summaries}
    return tuple(RunFolder(path) for path in sorted(folders))
