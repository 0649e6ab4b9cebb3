"""Reads the journals and start records of a run folder into a timeline.

The journal's format is specified in the recorder's ``journal_format.py``; seen: FORMAT 1. Every journal of the run
is read: those of recorded processes, DataLoader workers and monitors. A file that cannot be read is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from perfwrap.errors import PerfwrapError
from perfwrap.journal_format import DESCRIBE
from perfwrap.run_folder import TOOLS, RunFolder
from perfwrap.sources.damage import UNFORESEEN
from perfwrap.sources.dataflow import operation_files
from perfwrap.sources.gpu_memory import memory_files
from perfwrap.sources.journals import notebook_files, profiler_windows
from perfwrap.sources.journals.joined_parts import Part, find_parts
from perfwrap.sources.journals.journal_file import (
    JournalFile,
    NewerFormat,
    Unreadable,
    read_file,
    read_header,
)
from perfwrap.sources.journals.journal_tables import JournalTables
from perfwrap.sources.journals.log_lines import LogLines
from perfwrap.sources.journals.starts import MAX_BYTES, MAX_STARTS, Identity, Start, add_starts, read_starts
from perfwrap.sources.journals.tool_files import add_tools
from perfwrap.sources.stack_samples import pyspy_trace
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock, drift_ns, host_clock, to_first_host
from perfwrap.timeline.model import Timeline

SUFFIX = "*.pwj"
MAX_NAMED = 4
NO_PROCESS_RECORDED = "No process of this run was recorded: perfwrap saw none of them import torch."


def read(folder: RunFolder, only: Sequence[RunFolder] | None = None) -> Timeline:
    """Return the timeline of a run folder; of a joined run, of all its parts or ``only`` of those.

    Raises PerfwrapError if the folder is not a run, or a newer perfwrap wrote all of its journals. A run without
    journals is an empty timeline with a warning: the command may not have imported torch.
    """
    run = folder.read_manifest()
    builder = TimelineBuilder()
    parts = find_parts(folder.parts() if only is None else only)
    paths = {path: part for part in parts for path in sorted(part.folder.journal.glob(SUFFIX))}
    clocks = _clocks(paths, _own_clock(run))
    if not paths:
        builder.warn(NO_PROCESS_RECORDED)
    journals = (
        (path.name, part.renamed(journal))
        for path, part in paths.items()
        if (journal := _read(path, builder)) is not None
    )
    lines = LogLines(builder, MAX_BYTES, MAX_STARTS)
    starts = [
        replace(start, host=part.shown(start.host))
        for part in parts
        for start in read_starts(part.folder.starts, lines)
    ]
    _warn_of_parts(run, builder)
    return assemble(run, journals, clocks, starts, builder, parts)


def _warn_of_parts(run: Mapping[str, Any], builder: TimelineBuilder) -> None:
    """Warn of launchers of a joined run that have not ended: they still run, or were killed with their machine."""
    nodes = run.get("nodes") or ()
    open_ended = [str(node["part"]) for node in nodes if not node.get("end")]
    if open_ended:
        shown = ", ".join(open_ended[:MAX_NAMED]) + (" and more" if len(open_ended) > MAX_NAMED else "")
        builder.warn(
            f"{len(open_ended)} of the {len(nodes)} launchers of this run have not recorded their end ({shown}): "
            "they are still running, or were killed. The report contains what they recorded until then."
        )


def assemble(
    run: Mapping[str, Any],
    journals: Iterable[tuple[str, JournalFile]],
    clocks: dict[str, HostClock],
    starts: Iterable[Start],
    builder: TimelineBuilder,
    parts: Sequence[Part] = (),
) -> Timeline:
    """Return the timeline of a run from its named journals, which are consumed, and its start records.

    ``clocks`` has each host's clock, the first host first; ``parts`` are the folders with recordings of py-spy,
    torch.profiler and other tools, empty if those are not wanted.
    """
    monitors: list[JournalTables] = []
    everything: list[JournalTables] = []
    files: list[JournalFile] = []
    for name, journal in journals:
        try:
            own = _on_run_clock(journal, clocks)
            tables = JournalTables(own, name, builder)
        except UNFORESEEN as error:
            builder.warn(f"The journal {name} is damaged ({error}); it was skipped.")
            continue
        files.append(own)
        everything.append(tables)
        # Monitors identify processes by pid: these are known after all other journals are added.
        if tables.role == "monitor":
            monitors.append(tables)
        else:
            _add(tables, builder)
    add_starts(list(starts), _by_process(everything), partial(_moment, clocks), builder)
    for tables in monitors:
        _add(tables, builder)
    for part in parts:
        folder, shown = part.folder, part.shown
        if clocks:
            profiler_windows.add_all(folder, builder, next(iter(clocks.values())), files, shown)
        memory_files.add_all(folder, builder, shown)
        operation_files.add_all(folder, builder, partial(_moment, clocks), shown)
        pyspy_trace.add_run(
            builder, folder.py_spy, partial(_moment, clocks), str(run.get("cwd") or ""), shown
        )
        host, clock = _tools_clock(clocks, run)
        add_tools(builder, folder.path / TOOLS, clock, part.host if len(parts) > 1 else host)
    different = list({id(clock): clock for clock in clocks.values()}.values())
    number_of = {id(clock): number for number, clock in enumerate(different)}
    uncertainty = max((drift_ns(clock) for clock in different), default=0) if len(different) > 1 else 0
    first = different[0] if different else None
    timeline = builder.build(
        {
            **run,
            "hosts": list(clocks),
            "clock_of": {host: number_of[id(clock)] for host, clock in clocks.items()},
            "clock_pairs": [] if first is None else [first.monotonic.tolist(), first.wall.tolist()],
            "clock_uncertainty_ns": uncertainty,
        }
    )
    return notebook_files.name_cells(timeline)


def _add(tables: JournalTables, builder: TimelineBuilder) -> None:
    """Add one journal; at damage that the reader does not handle, the rest of the journal is skipped."""
    try:
        tables.add()
    except UNFORESEEN as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        builder.warn(f"The journal {tables.name} is damaged ({why}); the rest of it was skipped.")


def _read(path: Path, builder: TimelineBuilder) -> JournalFile | None:
    """Return the journal; None, with a warning and a row of coverage, if it cannot be read."""
    try:
        return read_file(path)
    except Unreadable as error:
        why = str(error)
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
    builder.warn(f"The journal {path.name} {why}; it was skipped.")
    builder.add_row("coverage", what="journal", start=0, end=0, note=f"{path.name} {why}", source="journal")
    return None


def _own_clock(run: Mapping[str, Any]) -> str:
    """Return what identifies the clock of the run's start and end: in a joined run, that of the leading launcher."""
    host = run.get("host")
    return str(host.get("clock") or "") if isinstance(host, dict) else ""


