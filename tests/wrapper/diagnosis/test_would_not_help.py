from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from perfwrap.diagnosis.would_not_help import MAX_GAIN, MAX_NAMED, Unhelpful, find_unhelpful
from perfwrap.measures.evidence import Evidence
from perfwrap.rules.model import Finding, Option

from tests.wrapper.rules.conftest import Loop

CPU = {"model/Net/device": "cpu"}


def ask(run: Any, *findings: Finding, **tried: list[float]) -> dict[str, str]:
    """Return what would not help, and why."""
    timeline = run.read()
    evidence = Evidence(replace(timeline, run={**timeline.run, "tried": tried}))
    return {each.advice: each.why for each in find_unhelpful(evidence, findings)}


def write(
    loop: Any, wait: float = 0.2, item: float = 0.05, optimizer: float = 0.1, **settings: object
) -> None:
    """Write a loop with a loader, a read of a value and an optimizer in each step."""
    loop.loader(**settings)
    for _ in range(40):
        loop.batch(wait)
        loop.compute(optimizer=optimizer)
        loop.span("sync", item, "Tensor.item", 0, line=31)


def write_reads(loop: Any, each: float, every: int = 1, times: int = 1) -> None:
    """Write a loop in which ``times`` values are read in a function of their own, once in so many steps."""
    for step in range(40):
        loop.compute()
        for _ in range(times if step % every == 0 else 0):
            loop.python(each)
            loop.journal.span("sync", 1_000, "Tensor.item", 0, "train.py:31:select")


@pytest.fixture
def make_loop(run: Any) -> Callable[..., Loop]:
    """Return a function that begins the loop of one process, with facts about it."""
    return lambda **facts: Loop(run, **facts)


@pytest.fixture
def on_cpu(make_loop: Callable[..., Any]) -> Any:
    """A loop of a model on a CPU."""
    return make_loop(**CPU)


def test_popular_advice_that_gains_nothing_is_named_with_its_figure(on_cpu: Any, run: Any) -> None:
    write(on_cpu)
    found = ask(run)
    assert found["More DataLoader workers"].startswith("waits for batches take 2.")
    assert found["Fewer .item() calls"].endswith("of the loop (1 per step)")
    assert found["pin_memory and non_blocking"] == "nothing is copied to a GPU"
    assert found["A fused or foreach optimizer"].startswith("optimizer steps take 1.")
    assert len(found) == MAX_NAMED


def test_what_takes_its_share_is_not_said_to_be_useless(on_cpu: Any, run: Any) -> None:
    write(on_cpu, wait=10, item=5, optimizer=5)
    on_cpu.cores(16, busy=1)
    assert set(ask(run)) == {"pin_memory and non_blocking"}


def test_reads_in_a_function_that_takes_time_with_them_are_not_said_to_be_useless(
    on_cpu: Any, run: Any
) -> None:
    write_reads(on_cpu, each=0.5, times=8)
    assert "Fewer .item() calls" not in ask(run)


@pytest.mark.parametrize(
    ("every", "often"), [(1, "1 per step"), (8, "once in 8 steps"), (10, "once in 10 steps")]
)
def test_how_often_values_are_read_is_a_whole_number(on_cpu: Any, run: Any, every: int, often: str) -> None:
    write_reads(on_cpu, each=0.01, every=every)
    assert ask(run)["Fewer .item() calls"].endswith(f"({often})")


def test_what_the_program_does_not_have_is_not_mentioned(on_cpu: Any, run: Any) -> None:
    for _ in range(40):
        on_cpu.compute(optimizer=0)
    assert ask(run) == {}


def test_too_few_steps_prove_nothing(on_cpu: Any, run: Any) -> None:
    on_cpu.loader()
    for _ in range(8):
        on_cpu.batch(0.2)
        on_cpu.compute()
    assert ask(run) == {}


