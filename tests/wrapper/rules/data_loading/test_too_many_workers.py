from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.rules.data_loading import too_many_workers as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, threads: float, workers: int = 4) -> None:
    pids = " ".join(str(101 + number) for number in range(workers))
    loop.loader(num_workers=workers, workers=pids)
    for _ in range(40):
        loop.batch(10)
        loop.compute()
    for number in range(workers):
        loop.worker(number, 39, threads=threads)


def test_workers_with_many_threads_on_few_cores_are_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, threads=10)
    loop.cores(2, runnable=8)
    finding = find(rule)
    assert str(finding.location) == "train.py:12"
    assert "8 compute threads each" in finding.evidence[0]
    # Nothing but waits and compute, at four times the pressure.
    assert finding.share == pytest.approx(0.75, abs=0.02)
    assert finding.saving == pytest.approx((1 - finding.share, 1.0))
    assert "num_workers=2" in finding.options[1].edit
    assert finding.experiment == "threads=1"


def test_workers_with_one_thread_each_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, threads=3)
    loop.cores(2, runnable=8)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize("sampled", [False, True])
def test_the_thread_that_samples_stacks_is_perfwraps_own(
    loop: Any, ask: Callable[[Rule], Answer], sampled: bool
) -> None:
    write(loop, threads=4)
    loop.cores(2, runnable=8)
    if sampled:
        label = FIELD_SEPARATOR.join(("forward", "net.py", "9", "forward"))
        loop.journal.record(INSTANTS["STACK"], loop.journal.now, 1_000_000, 4, label, 1)
    assert isinstance(ask(rule), Clear) == sampled


def test_threads_that_do_not_want_to_run_at_once_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, threads=10)
    loop.cores(2, runnable=1.5)
    assert isinstance(ask(rule), Clear)


def test_threads_that_were_not_counted_are_not_guessed(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.loader(num_workers=4)
    for _ in range(40):
        loop.batch(10)
        loop.compute()
    loop.cores(2, runnable=8)
    assert isinstance(ask(rule), NotChecked)


@pytest.mark.parametrize(("own", "severity"), [(2.0, "critical"), (1.0, "minor")])
def test_while_other_programs_use_the_cores_it_is_a_minor_problem(
    loop: Any, find: Callable[[Rule], Finding], own: float, severity: str
) -> None:
    write(loop, threads=10)
    loop.monitor().fact("cores_online", 2)
    loop.cores(2, runnable=16, busy=2)
    loop.sample("process/100", "cpu_cores", own)
    assert find(rule).severity == severity
