from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.measures.account.what_if import best_without
from perfwrap.measures.loop import logged_gaps, rare_visits
from perfwrap.rules.loop import logging_overhead as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

MS = 1_000_000
SCRIPT = """import csv, json
for step in range(100):
    loss = train(step)
    writer.writerow([step, loss]); file.flush()
    with open("state.json", "w") as state:
        json.dump(history, state)
    matrix = confusion(loss)
    torch.log(loss)
    open("data.bin")
"""
WRITING, DUMPING, COUNTING, LOGARITHM, READING = 4, 6, 7, 8, 9


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A program whose lines are known."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def write(loop: Any, script: Path, samples: dict[int, int], ms: float = 10) -> None:
    where = f"{script}:{{}}:main"
    for _ in range(40):
        loop.journal.span("forward", 4 * MS, "Net", 3, where.format(2))
        loop.journal.span("backward", 5 * MS, "", 0, where.format(3))
        loop.journal.span("optimizer", 1 * MS, "SGD#1", 0, where.format(3))
        loop.python(ms)
    for line, count in samples.items():
        label = FIELD_SEPARATOR.join(["", str(script), str(line), "main"])
        loop.journal.record(INSTANTS["STACK"], loop.journal.now - 100 * MS, MS, count, label, 1)


def test_lines_that_write_are_found_by_samples(
    loop: Any, script: Path, find: Callable[[Rule], Finding]
) -> None:
    write(loop, script, {WRITING: 30, DUMPING: 50, COUNTING: 20})
    finding = find(rule)
    assert finding.share == pytest.approx(0.5 * 0.8, abs=0.02)
    assert str(finding.location) == "train.py:6"
    assert "json.dump" in finding.advice
    assert "80 of 100 samples" in finding.evidence[0]
    assert finding.saving == pytest.approx((best_without(finding.share), 1 - 0.75 * finding.share))


@pytest.mark.parametrize("line", [COUNTING, LOGARITHM, READING])
def test_other_lines_are_clear(loop: Any, script: Path, ask: Callable[[Rule], Answer], line: int) -> None:
    write(loop, script, {line: 100})
    assert isinstance(ask(rule), Clear)


def test_a_stretch_that_is_mostly_something_else_is_clear(
    loop: Any, script: Path, ask: Callable[[Rule], Answer]
) -> None:
    write(loop, script, {WRITING: 30, COUNTING: 70})
    assert isinstance(ask(rule), Clear)


def test_a_file_that_is_gone_gives_nothing(loop: Any, script: Path, ask: Callable[[Rule], Answer]) -> None:
    write(loop, script, {WRITING: 100})
    script.unlink()
    assert isinstance(ask(rule), Clear)


def test_no_time_is_sold_twice(loop: Any, script: Path, diagnosis: Callable[[], Any]) -> None:
    write(loop, script, {WRITING: 100})
    found = {finding.rule for finding in diagnosis().findings}
    assert "logging_overhead" in found
    assert "python_overhead" not in found


def test_without_samples_it_is_not_checked(loop: Any, script: Path, diagnosis: Callable[[], Any]) -> None:
    write(loop, script, {})
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["logging_overhead"]
    assert outcome.state == "not checked"
    assert "--sample" in outcome.why


def test_writing_in_sections_that_mostly_do_something_else_is_found_by_py_spys_samples(
    loop: Any, script: Path, find: Callable[[Rule], Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The samples in a journal are the recorder's own; here they are taken for py-spy's.
    monkeypatch.setattr(logged_gaps, "OUTSIDE", "recorder")
    write(loop, script, {WRITING: 30, COUNTING: 70})
    finding = find(rule)
    assert finding.share == pytest.approx(0.3)
    assert str(finding.location) == "train.py:4"
    assert "30 of 100 samples of the training thread" in finding.evidence[0]
    assert "writer.writerow" in finding.advice


RUNS = {"two long visits": (range(20, 35), range(60, 75)), "in each step": (range(0, 90, 3),)}


@pytest.mark.parametrize(("when", "is_rare"), [("two long visits", True), ("in each step", False)])
def test_what_is_written_rarely_but_long_is_not_to_be_written_every_50_steps(
    loop: Any,
    script: Path,
    find: Callable[[Rule], Finding],
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    is_rare: bool,
) -> None:
    # The samples in a journal are the recorder's own; here they are taken for py-spy's.
    monkeypatch.setattr(logged_gaps, "OUTSIDE", "recorder")
    monkeypatch.setattr(rare_visits, "OUTSIDE", "recorder")
    write(loop, script, {})
    begin = loop.journal.now - 800 * MS
    writing = {number for numbers in RUNS[when] for number in numbers}
    for number in range(100):
        line = WRITING if number in writing else COUNTING
        label = FIELD_SEPARATOR.join(["", str(script), str(line), "main"])
        loop.journal.record(INSTANTS["STACK"], begin + number * 8 * MS, MS, 1, label, 1)
    finding = find(rule)
    assert ("train.py:4 ran about 2 times, once in 20 steps," in finding.evidence[-1]) == is_rare
    assert ("less often than once in 20 steps" in finding.advice) == is_rare
    assert ("only every 50 steps" in finding.advice) != is_rare
    worst = rule.HALF if is_rare else rule.MOST
    assert finding.saving == pytest.approx((best_without(finding.share), 1 - worst * finding.share))


@pytest.mark.parametrize(("call", "what"), [("plt.savefig", "saves images"), ("print", "writes logs")])
def test_images_are_not_logs(call: str, what: str) -> None:
    assert rule._what((call, "print")) == what
