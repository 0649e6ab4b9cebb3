"""Samples are distinguished by where they were taken, and quoted only if there are enough of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.measures.account.lines import Line
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import stacks
from perfwrap.measures.loop.python_gaps import find_python_gaps
from perfwrap.measures.loop.stacks import ENOUGH, sampled_gap, sampled_making
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.rules.data_loading import data_loader_single_process, data_loader_wait
from perfwrap.rules.loop import python_overhead
from perfwrap.rules.model import Rule
from perfwrap.rules.stack_samples import main_function
from perfwrap.timeline.model import empty

MS = 1_000_000
STEPS = 40


def stack(
    journal: Any, count: int, operation: str, line: int, function: str, at: int, thread: int = 1
) -> None:
    """Write samples of one line, as the recorder does."""
    label = FIELD_SEPARATOR.join([operation, "train.py", str(line), function])
    journal.record(INSTANTS["STACK"], at, MS, count, label, thread)


def steps(run: Any, wait: float = 10, python: float = 0, workers: int = 0, **facts: object) -> Any:
    """Write a loop that waits for batches and is in the program's own code from line 24 to line 20."""
    journal = run.journal(opened=1_000 * MS, threads=2, **facts)
    for key, value in {"num_workers": workers, "batch_size": 32, "created": "train.py\x1f12\x1fmain"}.items():
        journal.fact(f"loader/1/{key}", value)
    for _ in range(STEPS):
        journal.span("data", round(wait * MS), "loader/1", 32, "train.py:20:main")
        journal.span("forward", 4 * MS, "Net", 3, "train.py:21:main")
        journal.span("backward", 5 * MS, "", 0, "train.py:23:main")
        journal.span("optimizer", 1 * MS, "SGD#1", 0, "train.py:24:main")
        journal.python(round(python * MS))
    return journal


def words(run: Any, rule: Rule) -> str:
    evidence = Evidence(run.read())
    assert evidence.get(find_main_trainer) is not None
    (finding,) = rule.check(evidence, evidence.get(find_main_trainer), rule.Limits())  # type: ignore[union-attr]
    return " ".join(finding.evidence)


def test_the_lines_that_make_batches_in_the_training_thread_are_quoted(run: Any) -> None:
    journal = steps(run)
    middle = journal.now - 100 * MS
    stack(journal, 30, "getitem", 7, "Data.decode", middle)
    stack(journal, 5, "getitem", 8, "Data.decode", middle)
    stack(journal, 9, "data", 20, "main", middle)  # the loop's own line: torch's work
    stack(journal, 50, "forward", 21, "main", middle)
    found = words(run, data_loader_single_process)
    assert (
        "35 of 44 samples of the training thread while batches were made were in Data.decode, mostly at train.py:7"
    ) in found
    assert "main" not in found.partition("35 of 44")[2]


@pytest.mark.parametrize(("function", "is_passed"), [("Data.decode", True), ("Data.__getitem__", False)])
def test_the_method_that_makes_items_is_not_where_to_look(run: Any, function: str, is_passed: bool) -> None:
    journal = steps(run)
    stack(journal, 40, "getitem", 7, function, journal.now - 100 * MS)
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    (loader,) = evidence.get(find_loaders, trainer)
    found = evidence.get(sampled_making, trainer, loader)
    assert found is not None and found.functions[0].line.function == function
    assert (found.passed is not None) == is_passed


def test_the_workers_lines_are_quoted_and_their_waiting_is_not(run: Any) -> None:
    journal = steps(run, workers=1, pid=100)
    journal.fact("loader/1/workers", "101")
    middle = journal.now - 100 * MS
    worker = run.journal(pid=101, ticks=8, opened=1_000 * MS, role="worker", ppid=100)
    stack(worker, 30, "fetch", 7, "Data.decode", middle)
    stack(worker, 70, "_worker_loop", 20, "main", middle)
    found = words(run, data_loader_wait)
    assert (
        "30 of 30 samples of its workers while batches were made were in Data.decode at train.py:7 (sampled by the "
        "recorder"
    ) in found


def test_the_lines_between_the_phases_are_quoted(run: Any) -> None:
    journal = steps(run, python=10)
    middle = journal.now - 100 * MS
    stack(journal, 30, "", 70, "keep_books", middle)
    stack(journal, 10, "", 25, "main", middle)
    stack(journal, 10, "", 22, "main", middle)  # in the same function, outside of the stretch
    found = words(run, python_overhead)
    assert "30 of 40 samples there were in keep_books at train.py:70, 10 in main at train.py:25" in found


