from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.enough import are_enough, is_enough

MS = 1_000_000
SECOND = 1_000 * MS


@pytest.mark.parametrize(
    ("durations", "enough"),
    [
        ([SECOND, SECOND, 1_100 * MS, SECOND, 950 * MS], True),
        ([SECOND] * 4, False),
        ([SECOND, 9 * SECOND, SECOND, 20 * SECOND, SECOND], False),
        ([100 * MS] * 5, False),
        ([5 * MS] * 20, True),
        ([5 * MS] * 19 + [2 * SECOND], True),
        ([1 * MS] * 19 + [500 * MS], False),
        ([], False),
    ],
    ids=["long", "four", "varied", "short", "many", "long in total", "many but varied", "none"],
)
def test_time_and_spread_decide(durations: list[int], enough: bool) -> None:
    assert is_enough(np.array(durations, dtype=np.int64)) == enough


def test_closures_and_micro_batches_count(run: Any) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(20):
            journal.forward(20 * MS)
            journal.backward(30 * MS)
        journal.optimizer(5 * MS)
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    assert are_enough(evidence, trainer)


def test_a_few_short_steps_are_not_enough(run: Any) -> None:
    journal = run.journal()
    for _ in range(19):
        journal.step()
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    assert not are_enough(evidence, trainer)
