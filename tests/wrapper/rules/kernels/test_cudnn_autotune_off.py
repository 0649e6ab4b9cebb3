from __future__ import annotations

from typing import Any

import pytest
from perfwrap.rules.kernels import cudnn_autotune_off as rule
from perfwrap.rules.model import Clear, NotChecked

CONV = "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1>"
OTHER = "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>"
ADD = "vectorized_elementwise_kernel"
STEP = ((CONV, 30), (ADD, 10), (OTHER, 20), (ADD, 20), (ADD, 20))


def say(gpu_loop: Any, **facts: str) -> None:
    recording = gpu_loop.recording
    for key, value in facts.items():
        recording.builder.add_row(
            "facts", time=0, track=recording.process, key=key, value=value, source="recorder"
        )


def test_the_same_convolutions_in_each_step_without_tuning_are_found(gpu_loop: Any) -> None:
    gpu_loop.sequence(*STEP)
    say(gpu_loop, cudnn_benchmark="False", cudnn_deterministic="False")
    finding = gpu_loop.find(rule)
    assert finding.sentence.startswith("50 % of the GPU's time")
    assert finding.share == pytest.approx(0.5 * (1 - 1 / 1.1), abs=0.002)
    assert "implicit_convolve_sgemm" in finding.evidence[1]


@pytest.mark.parametrize(
    "facts",
    [
        {"cudnn_benchmark": "True"},
        {"cudnn_benchmark": "False", "cudnn_deterministic": "True"},
        {"cudnn_benchmark": "False", "deterministic": "True"},
    ],
)
def test_what_is_tuned_or_wants_the_same_results_is_clear(gpu_loop: Any, facts: dict[str, str]) -> None:
    gpu_loop.sequence(*STEP)
    say(gpu_loop, **facts)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_convolutions_that_change_are_clear(gpu_loop: Any) -> None:
    gpu_loop.sequence(*STEP, times=10)
    gpu_loop.sequence(*STEP, (CONV, 30), times=10)
    say(gpu_loop, cudnn_benchmark="False")
    answer = gpu_loop.ask(rule)
    assert isinstance(answer, Clear)
    assert "differ" in answer.why


def test_an_imported_trace_does_not_show_it(gpu_loop: Any) -> None:
    gpu_loop.sequence(*STEP)
    assert isinstance(gpu_loop.ask(rule), NotChecked)


def test_a_network_without_convolutions_is_clear(gpu_loop: Any) -> None:
    gpu_loop.sequence((ADD, 30), (ADD, 10), (ADD, 20), (ADD, 20), (ADD, 20))
    assert isinstance(gpu_loop.ask(rule), Clear)
