"""Collects the data of a run for export."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.exporters.chosen_steps import choose_steps
from perfwrap.exporters.export_model import Exported
from perfwrap.exporters.figures import find_figures
from perfwrap.exporters.naming import clean
from perfwrap.exporters.series import find_series
from perfwrap.exporters.stack_profiles import find_profiles
from perfwrap.reports import json as json_report
from perfwrap.reports import markdown
from perfwrap.run_folder import RunFolder
from perfwrap.timeline.clocks import HostClock, host_clock
from perfwrap.timeline.model import Timeline


def exported(diagnosis: Diagnosis, timeline: Timeline, folder: RunFolder, name: str) -> Exported:
    """Return the run for export, under that name."""
    run = diagnosis.run
    first, last = _ends(timeline, run)
    clock = _clock(run) or host_clock([(first, folder.manifest.stat().st_mtime_ns)])
    begin_ns, end_ns = clock.to_wall(np.array([first, last])).tolist()
    series, sampled = find_series(diagnosis, timeline, clock)
    return Exported(
        name=clean(name),
        folder=folder.path,
        command=clean(shlex.join(str(word) for word in run.get("command") or ())),
        host=clean(str((run.get("host") or {}).get("name") or "")),
        tags=tuple(clean(str(tag)) for tag in run.get("tags") or ()),
        status=_status(run.get("exit")),
        verdict=diagnosis.verdict.id,
        confidence=diagnosis.verdict.confidence,
        sentence=clean(diagnosis.verdict.sentence),
        conditions={clean(key): clean(value) for key, value in sorted(diagnosis.conditions.items())},
        begin_ns=begin_ns,
        end_ns=end_ns,
        is_dated=_clock(run) is not None,
        figures=find_figures(diagnosis) + sampled,
        series=series,
        steps=choose_steps(diagnosis, timeline, clock),
        documents={
            "diagnosis.json": clean(json_report.text(diagnosis)),
            "report.md": clean(markdown.text(diagnosis, folder.path)),
        },
        page=folder.report if folder.report.is_file() else None,
        version=clean(str((run.get("versions") or {}).get("perfwrap") or "")),
        profiles=find_profiles(diagnosis, timeline),
    )


def _clock(run: Mapping[str, Any]) -> HostClock | None:
    """Return the wall clock as the launcher saw it; None if that is unknown, as for files of other profilers."""
    pairs = [pair for pair in (run.get("start"), run.get("end")) if isinstance(pair, dict)]
    return host_clock([(pair["monotonic_ns"], pair["wall_ns"]) for pair in pairs]) if pairs else None


def _ends(timeline: Timeline, run: Mapping[str, Any]) -> tuple[int, int]:
    """Return when the run began and ended on the timeline's clock, as far as it is known."""
    start, end = run.get("start"), run.get("end")
    times = [
        timeline.spans.select(
            pl.col("start").alias("first"), (pl.col("start") + pl.col("duration")).alias("last")
        ),
        timeline.samples.select(pl.col("time").alias("first"), pl.col("time").alias("last")),
    ]
    first, last = pl.concat(times).select(pl.col("first").min(), pl.col("last").max()).row(0)
    begun = start["monotonic_ns"] if isinstance(start, dict) else first or 0
    ended = end["monotonic_ns"] if isinstance(end, dict) else last or 0
    return begun, max(begun, ended)


def _status(how: object) -> str:
    """Return how the command ended, in a word; nothing if that is not known."""
    if not isinstance(how, dict):
        return ""
    if "signal" in how:
        return "killed"
    return "finished" if how.get("code") == 0 else "failed"