@pytest.mark.parametrize(
    ("call", "count"), [("update(\n    1,\n    loss,\n)", 40), ("one()\ntwo()\nthree()\nfour()", 10)]
)
def test_a_call_over_several_lines_belongs_to_the_section_that_begins_in_it(
    run: Any, tmp_path: Path, call: str, count: int
) -> None:
    journal = steps(run, python=10)
    run.folder.write_manifest({"command": ["python", "train.py"], "cwd": str(tmp_path)})
    # The optimizer's line 24 is the last one of the call, which Python says to be at line 21.
    (tmp_path / "train.py").write_text("\n" * 20 + call + "\n")
    middle = journal.now - 100 * MS
    stack(journal, 10, "", 25, "main", middle)
    stack(journal, 30, "", 22, "main", middle)
    found = words(run, python_overhead)
    assert f"of {count} samples there" in found


def test_the_times_of_samples_tell_long_sections_apart(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimizer steps in a helper's file, in which another function, called before the forward pass, is slow."""
    monkeypatch.setattr(stacks, "OUTSIDE", "recorder")
    journal = run.journal(opened=1_000 * MS, threads=2)
    for _ in range(STEPS):
        journal.span("data", MS, "loader/1", 32, "train.py:20:main")
        journal.python(15 * MS)
        journal.span("gc", MS, "", 0, "")
        journal.python(15 * MS)
        stack(journal, 1, "", 88, "draw", journal.now - 5 * MS)
        journal.span("forward", 4 * MS, "Net", 3, "model.py:21:forward")
        journal.span("backward", 5 * MS, "", 0, "train.py:49:step")
        journal.span("optimizer", 1 * MS, "SGD#1", 0, "train.py:50:step")
        journal.python(20 * MS)
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    drawing, stepping = evidence.get(find_python_gaps, trainer)
    assert (drawing.after_operation, stepping.after_operation) == ("data", "optimizer")
    found = sampled_gap(evidence, trainer, drawing, False)
    assert found is not None and found.functions[0].line.function == "draw"
    assert sampled_gap(evidence, trainer, stepping, False) is None
    assert drawing.count == pytest.approx(stepping.count, abs=1), "garbage collections cut no section in two"


def is_reported(run: Any, operation: str, elsewhere: int = 0) -> bool:
    """Return whether 30 ms of the program's own code in each step are reported, with a sample of the operation in them.

    ``elsewhere`` is the number of samples of the program's own code in the forward pass of each step.
    """
    journal = steps(run, wait=1)
    for _ in range(STEPS):
        journal.span("data", MS, "loader/1", 32, "train.py:20:main")
        journal.span("forward", 4 * MS, "Net", 3, "train.py:21:main")
        if elsewhere:
            stack(journal, elsewhere, "", 30, "sample", journal.now - MS)
        journal.span("backward", 5 * MS, "", 0, "train.py:23:main")
        journal.span("optimizer", 1 * MS, "SGD#1", 0, "train.py:24:main")
        journal.python(30 * MS)
        stack(journal, 1, operation, 30, "sample", journal.now - 15 * MS)
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    return isinstance(python_overhead.check(evidence, trainer, python_overhead.Limits()), list)


@pytest.mark.parametrize(("operation", "expected"), [("forward", False), ("", True)])
def test_modules_that_were_not_recorded_are_not_the_programs_own_code(
    run: Any, monkeypatch: pytest.MonkeyPatch, operation: str, expected: bool
) -> None:
    monkeypatch.setattr(stacks, "OUTSIDE", "recorder")
    assert is_reported(run, operation) == expected


@pytest.mark.parametrize(("elsewhere", "expected"), [(0, False), (3, True)])
def test_samples_with_late_times_do_not_make_the_programs_own_code_a_module(
    run: Any, monkeypatch: pytest.MonkeyPatch, elsewhere: int, expected: bool
) -> None:
    """Backward passes seem to be in the section, since the sampler's clock is late; all samples fit the account."""
    monkeypatch.setattr(stacks, "OUTSIDE", "recorder")
    assert is_reported(run, "backward", elsewhere) == expected


@pytest.mark.parametrize("count", [0, ENOUGH - 1])
def test_too_few_samples_are_not_quoted(run: Any, count: int) -> None:
    journal = steps(run)
    if count:
        stack(journal, count, "getitem", 7, "Data.decode", journal.now - 100 * MS)
    assert "samples of the training thread" not in words(run, data_loader_single_process)


def test_samples_outside_of_the_steady_loop_do_not_count(run: Any) -> None:
    journal = steps(run)
    stack(journal, 100, "getitem", 7, "Data.decode", 1_000 * MS - 1)
    stack(journal, 100, "getitem", 7, "Data.decode", journal.now + MS)
    assert "samples of the training thread" not in words(run, data_loader_single_process)


def test_with_two_loaders_in_the_training_thread_the_batches_are_not_attributed(run: Any) -> None:
    journal = run.journal(opened=1_000 * MS, threads=2)
    for number in (1, 2):
        journal.fact(f"loader/{number}/num_workers", 0)
    for _ in range(STEPS):
        for number in (1, 2):
            journal.span("data", 5 * MS, f"loader/{number}", 32, "train.py:20:main")
        journal.span("forward", 4 * MS, "Net", 3, "train.py:21:main")
        journal.span("backward", 5 * MS, "", 0, "train.py:23:main")
        journal.span("optimizer", 1 * MS, "SGD#1", 0, "train.py:24:main")
    stack(journal, 100, "getitem", 7, "Data.decode", journal.now - 100 * MS)
    evidence = Evidence(run.read())
    assert evidence.get(find_main_trainer) is not None
    loaders = evidence.get(find_loaders, evidence.get(find_main_trainer))
    assert [evidence.get(sampled_making, evidence.get(find_main_trainer), loader) for loader in loaders] == [
        None,
        None,
    ]


def passed(*rows: tuple[str, int]) -> stacks.HotFunction | None:
    table = pl.DataFrame(rows, schema=["stack", "weight"], orient="row")
    return stacks._passed(table, {("train.py", "main")})


def test_the_innermost_function_that_nearly_all_samples_pass_is_where_to_look() -> None:
    found = passed(
        ("main (train.py:20);graph (graphs.py:7);atoms (graphs.py:3)", 40),
        ("main (train.py:20);graph (graphs.py:8)", 30),
        ("main (train.py:20);graph (graphs.py:9);bonds (graphs.py:5);add (/lib/site-packages/x/y.py:4)", 20),
        ("main (train.py:21)", 10),
    )
    assert found is not None
    assert (found.line.file, found.line.line, found.line.function) == ("graphs.py", 7, "graph")
    assert (found.count, found.on_line) == (90, 40)


def test_a_recursive_function_counts_once() -> None:
    found = passed(("main (train.py:20);walk (tree.py:7);walk (tree.py:7);walk (tree.py:8)", 10))
    assert found is not None
    assert (found.line.line, found.count, found.on_line) == (8, 10, 10)


@pytest.mark.parametrize("below", ["", ";atoms (graphs.py:3)"])
def test_functions_of_the_training_loop_itself_are_not_where_to_look(below: str) -> None:
    assert passed((f"main (train.py:20){below}", 70), ("main (train.py:25)", 30)) is None


def test_without_a_main_function_the_one_that_all_pass_is_named() -> None:
    inner = tuple(
        stacks.HotFunction(Line("graphs.py", line, name), 40, 40) for line, name in ((3, "a"), (5, "b"))
    )
    outer = stacks.HotFunction(Line("graphs.py", 7, "graph"), 90, 50)
    sampled = stacks.Sampled(100, inner, stacks.OUTSIDE, passed=outer)
    assert main_function(sampled) == outer
    assert main_function(replace(sampled, passed=None)) is None
    assert main_function(replace(sampled, count=60)) == inner[0]


def test_what_calls_nearly_all_training_steps_is_the_loop_and_no_function_to_change() -> None:
    """A loop whose step is a function: neither it nor its callers are what to look at."""
    spans = empty("spans").clear()
    step = "main (/w/train.py:57);optimize (/w/train.py:46);backward (/lib/python3.11/site-packages/torch/_tensor.py:1)"
    other = "main (/w/train.py:57);optimize (/w/train.py:38)"
    rows = [("backward", step, 30), ("optimizer", step, 30), (None, other, 40)]
    table = empty("stacks")
    samples = pl.DataFrame(
        [
            {
                **dict.fromkeys(table.columns),
                "track": 1,
                "operation": operation,
                "stack": stack,
                "weight": weight,
            }
            for operation, stack, weight in rows
        ],
        schema=table.schema,
    )
    evidence: Any = SimpleNamespace(timeline=SimpleNamespace(spans=spans, stacks=samples))
    trainer: Any = SimpleNamespace(thread=1)
    assert stacks.functions_of_loop(evidence, trainer) == {
        ("/w/train.py", "main"),
        ("/w/train.py", "optimize"),
    }
