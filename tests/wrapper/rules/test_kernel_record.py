"""Faster kernels help only where the GPU, not the host's launches, limits the steps."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.rules.kernel_record import limiting, loop_share
from perfwrap.rules.model import Clear, NotChecked

US = 1_000
RECORDED, STEPS, KERNELS = range(20, 26), 60, 10


def answer(
    recording: Any, kernel_us: float, kernels: int = KERNELS, step_us: float = 1_000
) -> tuple[Any, float]:
    """Return what ``limiting`` says of steps with so many kernels, 100 us apart, and the kernels' share of the loop."""
    now, window = 0.0, []
    for number in range(STEPS):
        took = 1_000.0 if number in RECORDED else step_us
        if number in RECORDED:
            window.append(now)
            recording.step(now, took)
            for place in range(kernels):
                at = now + 100 * place
                recording.host(at, 100 - kernel_us, "op")
                recording.work(at + 100 - kernel_us, kernel_us, launched=at + 100 - kernel_us - 3)
        recording.optimizer(now + took)
        now += took
    recording.window(window[0], window[-1] + 1_000)
    evidence = Evidence(recording.build())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    found = limiting(evidence, trainer)
    spent = len(RECORDED) * kernels * kernel_us * US
    return found, loop_share(evidence, trainer, found, spent) if isinstance(found, GpuActivity) else 0.0


@pytest.mark.parametrize(
    ("kernel_us", "kernels", "kind"),
    [(20, KERNELS, Clear), (60, KERNELS, GpuActivity), (20, 5, NotChecked)],
    ids=["waits for launches", "busy for longer than it waits", "few kernels"],
)
def test_only_kernels_that_limit_the_loop_are_judged(
    recording: Any, kernel_us: float, kernels: int, kind: type
) -> None:
    assert isinstance(answer(recording, kernel_us, kernels)[0], kind)


@pytest.mark.parametrize(("step_us", "share"), [(1_000, 0.8), (8_000, 0.1)])
def test_shares_are_those_of_the_loop(recording: Any, step_us: float, share: float) -> None:
    """Ordinary steps wait for batches, which the recorded ones had at once."""
    assert answer(recording, 80, step_us=step_us)[1] == pytest.approx(share, abs=0.02)
