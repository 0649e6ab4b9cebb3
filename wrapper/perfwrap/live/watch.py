"""Watches one run: decides what is read and worked out again, and when."""

from __future__ import annotations

import time

from perfwrap.diagnosis import diagnose
from perfwrap.live.pace import Pace
from perfwrap.live.run import LiveRun
from perfwrap.live.stalls import current_stall
from perfwrap.live.view import Scene, View, look
from perfwrap.measures.evidence import Evidence
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id
from perfwrap.run_folder import RunFolder
from perfwrap.sources import journal
from perfwrap.timeline.model import Timeline
from perfwrap.verdict import Verdict

READING_SHARE, FIGURES_SHARE, VERDICT_SHARE = 0.01, 0.02, 0.01
"""How much of one core each part of the work may take; with the drawing that stays below a twentieth."""

MOST_TO_CONCLUDE = 1_000_000
"""Records of a run that is read once more as a whole when it has ended: some seconds."""
OF_THE_WHOLE_RUN = ("slow_start",)
"""Rules that weigh something against the whole run, which nobody knows yet."""
LIVE_RULES = tuple(rule for rule in RULES if rule_id(rule) not in OF_THE_WHOLE_RUN)


class Watch:
    """A run and what is known of it; ``scene`` is what to draw."""

    def __init__(self, folder: RunFolder) -> None:
        """Read the manifest; PerfwrapError when the folder is no run."""
        self._run, self._folder = LiveRun(folder), folder
        self._reading, self._figures, self._judging = (
            Pace(share) for share in (READING_SHARE, FIGURES_SHARE, VERDICT_SHARE)
        )
        self._timeline: Timeline | None = None
        self._view = View()
        self._verdict: Verdict | None = None

    @property
    def over(self) -> bool:
        """Whether the run has ended or is gone."""
        return self._run.state.over

    @property
    def records(self) -> int:
        """How many records of the run were read."""
        return self._run.records

    def scene(self) -> Scene:
        """Return what is known at present."""
        state = self._run.state
        stall = None if state.over else current_stall(self._folder.stalls)
        return Scene(self._run.manifest, state, self._elapsed(), self._view, self._verdict, stall)

    def step(self) -> None:
        """Read what is new, and work out again what is due."""
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
        """Read the whole run once, as a report does; a long one only as far as it is kept.

        What cannot be read any more stays as it was last seen.
        """
        if self._run.state.word == "deleted":
            return
        whole = self._run.begin == 0 or self._run.records <= MOST_TO_CONCLUDE
        timeline = journal.read(self._run.folder) if whole else self._run.timeline()
        self._view = look(Evidence(timeline), self._run, whole=whole, over=True)
        self._verdict = diagnose(timeline, RULES if whole else LIVE_RULES).verdict

    def _look(self) -> View:
        """Return the view of what is kept."""
        self._timeline = self._run.timeline()
        return look(Evidence(self._timeline), self._run, whole=self._run.begin == 0)

    def _elapsed(self) -> int:
        """Return for how long the command has run, by the wall clock: the run may be another machine's."""
        start, end = self._run.manifest.get("start"), self._run.manifest.get("end")
        if not isinstance(start, dict):
            return 0
        if isinstance(end, dict):
            return int(end["monotonic_ns"] - start["monotonic_ns"])
        return max(0, time.time_ns() - int(start["wall_ns"]))
