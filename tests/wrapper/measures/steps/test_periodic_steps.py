"""Steps are recognised by repeated kernels if nothing else shows them."""

from __future__ import annotations

import numpy as np
import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import find_trainers
from perfwrap.timeline.builder import TimelineBuilder

STEP = ["conv", "bn", "relu", "conv", "bn", "relu", "pool", "gemm", "loss", "back", "gemm", "adam"]


def steps_of(kernels: list[str], pause_before: str = "conv", imported: bool = True) -> Steps | None:
    """Return the steps of a thread that launches these kernels, with a pause where a batch was waited for."""
    builder = TimelineBuilder()
    process = builder.process("h", 1)
    thread, stream = builder.thread(process, 1, "main", 1), builder.stream(process, 2, "gpu/0 stream 7")
    time = 0
    for number, kernel in enumerate(kernels):
        waits = kernel == pause_before and (number == 0 or kernels[number - 1] == "adam")
        time += 1_000 if waits else 100
        launch = {
            "operation": "cudaLaunchKernel",
            "category": "other",
            "track": thread,
            "name": "cudaLaunchKernel",
        }
        done = {"operation": "kernel", "category": "kernel", "track": stream, "name": kernel}
        builder.add_row("spans", start=time, duration=10, link=number, source="x", **launch)
        builder.add_row("spans", start=time + 50, duration=30, link=number, source="x", **done)
    timeline = builder.build({"imported": []} if imported else {})
    trainers = find_trainers(Evidence(timeline))
    return Evidence(timeline).get(find_steps, trainers[0]) if trainers else None


def test_a_repeated_sequence_of_kernels_shows_the_steps() -> None:
    steps = steps_of(STEP * 9)
    assert steps is not None
    assert (steps.count, steps.anchor) == (9, "repetition of its 12 kernel launches")
    assert steps.table["duration"].to_list()[:8] == [1_000 + 11 * 100] * 8


def test_a_step_begins_behind_its_longest_pause_wherever_the_recording_began() -> None:
    steps = steps_of(STEP[5:] + STEP * 8)
    assert steps is not None
    assert set(steps.table["duration"].to_list()[:-1]) == {2_100}


def test_a_kernel_that_changes_now_and_then_does_not_matter() -> None:
    kernels = STEP * 9
    kernels[30] = "other_gemm"
    steps = steps_of(kernels)
    assert steps is not None
    assert steps.count == 9


@pytest.mark.parametrize(
    "kernels",
    [
        ["fill"] * 500,
        ["fill", "copy"] * 200,
        STEP * 2,
        [],
        [f"k{number}" for number in np.random.default_rng(0).integers(0, 9, 400)],
    ],
)
def test_what_does_not_repeat_as_a_step_does_is_no_step(kernels: list[str]) -> None:
    steps = steps_of(kernels)
    assert steps is None or steps.count == 0


def test_launches_in_a_recording_of_perfwrap_show_no_trainer() -> None:
    assert steps_of(STEP * 9, imported=False) is None
