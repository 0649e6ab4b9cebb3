from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow.gap_lines import find_gap_lines, find_main_line, long_work_share
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.python_gaps import find_python_gaps
from perfwrap.measures.main_trainer import find_main_trainer

from tests.wrapper.drawn_windows import TOOK, Step, add_windows

STEPS, OPENED = 40, 1_000_000_000


def test_a_sections_operations_are_known_by_the_events_around_them(run: Any) -> None:
    journal = run.journal(opened=OPENED)

    def body(step: Step) -> None:
        x = step.call("flip", step.batch(), line=("data.py:3 augment", "train.py:20 main"))
        hidden = step.call("mm", x, step.old("weight"), line=21)
        for _ in range(3):
            hidden = step.call("mul", hidden, line=("loss.py:7 penalty", "train.py:22 main"))
        hidden = step.call("add", hidden, line=("loss.py:9 penalty", "train.py:22 main"))
        step.train(hidden)

    begins = []
    for _ in range(STEPS):
        begins.append(journal.now)
        journal.python(TOOK)
        journal.span("forward", TOOK, "Net", 3, "train.py:21:main")
        journal.python(4 * TOOK)
        journal.span("backward", TOOK, "", 0, "train.py:23:main")
        journal.span("optimizer", 4 * TOOK, "SGD#1", 0, "train.py:24:main")
    timeline = add_windows(run.read(), body)
    windows = tuple(
        structs.replace(window, opened=begins[20] - window.operations[window.first_operations[1]].start)
        for window in timeline.operation_windows
    )
    evidence = Evidence(replace(timeline, operation_windows=windows))
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    loss = next(gap for gap in evidence.get(find_python_gaps, trainer) if gap.after_operation == "forward")
    lines = find_gap_lines(evidence, trainer, loss)
    assert [(line.file, line.line) for line, _ in lines] == [("loss.py", 7), ("loss.py", 9)]
    assert lines[0][1] == pytest.approx(3 / 4, abs=0.01)
    # Lines 7 and 9 of loss.py are called from the same line.
    assert find_main_line(evidence, trainer, loss) == Line("loss.py", 7, "penalty")
    batch = next(gap for gap in evidence.get(find_python_gaps, trainer) if gap.after_operation == "optimizer")
    assert [(line.file, line.line) for line, _ in find_gap_lines(evidence, trainer, batch)] == [
        ("data.py", 3)
    ]
    assert long_work_share(evidence, trainer, batch) == pytest.approx(1.0, abs=0.05)
