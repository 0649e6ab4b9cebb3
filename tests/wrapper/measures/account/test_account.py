"""The account: every nanosecond of the steady loop exactly once, whatever was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perfwrap.journal_format import GRAD, SPANS, TRAINING
from perfwrap.measures.account.account import PARTS, Account, find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import find_trainers
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

CATEGORY = {
    "import": "other",
    "save": "checkpoint",
    "load": "checkpoint",
    "data_end": "data",
    "loader_start": "data",
    "zero_grad": "optimizer",
    "scaler_step": "optimizer",
}
OPERATIONS = [name.lower() for name in SPANS]


def account_of(timeline: Timeline) -> tuple[Steps, Account]:
    """Return steps and account of the first trainer."""
    evidence = Evidence(timeline)
    trainer = evidence.get(find_trainers)[0]
    return evidence.get(find_steps, trainer), evidence.get(find_account, trainer)


def assert_identity(account: Account) -> None:
    """Hold the account to what it promises."""
    segments = account.segments
    if account.total_ns == 0:
        assert segments.is_empty()
        return
    assert segments["start"][0] == account.start
    assert segments["end"][-1] == account.end
    assert segments["start"][1:].to_list() == segments["end"][:-1].to_list()
    assert (segments["end"] > segments["start"]).all()
    assert tuple(account.ns) == PARTS
    assert sum(account.ns.values()) == account.total_ns
    assert sum(account.shares.values()) == pytest.approx(1.0)


span = st.tuples(
    st.integers(0, 400),
    st.integers(0, 120),
    st.sampled_from(OPERATIONS),
    st.integers(0, 1),
    st.sampled_from(["one", "two", None]),
    st.sampled_from([0, GRAD, TRAINING | GRAD]),
)
sums = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 40), st.sampled_from(OPERATIONS), st.integers(0, 50)),
    max_size=6,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(span, min_size=1, max_size=60), sums, st.booleans(), st.sampled_from([1, 1_000]))
def test_the_parts_add_up_to_the_nanosecond_for_any_spans(
    found: list[tuple[Any, ...]], thinned: list[tuple[Any, ...]], injected: bool, unit: int
) -> None:
    builder = TimelineBuilder()
    process = builder.process("here", 1)
    builder.describe(process, role="main", **({"reached_by": "sitecustomize"} if injected else {}))
    threads = [builder.thread(process, index, "", None) for index in (1, 2)]
    for start, duration, operation, thread, name, value in found:
        builder.add_row(
            "spans",
            start=start * unit,
            duration=duration * unit,
            track=threads[thread],
            name=name,
            operation=operation,
            category=CATEGORY.get(operation, operation),
            value=value,
            file=name and f"{name}.py",
            line=start if name else None,
        )
    for place, count, operation, duration in thinned:
        builder.add_row(
            "sums",
            start=50 * place * unit,
            end=(50 * place + 40) * unit,
            track=threads[0],
            operation=operation,
            category=CATEGORY.get(operation, operation),
            count=count,
            duration=duration * unit,
        )
    timeline = builder.build({})
    evidence = Evidence(timeline)
    for trainer in evidence.get(find_trainers):
        steps = evidence.get(find_steps, trainer)
        assert steps.table["start"][1:].to_list() == steps.table["end"][:-1].to_list()
        assert_identity(evidence.get(find_account, trainer))


def test_a_step_is_taken_apart_into_its_phases_and_the_python_between(run) -> None:
    journal = run.journal()
    for _ in range(10):
        journal.step()
    _, account = account_of(run.read())
    assert {part: ns for part, ns in account.ns.items() if ns} == {
        "data": 100,
        "forward": 200,
        "backward": 300,
        "optimizer": 50,
        "python": 350,
    }


def test_what_is_nested_is_taken_out_of_what_it_is_nested_in(run) -> None:
    journal = run.journal()
    for _ in range(10):
        with journal.inside("optimizer", "LBFGS#1"):
            journal.python(3)
            journal.forward(20)
            with journal.inside("backward"):
                journal.python(10)
                journal.span("gc", 7, "gc")
    _, account = account_of(run.read())
    assert {part: ns for part, ns in account.ns.items() if ns} == {
        "optimizer": 30,
        "forward": 200,
        "backward": 100,
        "gc": 70,
    }


def closure_step(journal) -> None:
    with journal.inside("optimizer", "Adam#1", line="train.py:9:main"):
        journal.python(1)
        with journal.inside("closure", "closure"):
            journal.python(4)
            journal.forward(20, line="train.py:5:closure")
            journal.python(30)
            journal.backward(30, line="train.py:7:closure")
            journal.python(6)
        journal.python(9)


def test_code_in_a_closure_is_the_programs_and_not_the_optimizers(run) -> None:
    journal = run.journal()
    for _ in range(10):
        closure_step(journal)
    _, account = account_of(run.read())
    assert_identity(account)
    assert {part: ns for part, ns in account.ns.items() if ns} == {
        "forward": 200,
        "backward": 300,
        "optimizer": 100,
        "python": 400,
    }
    own = account.segments.filter(pl.col("part") == "python")
    places = own.select("line", "until_line", "after_operation", "before_operation").unique().rows()
    assert set(places) == {
        (9, 5, "optimizer", "forward"),
        (5, 7, "forward", "backward"),
        (7, 9, "backward", "optimizer"),
    }
    assert own["operation"].null_count() == own.height


def test_sums_of_optimizers_are_divided_like_their_detailed_steps(run) -> None:
    journal = run.journal()
    for _ in range(20):
        closure_step(journal)
    begin = journal.now
    journal.describe("THIN", start=begin, value=0)
    journal.sum("optimizer", begin, 10, 1_000, "Adam#1", "train.py:9:main")
    journal.sum("closure", begin, 10, 900, "closure")
    journal.sum("forward", begin, 10, 200, "", "train.py:5:closure")
    journal.sum("backward", begin, 10, 300, "", "train.py:7:closure")
    journal.python(1_000)
    journal.describe("THIN", start=journal.now, value=2)
    for _ in range(4):
        closure_step(journal)
    _, account = account_of(run.read())
    assert_identity(account)
    estimated = account.segments.filter("estimated")
    lengths = estimated.group_by("part").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    found = {str(part): ns for part, ns in lengths.iter_rows()}
    assert found == {"forward": 200, "backward": 300, "optimizer": 100, "python": 400}


def test_what_happens_while_a_batch_is_made_belongs_to_the_batch_except_interruptions(run) -> None:
    journal = run.journal()
    for _ in range(10):
        with journal.inside("data", "loader/1", 32):
            journal.python(5)
            journal.span("sync", 4, "Tensor.item", line="dataset.py:3:__getitem__")
            journal.span("gc", 2, "gc")
            journal.span("load", 6, "torch.load")
        journal.optimizer()
    _, account = account_of(run.read())
    assert {part: ns for part, ns in account.ns.items() if ns} == {"data": 150, "optimizer": 50, "gc": 20}
    assert set(account.segments.filter(pl.col("part") == "data")["name"]) == {"loader/1"}


def test_everything_in_a_validation_is_validation_and_keeps_its_name(run) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        journal.validate(batches=2)
    _, account = account_of(run.read())
    assert account.ns["validation"] == 3 * (5 + 2 * (4 + 6 + 2) + 1)
    assert account.ns["sync"] == 0
    own = account.segments.filter(pl.col("part") == "validation")
    assert set(own["operation"]) == {"loader_start", "data", "forward", "sync", "data_end"}


def test_python_between_two_events_carries_both_their_lines(run) -> None:
    journal = run.journal()
    for _ in range(5):
        journal.span("backward", 10, "backward", line="train.py:20:main")
        journal.python(5)
        journal.span("gc", 1, "gc")
        journal.python(3)
        journal.span("optimizer", 5, "SGD#1", line="train.py:22:main")
        journal.python(7)
        journal.span("sync", 1, "Tensor.item", line="other.py:4:log")
    _, account = account_of(run.read())
    python = account.segments.filter(pl.col("part") == "python")
    columns = ("file", "line", "until_line", "after_operation", "before_operation")
    assert set(python.filter(pl.col("file").is_not_null()).select(columns).rows()) == {
        ("train.py", 20, 22, "backward", "optimizer"),
        ("train.py", 22, None, "optimizer", "sync"),
    }


def test_other_threads_and_the_warm_up_are_not_in_the_account(run) -> None:
    journal = run.journal()
    journal.span("import", 5_000, "torch")
    journal.data(9_000)
    journal.optimizer()
    for _ in range(30):
        journal.step()
    journal.thread_index = 2
    journal.now = 16_000
    journal.forward(100)
    steps, account = account_of(run.read())
    assert steps.warm_up_steps == 1
    assert account.total_ns == 30 * 100
    assert account.ns["forward"] == 30 * 20


def test_segments_name_their_step_and_what_comes_after_the_last_one_has_none(run) -> None:
    journal = run.journal()
    for _ in range(2):
        for _ in range(5):
            journal.step()
        journal.validate()
    _, account = account_of(run.read())
    by_step = account.segments.group_by("step").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    found = dict(by_step.iter_rows())
    assert found[0] == 100
    assert found[5] == 142
    assert found[None] == 42


def test_thinned_steps_are_in_the_account_with_their_exact_sums(run) -> None:
    def step() -> None:
        journal.data(line="train.py:5:main")
        with journal.inside("forward", "Net", TRAINING | GRAD):
            journal.python(16)
            journal.span("sync", 4, "Tensor.item", line="train.py:9:forward")
        journal.backward()
        journal.python(30)
        journal.optimizer()

    journal = run.journal()
    for _ in range(20):
        step()
    begin = journal.now
    journal.describe("THIN", start=begin, value=0)
    journal.sum("data", begin, 10, 300, "loader/1", "train.py:5:main")
    journal.sum("forward", begin, 10, 200, "Net")
    journal.sum("sync", begin, 10, 40, "Tensor.item", "train.py:9:forward")
    journal.sum("optimizer", begin, 10, 50, "SGD#1")
    journal.sum("save", begin, 1, 25, "torch.save", "train.py:70:main")
    journal.python(1_000)
    journal.describe("THIN", start=journal.now, value=2)
    for _ in range(4):
        step()
    steps, account = account_of(run.read())
    assert_identity(account)
    assert steps.count == 34
    estimated = account.segments.filter("estimated")
    lengths = estimated.group_by("part").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    found = {str(part): ns for part, ns in lengths.iter_rows()}
    # Inclusive sums of forwards hold the syncs inside: these are counted once.
    assert found == {
        "data": 300,
        "forward": 160,
        "sync": 40,
        "optimizer": 50,
        "checkpoint": 25,
        "python": 425,
    }
    assert set(estimated["step"].to_list()) <= set(range(20, 30))
    assert account.segments.filter("estimated", pl.col("part") == "sync")["line"].to_list()[0] == 9


def test_sums_that_claim_more_than_there_is_are_cut_to_what_there_is(run) -> None:
    journal = run.journal()
    for _ in range(20):
        journal.step()
    begin = journal.now
    journal.describe("THIN", start=begin, value=0)
    journal.sum("optimizer", begin, 10, 9_000, "SGD#1")
    journal.python(500)
    journal.describe("END")
    _, account = account_of(run.read())
    assert_identity(account)
    assert account.ns["optimizer"] == 20 * 5 + 500


def test_a_run_without_steps_has_an_empty_account(make_run: Callable[[], Any]) -> None:
    run = make_run()
    run.journal().span("data_end", 5, "loader/1")
    timeline = run.read()
    assert find_trainers(Evidence(timeline)) == ()
    run = make_run()
    journal = run.journal()
    journal.forward(flags=0)
    steps, account = account_of(run.read())
    assert (steps.count, account.total_ns) == (1, 20)
