"""What is kept when the user interrupts the search; the runs of the program are replaced by their results."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from perfwrap.diagnosis.model import Diagnosis, Verdict
from perfwrap.edits.outcome import Target
from perfwrap.experiments.judge import Row
from perfwrap.experiments.plan import BASELINE
from perfwrap.experiments.reading import Reading
from perfwrap.experiments.runner import Settings
from perfwrap.experiments.statistics import Ratio
from perfwrap.experiments.trial import Run, Trial
from perfwrap.experiments.written import Written
from perfwrap.fixing.candidates import Candidate
from perfwrap.fixing.edited_program import Contents
from perfwrap.fixing.equality import Equality
from perfwrap.fixing.search import CHECK_STEPS, INSPECTED, STOPPED, Search
from perfwrap.reports import fix_document
from perfwrap.rules.model import Outcome

PROGRAM = """import torch
optimizer = torch.optim.SGD([torch.ones(1)], lr=0.1)
optimizer.zero_grad(set_to_none=False)
"""


class Silent:
    def says(self, text: str) -> None: ...

    def begins(self, name: str, number: int) -> None: ...

    def ticks(self, seconds: float) -> None: ...

    def ends(self, run: Run) -> None: ...

    def stops(self) -> None: ...


@dataclass
class Simulated(Search):
    """A search whose edits compute the same and gain; the run of that number is interrupted."""

    interrupted_at: int = 0
    runs: list[str] = field(default_factory=list)

    def _compare(
        self, name: str, contents: Contents, random: bool, keeps_workers: bool
    ) -> tuple[Equality, float, str]:
        self._next(name)
        return "identical", 0.0, ""

    def _measure(self, name: str, contents: Contents, one: Candidate) -> Row | None:
        self._next(name)
        ratio = {"edit1": 0.8, "edit2": 0.6}.get(name, 0.5)
        return Row(name, "fix", "measured", "gain", ratio=Ratio(ratio, ratio - 0.01, ratio + 0.01))

    def _next(self, name: str) -> None:
        self.runs.append(name)
        if len(self.runs) == self.interrupted_at:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("interrupted_at", "states", "total"),
    [
        (0, ["kept", "kept"], 0.5),
        (1, [], None),
        (3, ["kept"], 0.8),
        (5, ["dropped", "kept"], 0.6),
        (6, ["dropped", "kept"], 0.6),
    ],
)
def test_the_best_proven_edit_survives_an_interrupt(
    interrupted_at: int, states: list[str], total: float | None, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    edits = [
        Candidate("slow_optimizer", "optimizer_options", path, Target(2, {"foreach": True}), "", (0.5, 1.0)),
        Candidate("zero_grad_memset", "zero_grad_option", path, Target(3), "", (0.5, 1.0)),
    ]
    trial = Trial(["python", "train.py"], tmp_path, Settings(), Silent())
    search = Simulated(trial, False, time.monotonic() + 60, interrupted_at=interrupted_at)
    search.run(edits)
    document = fix_document.section(search, Written(), b"", tmp_path)
    assert json.dumps(document, allow_nan=False)
    assert trial.interrupted is bool(interrupted_at)
    assert [row["state"] for row in document["edits"]] == states
    assert all(row["reason"] == STOPPED for row in document["edits"] if row["state"] == "dropped")
    assert (document["total"] and document["total"]["ratio"]) == total
    changed = "".join(content.decode() for content in search.contents.values())
    kept = [row["edit"] for row in document["edits"] if row["state"] == "kept"]
    assert ("foreach=True" in changed) is ("optimizer_options" in kept)
    assert ("set_to_none=False" not in changed) is (not changed or "zero_grad_option" in kept)


@pytest.mark.parametrize(
    ("before", "after", "is_too_much"),
    [
        (4 << 30, 5 << 30, False),
        (4 << 30, 7 << 30, True),
        (300 << 20, 1200 << 20, False),
        (300 << 20, 1400 << 20, True),
        (None, 7 << 30, False),
        (4 << 30, None, False),
    ],
)
def test_memory_may_grow_by_half_and_always_by_what_workers_need(
    before: int | None, after: int | None, is_too_much: bool, tmp_path: Path
) -> None:
    search = Search(Trial(["python", "train.py"], tmp_path, Settings(), Silent()), False, 0.0)
    reason = search.memory_reason("memory", before, after)
    assert bool(reason) is is_too_much
    assert not reason or "--max-memory" in reason


@pytest.mark.parametrize(
    ("only", "unchecked"),
    [([], []), (["logging_overhead"], ["logging_overhead"]), (["slow_item"], [])],
)
def test_rules_that_could_not_be_checked_are_named_if_they_were_asked_for(
    only: list[str], unchecked: list[str], tmp_path: Path
) -> None:
    trial = Trial(["python", "train.py"], tmp_path, Settings(), Silent())
    trial.runs.append(Run(BASELINE, tmp_path, Reading("measured"), 1.0))
    trial.diagnosis = Diagnosis(
        Verdict("python-bound", 0.5, "", "measured"),
        outcomes=(Outcome("logging_overhead", "not checked"), Outcome("slow_item", "clear")),
    )
    search = Search(trial, False, 0.0)
    assert search.find(only) == []
    assert search.unchecked == unchecked


def test_rules_about_operations_need_an_inspection_and_others_do_not() -> None:
    assert {"loop_of_small_operations", "frozen_part_with_gradients", "repeated_work"} <= INSPECTED
    assert not {"worker_restart", "python_overhead", "host_sync_in_step"} & INSPECTED


def test_runs_that_compare_are_allowed_what_the_user_allows(tmp_path: Path) -> None:
    settings = Settings(allow_writes=True, timeout_s=7.0)
    search = Search(Trial(["python", "train.py"], tmp_path, settings, Silent()), False, 0.0)
    check = search._check(3)
    assert (check.allow_writes, check.timeout_s, check.values_seed, check.steps) == (
        True,
        7.0,
        3,
        CHECK_STEPS,
    )
