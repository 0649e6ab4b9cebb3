from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.measures.account.lines import Line
from perfwrap.measures.loop.library_calls import LibraryCall, LibraryTime
from perfwrap.measures.loop.stacks import HotFunction, Sampled
from perfwrap.rules.levers import Levers
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.run import compute_bound as rule

from tests.wrapper.drawn_windows import Step

MS = 1_000_000


def step_with_loss(loop: Any) -> None:
    """Write a step that works its loss out between the passes."""
    loop.span("forward", 4, "Net", 3, 21)
    loop.python(2)
    loop.span("backward", 5, line=23)
    loop.span("optimizer", 1, "SGD#1", line=24)


def test_a_loop_of_model_work_alone_is_compute_bound(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        loop.compute()
    finding = find(rule)
    assert finding.share > 0.99
    assert finding.severity == "note"
    assert finding.saving == (1.0, 1.0)


def test_the_loss_counts_as_the_models_work(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        step_with_loss(loop)
    assert find(rule).share > 0.99


def test_a_loop_with_something_else_in_it_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.batch(3)
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_a_busy_gpu_is_compute_bound_by_its_duty_cycle(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding]
) -> None:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(40):
        loop.batch(3)
        loop.compute()
    loop.sample("gpu/0", "utilization_share", 0.97)
    finding = find(rule)
    assert finding.share == pytest.approx(0.97)
    assert "duty cycle" in finding.evidence[0]


def test_an_idle_gpu_is_clear(make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]) -> None:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(40):
        loop.compute()
    loop.sample("gpu/0", "utilization_share", 0.5)
    assert isinstance(ask(rule), Clear)


def test_a_gpu_that_was_not_recorded_is_not_checked(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(40):
        loop.compute()
    assert isinstance(ask(rule), NotChecked)


def test_kernels_that_fill_the_recorded_time_are_healthy(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=95)
    finding = gpu_loop.find(rule)
    assert finding.informational
    assert finding.share == pytest.approx(0.95, abs=0.01)


def test_kernels_with_gaps_between_them_are_not(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=75)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_collectives_that_run_alone_are_no_computing(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=75, beside="ncclDevKernel_AllReduce")
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_what_the_gpu_does_of_its_peak_is_said_or_why_not(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=95)
    assert "--window-detail shapes" in gpu_loop.find(rule).evidence[1]


@pytest.mark.parametrize(("working", "is_found"), [(0.25, False), (0.9, True)])
def test_a_gpu_that_only_looks_busy_is_not_healthy(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer], working: float, is_found: bool
) -> None:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(40):
        loop.compute()
    loop.sample("gpu/0", "utilization_share", 0.97)
    for unit, value in {"sm": working, "tensor": 0.7, "dram": 0.3}.items():
        loop.sample("gpu/0", f"{unit}_activity_share", value)
    answer = ask(rule)
    assert isinstance(answer, list) == is_found
    if isinstance(answer, list):
        assert "tensor cores limit it" in answer[0].evidence[1]


def sampled_loop(loop: Any, places: dict[tuple[str, str], int]) -> None:
    """Write a loop of model work, and so many samples at each (phase, place)."""
    for _ in range(40):
        loop.compute()
        for (phase, place), count in places.items():
            label = FIELD_SEPARATOR.join((phase, *place.split(":")))
            loop.journal.record(INSTANTS["STACK"], loop.journal.now - 9 * MS, MS, count, label, 1)


@pytest.fixture
def as_of_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the rule take the samples in a journal for py-spy's."""
    monkeypatch.setattr(rule, "OUTSIDE", "recorder")


