"""Detect that a training hangs, and write the stacks of all its processes, without affecting them.

A stall is that no step ends for max(5 x p99 of the steps so far, ``--stall-after``), no recorded process makes other
progress (batches, forward passes, checkpoints), and no process of the run is active. A trainer that is known to be
inside a collective or a wait for a batch may spin there. Nothing is reported before a second step has ended, for a
trainer that has left its loop, and while a process is stopped; time without samples does not count.

``stalls/`` in the run folder has a file for each stall, described in docs/stalls.md.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfwrap.journal_format import SPANS
from perfwrap.monitors.monitor_journal import JournalWriter, clock_pair
from perfwrap.monitors.processes import process_activity
from perfwrap.monitors.processes.process_activity import Activity
from perfwrap.monitors.processes.process_tree import ProcessTree, StartRecords
from perfwrap.monitors.progress.followed_journals import Followed, FollowedJournals
from perfwrap.monitors.progress.live_journal import Place
from perfwrap.monitors.progress.shown_progress import SharedProgress
from perfwrap.monitors.pyspy import pyspy_tool
from perfwrap.monitors.pyspy.pyspy_sampling import host_of
from perfwrap.monitors.stalls import stall_report, stall_stacks
from perfwrap.monitors.stalls.stall_kill import Killer
from perfwrap.monitors.stalls.stall_stacks import Stacks
from perfwrap.run_folder import RunFolder

FORMAT = 1
"""Version of the stall file. 1: first."""
FACTOR = 5.0
"""Times the 99th percentile of the steps so far: the margins of the watchdogs of torchelastic and NCCL are far larger;
a step that is only slow stays far below."""
FAR_FACTOR = 10.0
"""The factor for the threshold while all ranks here wait for ranks on other machines, which may be saving."""
SHARE = 0.99
SECOND_NS = 1_000_000_000
LOOKS = 10
"""Samples within the shortest stall; the interval is at most LONGEST_INTERVAL_NS."""
LONGEST_INTERVAL_NS = 5 * SECOND_NS
MAX_PROCESSES = 64
"""The maximum number of processes whose stacks are written."""
COLLECTIVE = SPANS["COLLECTIVE"]
MARK, END_MARK = "stall", "stall_end"


@dataclass(frozen=True)
class StallOptions:
    """The options of the user."""

    least_seconds: float
    launcher: int
    say: Callable[[str], None]
    kill: bool = False
    grace_seconds: float = 30.0


class StallMonitor:
    """Detects stalls, and publishes the progress of the trainers."""

    def __init__(
        self,
        journal: JournalWriter,
        run: RunFolder,
        roots: deque[int],
        options: StallOptions,
        shown: SharedProgress,
    ) -> None:
        self.stalled, self._shown = False, shown
        self._journal, self._run, self._roots, self._options = journal, run, roots, options
        self._host = host_of(journal)
        self._followed = FollowedJournals(run.journal, self._host)
        self._tree = ProcessTree(StartRecords(run.starts))
        least_ns = int(options.least_seconds * SECOND_NS)
        self._least_ns, self._interval_ns = least_ns, min(LONGEST_INTERVAL_NS, least_ns // LOOKS)
        self._last_ns = self._silent_ns = 0
        self._began_ns: tuple[int, int] = (0, 0)
        self._before: Activity | None = None
        self._number = 0
        self._file: Path | None = None
        self._record: dict[str, Any] = {}
        self._killer = Killer(options.launcher, options.grace_seconds)

    def quick(self, now_ns: int) -> None:
        """Do nothing: once a second is enough."""

    def full(self, now_ns: int) -> None:
        """Check for progress, if that is due."""
        # A slightly early tick counts.
        if now_ns - self._last_ns < self._interval_ns - SECOND_NS // 2:
            return
        # If the machine or this process was suspended, so was the program.
        elapsed_ns = min(now_ns - self._last_ns, self._interval_ns + 2 * SECOND_NS) if self._last_ns else 0
        self._last_ns = now_ns
        moved = self._followed.refresh(now_ns)
        if moved:
            self._go_on()
        elif self.stalled:
            self._wait(now_ns)
        else:
            self._be_patient(now_ns, elapsed_ns)
        self._shown.publish(self._followed.trainers, self.stalled)

    def _be_patient(self, now_ns: int, elapsed_ns: int) -> None:
        """Count the time without progress, and examine the processes once it is long."""
        self._silent_ns += elapsed_ns
        threshold_ns = self._threshold_ns()
        if threshold_ns is None:
            self._go_on()
        elif self._silent_ns >= threshold_ns / 2:
            self._suspect(now_ns, threshold_ns)

    def close(self) -> None:
        """Record that the command ended during a stall."""
        if self.stalled:
            self._end("the command ended")

    def _threshold_ns(self) -> float | None:
        """Return how long without progress is a stall; None while no process trains."""
        training = [one for one in self._followed.trainers if not one.is_through]
        if not training:
            return None
        p99_ns = max(one.progress.ends.times.quantile(SHARE) for one in training)
        return max(FACTOR * p99_ns, float(self._least_ns))

    def _go_on(self) -> None:
        """Reset the count: there was progress."""
        if self.stalled:
            self._end("steps resumed")
        self._silent_ns, self._before, self._began_ns = 0, None, clock_pair()

    def _suspect(self, now_ns: int, threshold_ns: float) -> None:
        """Decide whether this is a stall: during its second half no process was active."""
        members = self._members()
        now = process_activity.look(now_ns, members)
        if now.any_stopped:
            self._silent_ns, self._before = 0, None
        elif self._before is None:
            self._before = now
        elif self._silent_ns >= threshold_ns * (FAR_FACTOR if self._waits_for_others() else 1.0):
            if self._is_anyone_at_work(self._before, now):
                self._silent_ns, self._before = int(threshold_ns / 2), now
            else:
                self._begin(threshold_ns, members)

    def _members(self) -> dict[int, int]:
        """Return the start ticks of all living processes of the command, by pid."""
        while self._roots:
            self._tree.plant(self._roots.popleft())
        self._tree.scan()
        self._tree.follow()
        return dict(self._tree.members)

    def _is_anyone_at_work(self, before: Activity, now: Activity) -> bool:
        """Return whether a process does something other than wait for others."""
        trainers = {one.pid: one for one in self._followed.trainers if one.alive}
        busy = process_activity.at_work(before, now, trainers)
        return any(pid not in trainers or not trainers[pid].progress.open_calls() for pid in busy)

    def _waits_for_others(self) -> bool:
        """Return whether there are ranks on other machines and all ranks of this one are inside collectives."""
        known = self._followed.trainers
        living = [one for one in known if one.alive]
        if all(one.world_size <= len(known) for one in living):
            return False
        return all(any(call.kind == COLLECTIVE for call in one.progress.open_calls()) for one in living)

    def _begin(self, threshold_ns: float, members: dict[int, int]) -> None:
        """Take the stacks, write the stall file, and report the stall."""
        self.stalled = True
        self._number += 1
        living, trainers = self._followed.living, self._followed.trainers
        tool = pyspy_tool.find()
        first = sorted(members, key=lambda pid: (pid not in living, pid))[:MAX_PROCESSES]
        stacks = {pid: stall_stacks.take(pid, tool, pid in living) for pid in first}
        standings = {one.pid: stall_report.find_standing(one, stacks.get(one.pid)) for one in trainers}
        workers = _hanging_workers(living, stacks)
        sentence = stall_report.sentence(self._silent_ns / SECOND_NS, list(standings.values()), list(workers))
        missing = stall_report.find_missing(list(standings.values()))
        lines = [Place(*frame) for frame in workers.values() if frame is not None]
        where = next(iter(lines), (missing or list(standings.values()))[0].where)
        self._record = {
            "format": FORMAT,
            "host": self._host,
            "began": _moment(self._began_ns),
            "noticed": _moment(clock_pair()),
            "ended": None,
            "silent_s": round(self._silent_ns / SECOND_NS, 1),
            "threshold_s": round(threshold_ns / SECOND_NS, 1),
            "steps": max(one.steps for one in standings.values()),
            "sentence": sentence,
            "missing": [one.name for one in missing],
            "where": where._asdict() if where.line else None,
            "killed": self._options.kill,
            "processes": [
                stall_report.process_record(stacks[pid], living.get(pid), standings.get(pid), members[pid])
                for pid in first
            ],
        }
        self._file = self._run.stalls / f"{self._host}-{self._number}.json"
        self._write()
        summary = {key: self._record[key] for key in ("silent_s", "steps", "sentence", "missing", "where")}
        self._journal.mark(MARK, json.dumps(summary | {"file": str(self._file.relative_to(self._run.path))}))
        self._journal.flush()
        self._options.say(f"perfwrap: {sentence}; stacks: {self._file}")
        if self._options.kill:
            self._options.say(
                "perfwrap: --kill-on-stall ends the command now (SIGTERM) "
                f"and kills it in {self._options.grace_seconds:g} s (SIGKILL)"
            )
            self._killer.ask(self._last_ns)

    def _wait(self, now_ns: int) -> None:
        """Detect the end of a stall, or end the command if the user requested it."""
        if self._killer.has_begun:
            self._killer.insist(now_ns, self._members())
        elif not any(one.alive for one in self._followed.trainers):
            self._end("the training processes ended")

    def _end(self, how: str) -> None:
        """Record that the stall is over."""
        self.stalled = False
        moment = clock_pair()
        self._record["ended"] = {**_moment(moment), "how": how}
        self._write()
        seconds = (moment[0] - self._began_ns[0]) / SECOND_NS
        detail = {"how": how, "lasted_s": round(seconds, 1), "file": self._file.name if self._file else ""}
        self._journal.mark(END_MARK, json.dumps(detail))
        if how == "steps resumed":
            self._options.say(f"perfwrap: steps resumed after {seconds:.0f} s")

    def _write(self) -> None:
        """Write the stall file atomically; on a full disk only that file is lost."""
        if self._file is None:
            return
        temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            self._file.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps(self._record, indent=1), encoding="utf-8")
            temporary.replace(self._file)
        except OSError as error:
            self._journal.not_watched("stalls", f"the stall file could not be written: {error}")


def _moment(pair: tuple[int, int]) -> dict[str, int]:
    """Return a moment in the format of the run folder."""
    return {"monotonic_ns": pair[0], "wall_ns": pair[1]}


def _hanging_workers(
    living: dict[int, Followed], stacks: dict[int, Stacks]
) -> dict[str, tuple[str, str, int, str] | None]:
    """Return descriptions of the workers that have taken an order and not made its batch, and the line of each."""
    found: dict[str, tuple[str, str, int, str] | None] = {}
    for pid, one in sorted(living.items()):
        if one.role != "worker" or not one.progress.is_making:
            continue
        main = stacks[pid].main if pid in stacks else None
        frame = main.users_frame if main else None
        at = f" at {Path(frame.file).name}:{frame.line} ({frame.function})" if frame else ""
        line = (frame.function, frame.file, frame.line, frame.function) if frame else None
        found[f"the DataLoader worker {pid} hangs in a batch{at}"] = line
    return found


def watch(
    journal: JournalWriter,
    run: RunFolder,
    roots: deque[int],
    options: StallOptions | None,
    shown: SharedProgress,
) -> StallMonitor | None:
    """Start to detect stalls; None if the user disabled that."""
    if options is None:
        journal.not_watched(
            "stalls", "switched off by --stall-after 0, or the job was not started by perfwrap"
        )
        return None
    return StallMonitor(journal, run, roots, options, shown)
