from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.measures.account.lines import Line
from perfwrap.measures.loop import functional_models
from perfwrap.measures.loop.busy_functions import BusyFunction
from perfwrap.measures.loop.library_calls import LibraryCall, LibraryTime
from perfwrap.measures.loop.python_gaps import PythonGap
from perfwrap.measures.loop.rare_visits import RareVisits
from perfwrap.measures.loop.stacks import HotFunction, Sampled
from perfwrap.rules import stack_samples as sampled
from perfwrap.rules.levers import Levers
from perfwrap.rules.loop import python_overhead as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.run import compute_bound

MS = 1_000_000


def test_bookkeeping_after_a_read_is_found_with_its_lines(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        loop.span("forward", 4, "Net", 3, 21)
        loop.span("backward", 5, line=23)
        loop.span("sync", 0.01, "Tensor.tolist", 0, 25)
        loop.python(8)
        loop.span("optimizer", 1, "SGD#1", line=35)
    finding = find(rule)
    assert finding.share == pytest.approx(8 / 18, abs=0.02)
    assert (finding.location.file, finding.location.line, finding.location.until_line) == ("train.py", 25, 35)
    assert "in lines 25 to 35 of train.py" in finding.sentence
    assert finding.confidence == "inferred"


@pytest.mark.parametrize("source", ["recorder", "py-spy"])
def test_the_function_with_most_of_py_spys_samples_is_what_to_look_at(
    loop: Any, find: Callable[[Rule], Finding], monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    # The samples in a journal are the recorder's own; here they are taken for py-spy's.
    monkeypatch.setattr(sampled, "OUTSIDE", source)
    for _ in range(40):
        loop.span("forward", 4, "Net", 3, 21)
        loop.span("backward", 5, line=23)
        loop.span("sync", 0.01, "Tensor.tolist", 0, 25)
        loop.python(8)
        label = FIELD_SEPARATOR.join(("", "books.py", "7", "Meter.update"))
        loop.journal.record(INSTANTS["STACK"], loop.journal.now - 6 * MS, MS, 4, label, 1)
        loop.span("optimizer", 1, "SGD#1", line=35)
    finding = find(rule)
    if source == "py-spy":
        assert str(finding.location) == "train.py:25"
        assert "Meter.update" not in finding.sentence + finding.advice
    else:
        assert str(finding.location) == "books.py:7"
        assert finding.sentence.endswith("mostly in Meter.update at books.py:7.")
        assert "Check the code in Meter.update at books.py:7" in finding.advice


def test_a_function_that_runs_rarely_and_long_is_named_so(
    loop: Any, find: Callable[[Rule], Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled, "OUTSIDE", "recorder")
    monkeypatch.setattr(rule, "visits_of_function", lambda *_: RareVisits(10, 310 * MS, 300.0))
    for _ in range(40):
        loop.compute()
        loop.python(8)
        label = FIELD_SEPARATOR.join(("", "plots.py", "7", "plot"))
        loop.journal.record(INSTANTS["STACK"], loop.journal.now - 6 * MS, MS, 4, label, 1)
    finding = find(rule)
    assert (
        "plot ran about 10 times, once in 300 steps, for 310 ms each (from py-spy's samples)."
        in finding.evidence
    )
    assert finding.advice == (
        "Make plot at plots.py:7 cheaper, or run it less often than once in 300 steps if the training does not need it."
    )
    assert finding.saving[1] == pytest.approx(1 - rule.HALF * finding.share)


def test_batches_made_in_the_loop_are_found_from_the_end_of_a_step_to_the_next(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for _ in range(40):
        loop.python(8)
        loop.compute()
    finding = find(rule)
    assert "after line 24 of train.py, through line 21 of the next iteration" in finding.sentence
    assert "DataLoader workers" in finding.options[1].edit


def test_a_loop_that_acts_gets_no_advice_to_make_batches_in_workers(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for _ in range(40):
        loop.span("forward", 1, "Policy", 3, 15)
        loop.span("sync", 0.01, "Tensor.numpy", 0, 16)
        loop.compute()
        loop.python(8)
    finding = find(rule)
    assert not any("DataLoader workers" in option.edit for option in finding.options)
    assert not any("every N steps" in option.edit for option in finding.options), "it makes the next batch"


def test_a_loss_that_is_read_as_an_array_is_no_action(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        loop.python(8)
        loop.compute()
        loop.span("sync", 0.01, "Tensor.numpy", 0, 25)
        loop.span("optimizer", 0.1, "SGD#1", line=26)
    finding = find(rule)
    assert any("DataLoader workers" in option.edit for option in finding.options)


def test_a_loss_between_forward_and_backward_is_no_python_problem(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    for _ in range(40):
        loop.span("forward", 4, "Net", 3, 21)
        loop.python(1)
        loop.span("backward", 5, line=23)
        loop.span("optimizer", 1, "SGD#1", line=24)
    assert isinstance(ask(rule), Clear)


def test_a_loss_behind_a_gradient_penalty_is_no_python_problem(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    for _ in range(40):
        loop.span("forward", 4, "Net", 3, 21)
        loop.span("gradient", 4, "grad", line=22)
        loop.python(1)
        loop.span("backward", 5, line=24)
        loop.span("optimizer", 1, "SGD#1", line=25)
    assert isinstance(ask(rule), Clear)


def test_the_update_of_weights_in_an_inner_loop_is_no_batch_and_no_bookkeeping(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for _ in range(40):
        loop.span("forward", 4, "Net", 3, 21)
        loop.span("gradient", 4, "grad", line=22)
        loop.python(5)
        loop.compute()
    edits = " ".join(option.edit for option in find(rule).options)
    assert "DataLoader workers" not in edits
    assert "every N steps" not in edits


def test_gaps_on_one_line_are_reported_together(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        loop.span("forward", 4, "Net", 3, 21)
        loop.python(2)
        loop.span("sync", 0.01, "Tensor.item", 0, 21)
        loop.python(1)
        loop.span("backward", 5, line=21)
        loop.span("optimizer", 1, "SGD#1", line=21)
    finding = find(rule)
    assert finding.share == pytest.approx(3 / 13, abs=0.02)
    assert "around line 21 of train.py" in finding.sentence
    assert "mostly between the forward pass and a read of a value" in finding.evidence[0]


def test_in_very_short_steps_the_batch_is_to_blame(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        loop.python(0.03)
        loop.compute(0.03, 0.03, 0.01)
    finding = find(rule)
    assert "A whole step takes" in finding.evidence[1]
    assert "larger batch" in finding.advice


def test_many_short_stretches_are_reported_together(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        loop.compute()
        for line in range(30, 40):
            loop.python(0.5)
            loop.span("sync", 0.01, "Tensor.item", 0, line)
    finding = find(rule)
    assert finding.share == pytest.approx(5 / 15, abs=0.02)
    assert "short sections" in finding.sentence


def test_reads_without_a_line_are_divided_like_those_with_one(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for _ in range(40):
        loop.compute()
        for number in range(32):
            loop.python(0.3)
            loop.journal.span("sync", 10_000, "Tensor.numpy", 0, "train.py:50:match" if number < 8 else "")
        loop.python(0.3)
    # One step of the forty is no whole one.
    assert "match at train.py:50, which reads about 33 values of tensors in each step" in find(rule).sentence


def test_waiting_for_other_ranks_in_a_collective_is_not_counted_as_python(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    for _ in range(40):
        loop.span("forward", 4, "Net", 3, 21)
        loop.span("backward", 5, line=23)
        loop.span("collective", 9, "all_reduce", 1024, 24)
        loop.span("optimizer", 1, "SGD#1", line=25)
    assert isinstance(ask(rule), Clear)


def test_a_little_python_is_natural(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.python(0.3)
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    for _ in range(8):
        loop.python(8)
        loop.compute()
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["python_overhead"]
    assert outcome.state == "not checked"


def test_python_that_the_gpu_hides_is_clear(gpu_loop: Any) -> None:
    for _ in range(30):
        gpu_loop.step(kernel=98)
    assert isinstance(gpu_loop.ask(rule), Clear)
    assert "idle" in gpu_loop.ask(rule).why


def test_of_python_only_the_time_counts_in_which_the_gpu_is_idle_for_it(gpu_loop: Any) -> None:
    for _ in range(30):
        gpu_loop.step(kernel=80, at_work="nvtx")
    answer = gpu_loop.ask(rule)
    assert isinstance(answer, list)
    assert answer[0].share == pytest.approx(0.15, abs=0.02)


@pytest.mark.parametrize(
    ("after", "before", "words"),
    [
        ("backward", "data", "between the backward pass and the batch"),
        ("", "data", "before the batch"),
        ("backward", "", "after the backward pass"),
    ],
)
def test_events_that_were_not_recorded_leave_no_hole_in_the_sentence(
    after: str, before: str, words: str
) -> None:
    gap = PythonGap(None, None, after, before, 3, 1.0, 3, 0.2)
    code = rule.SectionCode(rule.CodeSection((gap,)), None, (), (), None)
    finding = rule.section_finding(code, rule.Loop(2e6, Levers(), False, rule.Limits().nothing))
    assert f"per step, {words}; 3 times" in finding.evidence[0]


def in_library(line: int, calls: LibraryTime | None) -> Sampled:
    """Return samples of py-spy that are all on one line of the program."""
    return Sampled(20, (HotFunction(Line("a.py", line, "main"), 20, 20, calls),), "py-spy")


def test_sections_in_the_same_library_call_are_one_finding() -> None:
    step = LibraryTime(20, LibraryCall("gym", "Env.step", 18), ())
    other = LibraryTime(20, LibraryCall("gym", "Env.reset", 18), ())
    sections = [
        rule.CodeSection((PythonGap(None, None, "sync", "forward", 3, 1.0, 3, share),))
        for share in (0.3, 0.2, 0.1, 0.09, 0.08)
    ]
    samples = [in_library(7, step), in_library(7, step), in_library(7, other), in_library(7, None), None]
    joined = rule._joined(list(zip(sections, samples, strict=True)))
    assert [round(section.share, 2) for section, _ in joined] == [0.5, 0.1, 0.09, 0.08]


def test_time_of_paused_detail_without_a_place_is_not_the_programs(
    loop: Any, ask: Callable[[Rule], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(40):
        loop.compute()
    unplaced = PythonGap(None, None, "", "", 9, 1e6, 40_000_000, 0.3)
    monkeypatch.setattr(rule, "find_python_gaps", lambda evidence, trainer: (unplaced,))
    assert isinstance(ask(rule), Clear)


def test_operations_on_tensors_in_the_stretch_are_named_and_promise_nothing(
    loop: Any, find: Callable[[Rule], Finding], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loop.run.folder.write_manifest({"command": ["python", "train.py"], "cwd": str(tmp_path)})
    Path("train.py").write_text("\n" * 28 + "spectrum = torch.linalg.svdvals(weights)\n")
    for _ in range(40):
        loop.span("forward", 4, "Net", 3, 21)
        loop.span("backward", 5, line=23)
        loop.python(8)
        loop.span("optimizer", 1, "SGD#1", line=35)
    finding = find(rule)
    assert "These lines call torch.linalg.svdvals, and the time includes that work" in " ".join(
        finding.evidence
    )
    assert finding.saving == (pytest.approx(10 / 18, abs=0.02), 1.0)


@pytest.mark.parametrize(
    ("source", "own_ms", "is_model"),
    [("torch.matmul(x, w)", 8, True), ("torch.matmul(x, w)", 30, False), ("prepare(x, w)", 8, False)],
    ids=["tensor work", "longer than the backward pass", "other code"],
)
def test_tensor_work_before_a_backward_pass_without_modules_is_the_models(
    loop: Any, ask: Callable[[Rule], Answer], tmp_path: Path, source: str, own_ms: float, is_model: bool
) -> None:
    loop.run.folder.write_manifest({"command": ["python", "train.py"], "cwd": str(tmp_path)})
    (tmp_path / "train.py").write_text("\n" * 28 + f"y = {source}\n")
    for _ in range(40):
        loop.span("sync", 0.1, "Tensor.item", line=25)
        loop.python(own_ms)
        loop.span("sync", 0.1, "Tensor.item", line=30)
        loop.span("backward", 10, line=33)
        loop.span("optimizer", 1, "SGD#1", line=35)
    assert isinstance(ask(rule), Clear if is_model else list)
    model = ask(compute_bound)
    assert isinstance(model, list if is_model else Clear)
    assert not is_model or "tensor work outside modules 42 %" in model[0].evidence[0]


@pytest.mark.parametrize(
    ("source", "calls", "is_model"),
    [
        ("du = torch.autograd.grad(u.sum(), t, create_graph=True)", None, True),
        ("du = derivative(u, t)", None, False),
        (
            "du = derivative(u, t)",
            LibraryTime(18, LibraryCall("torch", "_make_grads", 9, derives=True), ()),
            True,
        ),
        ("du = derivative(u, t)", LibraryTime(18, LibraryCall("torch", "norm", 18), ()), False),
    ],
    ids=["in its lines", "in other lines", "in its samples", "samples in other functions"],
)
def test_derivatives_beside_the_phases_are_the_models(
    loop: Any,
    ask: Callable[[Rule], Answer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    calls: LibraryTime | None,
    is_model: bool,
) -> None:
    if calls is not None:
        monkeypatch.setattr(functional_models, "sampled_gap", lambda *_: in_library(28, calls))
    loop.run.folder.write_manifest({"command": ["python", "train.py"], "cwd": str(tmp_path)})
    (tmp_path / "train.py").write_text("\n" * 27 + f"{source}\n")
    for _ in range(40):
        loop.span("forward", 4, "Net", 3, 25)
        loop.python(8)
        loop.span("forward", 4, "Net", 3, 30)
        loop.span("backward", 10, line=33)
        loop.span("optimizer", 1, "SGD#1", line=35)
    assert isinstance(ask(rule), Clear if is_model else list)


@pytest.mark.parametrize(
    ("after", "may_be_rarer"), [("zero_grad", False), ("data", False), ("optimizer", True)]
)
def test_code_that_makes_the_models_input_is_not_to_run_less_often(after: str, may_be_rarer: bool) -> None:
    gap = PythonGap(None, None, after, "forward", 3, 1.0, 3, 0.2)
    code = rule.SectionCode(rule.CodeSection((gap,)), None, (), (), None)
    options = rule.section_finding(code, rule.Loop(2e6, Levers(), False, 0.0)).options
    assert any("every N steps" in option.edit for option in options) is may_be_rarer


@pytest.mark.parametrize(
    ("function", "place", "has_loop", "advice"),
    [
        ("Subsample.sample", "plates.py:52", True, "Check the code in Subsample.sample at plates.py:52"),
        ("model", "train.py:22", True, "Check whether model loops over samples or parameters"),
        ("model", "train.py:22", False, "Call model less often in a step, for many inputs at once"),
    ],
)
def test_a_function_that_reads_values_but_calls_another_that_takes_the_time_names_that(
    function: str, place: str, has_loop: bool, advice: str
) -> None:
    busy = BusyFunction(Line("train.py", 22, "model"), 25, 0.6, 9e6, 6.0)
    file, line = place.split(":")
    hottest = HotFunction(Line(file, int(line), function), 16, 16)
    finding = rule._busy(busy, (), Sampled(20, (hottest,), "py-spy"), has_loop)
    assert str(finding.location).startswith(place)
    assert advice in finding.advice
    assert "16 of 20 samples there" in finding.evidence[1]
    if function != "model":
        assert finding.saving[1] == pytest.approx(1 - 0.75 * 0.8 * 0.6)
