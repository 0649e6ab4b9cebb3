"""A recorded loop with a planted cause of idle time, and what its device truly did: scripts/gpu/planted_idle.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from perfwrap.measures.account.intervals import Intervals, covered, union, without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_work import find_gpu_work, find_timed_phases
from perfwrap.measures.kernels.phase_idle import find_phase_idle
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

REPOSITORY = Path(__file__).resolve().parents[2]
PLANTED = REPOSITORY / "scripts" / "gpu" / "planted_idle.py"
PERFWRAP = (sys.executable, "-m", "perfwrap")
SHARE = 0.05
"""How exactly an idle share of the time must be found."""


class Recorded:
    """A recorded loop with a planted cause, and what its device truly did."""

    def __init__(
        self,
        folder: Path,
        cause: str,
        environment: Mapping[str, str],
        program: Sequence[str] = (),
        window: str = "",
    ) -> None:
        """``program`` sets the device up and runs the rest of its arguments."""
        truth = folder / f"{cause}.json"
        environment = {**os.environ, **environment, "QUEUED_DEVICE_TRUTH": str(truth)}
        options = f"--no-monitors --no-report --max-overhead 100% --out {folder / cause}".split()
        options += ["--window", window] if window else ["--no-window"]
        command = [*PERFWRAP, "run", *options, "--", sys.executable, *program, str(PLANTED), cause]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
        assert done.returncode == 0, done.stderr
        self.printed: dict[str, Any] = json.loads(done.stdout)
        self.evidence = Evidence(run_journals.read(RunFolder(folder / cause)))
        main = self.evidence.get(find_main_trainer)
        assert main is not None
        self.main = main
        self.truth = pl.DataFrame(
            json.loads(truth.read_text()), schema=["name", "launched", "start", "end"], orient="row"
        )

    def busy(self, copies: bool = False, since: str = "start") -> Intervals:
        """Return when the device truly worked, or copied; with ``launched``, when it had something to do."""
        rows = self.truth.filter(pl.col("name").is_in(["h2d", "d2h", "d2d"]) == copies)
        return union([(rows[since].to_numpy(), rows["end"].to_numpy())])

    def idle_in_cause(self, copies: bool, since: str = "launched") -> Intervals:
        """Return when the device had nothing to do while the host was at the cause; copies count as work or not."""
        start, end = np.array(self.printed["planted_ns"], dtype=np.int64).T
        if self.printed["cause"] == "dispatch":  # Each phase launches more slowly than the device works.
            spans = self.evidence.timeline.spans.filter(
                pl.col("track") == self.main.thread,
                pl.col("operation").is_in(["forward", "backward", "optimizer"]),
            )
            start, end = spans["start"].to_numpy(), (spans["start"] + spans["duration"]).to_numpy()
        if (
            self.printed["cause"] == "sync"
        ):  # What follows, until the host launches again, is the wait's as well.
            launched = np.sort(self.truth["launched"].to_numpy())
            end = launched[np.minimum(np.searchsorted(launched, end), launched.size - 1)]
        work = [self.busy(since=since), *([self.busy(True, since)] if copies else [])]
        return without(union([(start, end)]), union(work))

    def share(self, busy: Intervals) -> float:
        """Return the share of the timed steps that these intervals cover."""
        timed = self.evidence.get(find_timed_phases, self.main)
        assert timed is not None
        start, end = timed.start[timed.counts], timed.end[timed.counts]
        return float(covered(busy, start, end).sum() / (end - start).sum())


def check_blame(run: Recorded, cause: str) -> None:
    """Check that most idle time is blamed on the planted cause, and as much as is true."""
    found = run.evidence.get(find_phase_idle, run.main)
    assert found is not None
    assert found.steps >= 20
    true = run.share(run.idle_in_cause(copies=False))
    assert true > 0.15, "the loop does not plant what it should"
    assert found.shares.get(cause, 0.0) == pytest.approx(true, abs=SHARE), found.shares
    assert next(iter(found.idle_ns)) == cause
    check_bounds(run)


def check_bounds(run: Recorded) -> None:
    """Check that the truth lies between the bounds of the events."""
    work = run.evidence.get(find_gpu_work, run.main)
    assert work is not None
    least, most = work.busy_share
    assert least <= run.share(run.busy(since="launched")) + SHARE
    assert run.share(run.busy()) <= most + SHARE
