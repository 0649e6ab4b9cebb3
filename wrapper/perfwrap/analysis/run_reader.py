"""Open a run folder, align the clocks of its hosts and diagnose it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfwrap.analysis.joined_runs import align_clocks, diagnose_many, has_many_ranks
from perfwrap.analysis.tried_changes import find_tried
from perfwrap.diagnosis.configuration import Choice
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder
from perfwrap.sources import files
from perfwrap.sources.journals import run_journals
from perfwrap.timeline import storage
from perfwrap.timeline.model import Timeline

MAX_NAMED = 5
"""Maximum number of files in an error message."""


def read_timeline(folder: RunFolder) -> Timeline:
    """Return the timeline of a run: read from the journals, or the saved timeline of imported files.

    PerfwrapError if the folder is not a run or cannot be read.
    """
    imported = folder.read_manifest().get("imported")
    if imported is not None:
        return storage.load(folder.timeline)
    timeline = run_journals.read(folder)
    tried = find_tried(folder.path, timeline.run)
    return replace(timeline, run={**timeline.run, "tried": tried}) if tried else timeline


def diagnose_run(folder: RunFolder, choice: Choice, overview: bool = False) -> tuple[Diagnosis, Timeline]:
    """Return the diagnosis of a run and its timeline; writes nothing except missing step tables.

    ``overview`` adds data for the HTML report. PerfwrapError if the folder is not a run or cannot be read.
    """
    if has_many_ranks(folder):
        return diagnose_many(folder, overview, choice)
    timeline = align_clocks(read_timeline(folder))
    return diagnose_timeline(timeline, choice, overview), timeline


def read_files(
    paths: Sequence[Path], run: dict[str, Any], given: str | None = None
) -> tuple[Timeline, tuple[files.Imported, ...]]:
    """Return the timeline of files that other profilers wrote, and the result for each file.

    ``run`` is the manifest of the timeline, ``given`` the format of all files if known. PerfwrapError if none of them
    can be read.
    """
    timeline, found = files.read(paths, run, given)
    if not any(file.read for file in found):
        raise PerfwrapError(
            "None of the files could be read: "
            + "; ".join(f"{file.path.name}: {file.problem}" for file in found[:MAX_NAMED]),
            f"Supported formats: {', '.join(files.formats())}. Details: perfwrap import --help",
        )
    return timeline, found


def diagnose_timeline(timeline: Timeline, choice: Choice, overview: bool = False) -> Diagnosis:
    """Return the diagnosis of a timeline, with the rules and thresholds that the user chose."""
    return diagnose(
        timeline,
        skipped=choice.skipped,
        thresholds=choice.thresholds,
        overview=overview,
        price=choice.price,
    )
