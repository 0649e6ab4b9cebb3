from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.measures.loop import stacks
from perfwrap.rules import stack_samples
from perfwrap.rules.loop import validation_share as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

MS = 1_000_000


def write(loop: Any, batches: int, flags: int = 0, every: int = 10, steps: int = 60) -> None:
    for step in range(steps):
        loop.compute()
        if step % every == every - 1:
            loop.span("loader_start", 0.1, "loader/2", 0, 50)
            for _ in range(batches):
                loop.span("data", 1, "loader/2", 32, 50)
                loop.span("forward", 4, "Net", flags, 51)
            loop.span("data_end", 0.1, "loader/2", 0, 50)


def test_a_large_validation_is_found_at_its_busiest_line(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, batches=20)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.05)
    assert str(finding.location) == "train.py:51"
    best, worst = finding.saving
    assert best == pytest.approx(1 - 0.75 * finding.share)
    assert worst == pytest.approx(1 - 0.5 * finding.share)
    assert not any("inference_mode" in option.edit for option in finding.options)


def test_gradients_in_a_validation_are_reported(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, batches=20, flags=2)
    *_, inference = find(rule).options
    assert "train.py:51 in torch.inference_mode()" in inference.edit
    assert 0 < inference.saving[0] < 1 == inference.saving[1]


def test_hardly_any_gradients_in_a_validation_are_not_worth_a_word(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(60):
        loop.compute()
        if step % 10 == 9:
            loop.span("loader_start", 0.1, "loader/2", 0, 50)
            for batch in range(20):
                loop.span("data", 1, "loader/2", 32, 50)
                loop.span("forward", 0.1 if batch == 7 else 4, "Net", 2 if batch == 7 else 0, 51)
            loop.span("data_end", 0.1, "loader/2", 0, 50)
    assert not any("inference_mode" in option.edit for option in find(rule).options)


def test_a_validation_that_mostly_starts_its_workers_is_about_the_workers(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(60):
        loop.compute()
        if step % 10 == 9:
            loop.span("loader_start", 60, "loader/2", 0, 50)
            loop.span("data", 1, "loader/2", 32, 50)
            loop.span("forward", 4, "Net", 0, 51)
            loop.span("data_end", 20, "loader/2", 0, 50)
    finding = find(rule)
    assert "starts and ends the workers of the DataLoader for validation, which takes" in finding.sentence
    assert "persistent_workers=True" in finding.advice
    assert finding.verdict == "data-bound"
    assert finding.share == pytest.approx(6 * 80 / (6 * 85 + 60 * 10), abs=0.03)
    # Six validations: the workers start once.
    assert finding.saving[0] == pytest.approx(1 - 5 / 6 * finding.share, abs=0.01)


def test_a_light_validation_is_a_choice(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, batches=2)
    assert isinstance(ask(rule), Clear)


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, batches=20, steps=10)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["validation_share"]
    assert outcome.state == "not checked"


@pytest.mark.parametrize("count", [60, 20])
def test_a_loop_with_most_of_py_spys_samples_of_the_validation_is_what_to_change(
    loop: Any,
    find: Callable[[Rule], Finding],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    count: int,
) -> None:
    # The samples in a journal are the recorder's own; here they are taken for py-spy's.
    for module in (stacks, stack_samples):
        monkeypatch.setattr(module, "OUTSIDE", "recorder")
    file = tmp_path / "scores.py"
    file.write_text(
        "def scores(rows, table, out):\n    for i in range(9):\n        out[i] = (rows[i] - table).norm()\n"
    )
    write(loop, batches=20)
    for where, many in ((f"{file}:3:scores", count), ("train.py:51:main", 40)):
        label = FIELD_SEPARATOR.join(("forward", *where.split(":")))
        loop.journal.record(INSTANTS["STACK"], loop.journal.now - 50 * MS, MS, many, label, 1)
    finding = find(rule)
    edits = [option.edit for option in finding.options]
    if count == 60:
        assert finding.location is not None
        assert (finding.location.file, finding.location.line) == (str(file), 3)
        assert any("which begins at line 2" in edit for edit in edits)
        assert "60 of 100 samples of the validation were in scores" in " ".join(finding.evidence)
    else:
        assert str(finding.location) == "train.py:51"
        assert not any("begins at line" in edit for edit in edits)