def test_what_a_finding_advises_is_not_said_to_be_useless(on_cpu: Any, run: Any) -> None:
    write(on_cpu)
    option = Option("Pass num_workers=2.", (0.9, 1.0), experiment="workers=2")
    other = Option("Wait less.", (0.95, 1.0), experiment="defer-item")
    found = ask(run, Finding("It waits.", 0.02, (), (option, other)))
    assert "More DataLoader workers" not in found
    assert "Fewer .item() calls" not in found
    assert "A fused or foreach optimizer" in found


def test_on_a_gpu_the_time_of_the_host_says_nothing_of_the_optimizer(
    make_loop: Callable[..., Any], run: Any
) -> None:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    write(loop)
    found = ask(run)
    assert "A fused or foreach optimizer" not in found
    assert "pin_memory and non_blocking" not in found


def test_settings_that_are_on_are_not_mentioned(make_loop: Callable[..., Any], run: Any) -> None:
    loop = make_loop(**CPU, **{"optimizer/SGD#1/fused": "True"})
    write(loop, pin_memory=True)
    assert {"A fused or foreach optimizer", "pin_memory and non_blocking"}.isdisjoint(ask(run))


def test_workers_that_no_core_is_free_for_would_not_help(on_cpu: Any, run: Any) -> None:
    write(on_cpu, wait=10)
    on_cpu.cores(1)
    on_cpu.sample("process/100", "cpu_cores", 1)
    assert ask(run)["More DataLoader workers"] == "the training keeps its 1 core busy"


def test_workers_that_may_help_are_not_said_to_be_useless(on_cpu: Any, run: Any) -> None:
    write(on_cpu, wait=10)
    on_cpu.cores(2)
    on_cpu.sample("process/100", "cpu_cores", 1.9)
    assert "More DataLoader workers" not in ask(run)


def test_batches_as_cheap_to_make_as_to_send_need_no_workers(on_cpu: Any, run: Any) -> None:
    on_cpu.loader()
    for _ in range(40):
        on_cpu.batch(0.3)
        on_cpu.compute(0.3, 0.3, 0.1)
    on_cpu.cores(8, busy=1)
    assert ask(run)["More DataLoader workers"] == "a batch takes 300 µs to make and about as long to send"


@pytest.mark.parametrize(
    ("epochs", "why"), [(1, "the workers start once, for one epoch"), (4, "starting workers")]
)
def test_workers_that_start_once_or_at_little_cost_need_not_persist(
    on_cpu: Any, run: Any, epochs: int, why: str
) -> None:
    on_cpu.loader(num_workers=2, persistent_workers=False, pin_memory=True)
    for _ in range(epochs):
        on_cpu.span("loader_start", 0.01, "loader/1", 0, 20)
        for _ in range(60 // epochs):
            on_cpu.batch(0.1)
            on_cpu.compute(optimizer=0)
    assert ask(run)["persistent_workers"].startswith(why)


def test_zeroing_gradients_is_named_only_where_the_program_asks_for_zeros(on_cpu: Any, run: Any) -> None:
    on_cpu.journal.fact("zero_grad/1/line", "train.py\x1f25\x1fmain")
    on_cpu.journal.fact("zero_grad/1/set_to_none", "False")
    for _ in range(40):
        on_cpu.compute(optimizer=0)
        on_cpu.span("zero_grad", 0.05, "Optimizer.zero_grad", line=25)
    assert ask(run)["zero_grad(set_to_none=True)"].startswith("zero_grad takes 0.6 %")


def test_what_a_trial_measured_without_a_gain_is_named_first(on_cpu: Any, run: Any) -> None:
    write(on_cpu)
    found = ask(run, compile=[1.01, 0.98, 1.04], bf16=[0.55, 0.19, 1.44])
    assert next(iter(found.items())) == (
        "torch.compile",
        "`perfwrap try` measured 1.01 (0.98 to 1.04) of the step time",
    )
    assert "bfloat16 autocast" not in found
    assert len(found) == MAX_NAMED


def test_a_sentence_has_both() -> None:
    assert Unhelpful("pin_memory", "nothing is copied", ()).sentence == "pin_memory: nothing is copied."
    assert 0 < MAX_GAIN < 0.05