def _clocks(paths: Mapping[Path, Part], own: str) -> dict[str, HostClock]:
    """Return each host's clock, those named ``own`` first; PerfwrapError if all journals are newer.

    Hosts that are containers of one machine share a clock, which is the same object.
    """
    headers, newer = [], []
    for path, part in paths.items():
        try:
            header = read_header(path)
            headers.append((path, replace(header, host=part.shown(header.host))))
        except NewerFormat:
            newer.append(path.name)
        except (Unreadable, OSError):
            continue
    if newer and not headers:
        raise PerfwrapError(
            f"The journals of this run were written by a newer perfwrap (for example {newer[0]}).",
            "Upgrade perfwrap to read them.",
        )
    pairs: dict[str, list[tuple[int, int]]] = {}
    clock_of: dict[str, str] = {}
    for path, header in sorted(
        headers, key=lambda found: (paths[found[0]].clock_of(found[1].host) != own, found[1].wall)
    ):
        clock_of.setdefault(header.host, paths[path].clock_of(header.host))
        pairs.setdefault(clock_of[header.host], []).append((header.monotonic, header.wall))
    if len(pairs) > 1:
        for path, header in headers:
            pairs[clock_of[header.host]] += _clock_records(path)
    clocks = {name: host_clock(found) for name, found in pairs.items()}
    return {host: clocks[name] for host, name in clock_of.items()}


def _clock_records(path: Path) -> list[tuple[int, int]]:
    """Return the (monotonic, wall) pairs of a journal's CLOCK records."""
    records = read_file(path).records
    clocks = records[records["kind"] == DESCRIBE["CLOCK"]]
    return list(zip(clocks["start"].tolist(), clocks["value"].tolist(), strict=True))


def _tools_clock(clocks: dict[str, HostClock], run: Mapping[str, Any]) -> tuple[str | None, HostClock | None]:
    """Return name and clock of the first host, with the launcher's pairs, which show how its clocks drift."""
    pairs = [
        (pair["monotonic_ns"], pair["wall_ns"])
        for pair in run.get("clock") or ()
        if isinstance(pair, dict) and {"monotonic_ns", "wall_ns"} <= pair.keys()
    ]
    host = next(iter(clocks), None)
    if host is not None:
        pairs += zip(clocks[host].monotonic.tolist(), clocks[host].wall.tolist(), strict=True)
    return host, host_clock(pairs) if pairs else None


def _by_process(journals: list[JournalTables]) -> dict[Identity, list[tuple[int, int]]]:
    """Return for each process when it opened its journals, and their tracks."""
    found: dict[Identity, list[tuple[int, int]]] = {}
    for tables in journals:
        header = tables.header
        identity = (header.host, header.pid, header.start_ticks)
        found.setdefault(identity, []).append((header.monotonic, tables.process))
    return found


def _moment(clocks: dict[str, HostClock], host: str, time: int) -> int:
    """Return a host's monotonic time on the first host's clock."""
    own = clocks.get(host)
    if own is None:
        return time
    first = next(iter(clocks.values()))
    return int(to_first_host(np.array([time], dtype=np.int64), own, first)[0])


def _on_run_clock(journal: JournalFile, clocks: dict[str, HostClock]) -> JournalFile:
    """Return the journal with its times on the first host's clock."""
    own, first = clocks[journal.header.host], next(iter(clocks.values()))
    if own is first:
        return journal
    journal.records["start"] = to_first_host(np.ascontiguousarray(journal.records["start"]), own, first)
    opened = _moment(clocks, journal.header.host, journal.header.monotonic)
    return replace(journal, header=replace(journal.header, monotonic=opened))
