from __future__ import annotations

import pytest
from perfwrap.reports.command_line import proof


@pytest.mark.parametrize(
    ("experiment", "command"),
    [
        (None, ""),
        ("fused-optimizer", "perfwrap try fused-optimizer"),
        ("three-run", "perfwrap try --preset three-run"),
        ("find-batch-size", "perfwrap try --find-batch-size"),
        # A trial writes no checkpoints, so it would refuse this change.
        ("no-checkpoint", "perfwrap try no-checkpoint --allow-writes"),
    ],
)
def test_the_command_that_measures_a_fix_can_be_run_as_it_is(experiment: str | None, command: str) -> None:
    assert proof(experiment) == command
