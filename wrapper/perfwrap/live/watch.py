"""Follows one run: decides what to read and recompute, and when."""

from __future__ import annotations

import time

from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Verdict
from perfwrap.live.hang import current_stall
from perfwrap.live.live_run import LiveRun
from perfwrap.live.pace import Pace
from perfwrap.live.view import Scene, View, look
from perfwrap.measures.evidence import Evidence
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals
from perfwrap.timeline.model import Timeline

READING_SHARE, FIGURES_SHARE, VERDICT_SHARE = 0.01, 0.02, 0.01
"""Maximum share of one core for each part of the work; together with the drawing less than 5 %."""

MAX_TO_CONCLUDE = 1_000_000
"""Maximum number of records of a run that is read again as a whole when it has ended: some seconds."""
OF_THE_WHOLE_RUN = ("slow_start",)
"""Rules that need the whole run, which is not available yet."""
LIVE_RULES = tuple(rule for rule in RULES if rule_id(rule) not in OF_THE_WHOLE_RUN)


class Watch:
    """A run and its current figures; ``scene`` is what to draw."""

    def __init__(self, folder: RunFolder) -> None:
        """Read the manifest; PerfwrapError if the folder is not a run."""
        self._run, self._folder = LiveRun(folder), folder
        self._reading, self._figures, self._judging = (
            Pace(share) for share in (READING_SHARE, FIGURES_SHARE, VERDICT_SHARE)
        )
        self._timeline: Timeline | None = None
        self._view = View()
        self._verdict: Verdict | None = None

    @property
    def over(self) -> bool:
        """Whether the run has ended or is lost."""
        return self._run.state.over

    @property
    def records(self) -> int:
        """Number of records of the run that were read."""
        return self._run.records

    def scene(self) -> Scene:
        """Return the current figures."""
        state = self._run.state
        stall = None if state.over else current_stall(self._folder.stalls)
        return Scene(self._run.manifest, state, self._elapsed(), self._view, self._verdict, stall)

    def step(self) -> None:
        """Read new records, and recompute what is due."""
        now = time.monotonic_ns()
        if self._reading.is_due(now):
            self._reading.run(now, self._run.refresh)
        if self._run.state.over:
            return
        if self._figures.is_due(now):
            self._view = self._figures.run(now, self._look)
        if self._judging.is_due(now) and self._timeline is not None:
            timeline = self._timeline
            self._verdict = self._judging.run(now, lambda: diagnose(timeline, LIVE_RULES).verdict)

    def conclude(self) -> None:
        """Read the whole run once, as a report does; of a long run, only the kept records.

        What can no longer be read keeps its last values.
        """
        if self._run.state.word == "deleted":
            return
        whole = self._run.begin == 0 or self._run.records <= MAX_TO_CONCLUDE
        timeline = run_journals.read(self._run.folder) if whole else self._run.timeline()
        self._view = look(Evidence(timeline), self._run, whole, True, self._view.run_so_far)
        self._verdict = diagnose(timeline, RULES if whole else LIVE_RULES).verdict

    def _look(self) -> View:
        """Return the view of the kept records."""
        self._timeline = self._run.timeline()
        whole = self._run.begin == 0
        return look(Evidence(self._timeline), self._run, whole, earlier=self._view.run_so_far)

    def _elapsed(self) -> int:
        """Return the elapsed time of the command on the wall clock: the run may be on another machine."""
        start, end = self._run.manifest.get("start"), self._run.manifest.get("end")
        if not isinstance(start, dict):
            return 0
        if isinstance(end, dict):
            return int(end["monotonic_ns"] - start["monotonic_ns"])
        return max(0, time.time_ns() - int(start["wall_ns"]))