@pytest.mark.usefixtures("as_of_py_spy")
def test_the_function_of_the_model_with_most_samples_is_named_and_not_accused(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    places = {("forward", "net.py:51:normalise"): 6, ("forward", "net.py:60:forward"): 1}
    sampled_loop(loop, {**places, ("backward", "train.py:23:main"): 3})
    finding = find(rule)
    assert finding.informational
    assert finding.severity == "note"
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("net.py", 51)
    assert "60 % in normalise at net.py:51, 10 % in forward at net.py:60" in finding.evidence[1]
    assert finding.title.endswith("model work, most of it at net.py:51.")
    assert "net.py:51" in finding.advice
    assert "no_grad" not in finding.advice


def test_what_the_sampler_inside_saw_is_quoted_and_no_line_blamed(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    sampled_loop(loop, {("forward", "net.py:51:normalise"): 6, ("backward", "train.py:23:main"): 3})
    finding = find(rule)
    assert finding.location is None
    assert "67 % in normalise at net.py:51" in finding.evidence[1]
    assert "net.py" not in finding.advice
    assert finding.rerun_options == "--py-spy"


def test_no_function_is_named_where_none_stands_out(loop: Any, find: Callable[[Rule], Finding]) -> None:
    places = {("forward", f"net.py:{line}:layer_{line}"): 1 for line in range(10)}
    sampled_loop(loop, {**places, ("backward", "train.py:23:main"): 3})
    finding = find(rule)
    assert finding.location is None
    assert "stands out" in finding.evidence[1]


@pytest.mark.usefixtures("as_of_py_spy")
def test_a_hook_in_the_backward_pass_is_named_and_the_line_that_calls_it_is_not(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    sampled_loop(loop, {("backward", "hooks.py:7:clip"): 6, ("backward", "train.py:23:main"): 4})
    finding = find(rule)
    assert str(finding.location) == "hooks.py:7"
    assert "60 % in clip at hooks.py:7." in finding.evidence[1]


def with_library(call: LibraryCall, of_function: int = 9, drops: bool = False) -> Finding:
    """Return the finding about a line of the model whose time is in a function of a library."""
    hot = HotFunction(Line("net.py", 51, "forward"), of_function, 9, LibraryTime(8, call, ()))
    levers = Levers()
    return rule._with_lines(
        rule._finding(levers, 0.9, ""),
        levers,
        Sampled(20, (hot,), "py-spy"),
        True,
        rule.Limits(),
        lambda line: None,
        lambda line: drops,
    )


@pytest.mark.parametrize(
    ("call", "is_waste"),
    [
        (LibraryCall("torch", "Linear.forward", 8), False),
        (LibraryCall("transformers", "OPTDecoderLayer.forward", 8), False),
        (LibraryCall("torch", "_engine_run_backward", 8, derives=True), False),
        (LibraryCall("scipy", "linear_sum_assignment", 8), True),
    ],
)
def test_a_line_that_only_calls_layers_is_quoted_without_advice(call: LibraryCall, is_waste: bool) -> None:
    found = with_library(call)
    assert str(found.location) == "net.py:51"
    assert any("net.py:51" in option.edit for option in found.options) == is_waste


def test_a_layers_line_in_a_function_of_many_is_no_waste_either() -> None:
    found = with_library(LibraryCall("torch", "Conv2d.forward", 8), of_function=18)
    assert not any("net.py:51" in option.edit for option in found.options)


@pytest.mark.parametrize("drops", [True, False])
def test_attention_weights_that_are_dropped_are_the_first_advice(drops: bool) -> None:
    found = with_library(LibraryCall("torch", "multi_head_attention_forward", 8), drops=drops)
    assert ("need_weights=False" in found.advice) == drops
    if drops:
        assert "net.py:51" in found.advice
        assert found.options[0].saving == (pytest.approx(1 - 0.75 * 0.9), 1.0)


@pytest.mark.usefixtures("as_of_py_spy")
def test_a_loss_in_a_function_of_its_own_is_named(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        step_with_loss(loop)
        label = FIELD_SEPARATOR.join(("", "losses.py", "7", "hard_triplets"))
        loop.journal.record(INSTANTS["STACK"], loop.journal.now - 6 * MS, MS, 4, label, 1)
        label = FIELD_SEPARATOR.join(("backward", "train.py", "23", "main"))
        loop.journal.record(INSTANTS["STACK"], loop.journal.now - 2 * MS, MS, 4, label, 1)
    finding = find(rule)
    assert str(finding.location) == "losses.py:7"
    assert "50 % in hard_triplets at losses.py:7" in finding.evidence[1]


def test_too_few_samples_in_the_model_are_no_reason_to_sample_again(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    sampled_loop(loop, {("backward", "train.py:23:main"): 3})
    finding = find(rule)
    assert finding.rerun_options is None
    assert "Too few stack samples" in finding.evidence[1]


def test_without_samples_it_says_how_to_have_them(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        loop.compute()
    assert "py-spy" in find(rule).evidence[1]
    assert find(rule).rerun_options == "--py-spy"


def test_after_an_inspection_the_costliest_lines_are_named(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for _ in range(40):
        loop.compute()

    def body(step: Step) -> None:
        hidden = step.call("mm", step.batch(), step.old("weight"), line=8, ns=500_000)
        step.train(step.call("relu", hidden, line=9))

    loop.run.step = body
    finding = find(rule)
    assert str(finding.location) == "train.py:8"
    assert (
        "Of a step, forward and backward together: 62 % at train.py:8, 25 % at train.py:9"
        in finding.evidence[-1]
    )
    assert "found no waste in these lines" in finding.evidence[-1]
    assert finding.rerun_options is None


def test_wasted_work_that_was_found_is_to_be_removed_first(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    def body(step: Step) -> None:
        step.call("sin", step.batch(), ns=5_000_000)
        step.train(step.call("mm", step.batch(), ns=5_000_000))

    for _ in range(40):
        loop.compute()
    loop.run.step = body
    assert "First remove the wasted work" in find(rule).evidence[-1]


def test_a_step_without_operations_names_no_line(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        loop.compute()
    loop.run.step = lambda step: None
    assert find(rule).location is None
