from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.measures.account.lines import Line
from perfwrap.measures.loop import source_calls
from perfwrap.measures.loop.library_calls import LibraryTime
from perfwrap.measures.loop.source_calls import independent_loop
from perfwrap.measures.loop.stacks import HotFunction, Sampled
from perfwrap.rules.loop import loop_in_model as rule
from perfwrap.rules.model import Clear, Finding, NotChecked, Rule

MS = 1_000_000
SOURCE = """
def loss(scores, labels):
    total = 0
    for sample in range(len(labels)):
        error = abs(scores[sample] - labels[sample])
        total = total + error.sum()
    return total

def layers(x, blocks):
    for block in blocks:
        x = block(x)
    return x

def recurrence(x, cell, state):
    for step in x:
        gates = cell(step, state)
        state = gates.tanh()
    return state

def heads(x, branches):
    return_values = []
    for branch in branches:
        return_values.append(branch(x))
    return return_values

def indexed(x, branches):
    outputs = []
    for number in range(3):
        outputs.append(branches[number](x))
    return outputs

def distances(x):
    rows = [(row - x).norm(dim=-1) for row in x]
    return max(
        row.sum()
        for row in rows
    )

def stacked(x, parts):
    return sum(part(x) for part in parts)

def per_class(x, first, second):
    total, count = 0, 0
    for label in range(10):
        mine = []
        with torch.no_grad():
            chosen = first == label
        if len(second):
            picked = second == label
            mine = x[picked]
        total += similarity(mine, chosen)
        count += 1
    return total / count

def running(x, weights):
    for row in x:
        if len(row):
            state = weights @ row
        yield state.exp()

def stages(self, x):
    features = [x]
    for number in range(4):
        features.append(self.stage(number, features[-1]))
    for number in range(4):
        stage = getattr(self, f"stage_{number}")
        rows.append(stage(x))
    for number in range(4):
        out[number] = out[number - 1] * x
    for number in range(4):  # rows
        result[number] = self.head(x[number])
    return features

def filled(x, values):
    for column in range(x.shape[1]):
        if values is None:
            fill = 0
        elif len(values):
            fill = values[column]
        else:
            raise ValueError(values)
        part = x[:, column]
        part[part.isnan()] = fill

def partly_filled(x, values):
    for column in range(x.shape[1]):
        if len(values) > column:
            last = values[column]
        else:
            print("no value")
        x[:, column].fill_(last)

def plain(x):
    return x + 1
"""


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE.split("\n"), start=1) if text in line)


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("error = abs", "for sample"),
        ("total = total", "for sample"),
        ("x = block(x)", None),
        ("gates = cell", None),
        ("return_values.append", None),
        ("outputs.append", None),
        ("rows = [", "rows = ["),
        ("row.sum()", "return max("),
        ("sum(part", None),
        ("mine = x[picked]", "for label"),
        ("yield state", None),
        ("features.append", None),
        ("rows.append(stage(x))", None),
        ("out[number - 1]", None),
        ("result[number]", "for number in range(4):  # rows"),
        ("part[part.isnan()]", "for column"),
        ("fill_(last)", None),
        ("return x + 1", None),
    ],
)
def test_only_loops_of_independent_passes_are_found(tmp_path: Path, text: str, begin: str | None) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    found = independent_loop({"cwd": str(tmp_path)}, "net.py", line_of(text))
    assert (found and found[0]) == (line_of(begin) if begin else None)
    assert found is None or found[0] <= line_of(text) <= found[1]


def sampled_loop(loop: Any, place: str, count: int, others: int = 4) -> None:
    """Write a loop of model work, with so many samples at a line of the model, and others in the backward pass."""
    for _ in range(40):
        loop.compute()
        for phase, where, many in (("forward", place, count), ("backward", "train.py:23:main", others)):
            if many:
                label = FIELD_SEPARATOR.join((phase, *where.split(":")))
                loop.journal.record(INSTANTS["STACK"], loop.journal.now - 9 * MS, MS, many, label, 1)


@pytest.fixture
def as_of_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the rule take the samples in a journal for py-spy's."""
    monkeypatch.setattr(rule, "OUTSIDE", "recorder")


@pytest.mark.usefixtures("as_of_py_spy")
def test_a_hot_line_in_such_a_loop_is_found_at_its_line(
    loop: Any, find: Callable[[Rule], Finding], tmp_path: Path
) -> None:
    file = tmp_path / "net.py"
    file.write_text(SOURCE)
    line = line_of("error = abs")
    sampled_loop(loop, f"{file}:{line}:loss", 2, others=8)
    finding = find(rule)
    assert finding.share == pytest.approx(0.2)
    # A step is 4 ms forward, 5 ms backward and 1 ms of the optimizer: the line has half of forward.
    assert finding.saving == (pytest.approx(1 - 0.9 * (0.2 + 0.25)), 1.0)
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == (str(file), line)
    assert f"begins at line {line_of('for sample')}" in finding.advice
    assert "20 % of the training loop is a loop inside the model or the loss, at net.py" in finding.sentence


@pytest.mark.parametrize(("in_modules", "severity"), [(18, "minor"), (6, "critical")])
def test_a_loop_over_calls_of_modules_is_at_most_minor(in_modules: int, severity: str) -> None:
    hot = HotFunction(Line("net.py", 9, "forward"), 20, 20, LibraryTime(18, None, (), in_modules))
    finding = rule._finding(hot, 8, Sampled(40, (hot,), "py-spy"), 0.1, rule.Limits())
    assert finding.max_severity == severity
    assert ("only if they are small" in finding.advice) == (severity == "minor")


@pytest.mark.usefixtures("as_of_py_spy")
@pytest.mark.parametrize("ends_before_backward", [True, False])
def test_the_loop_of_batches_is_no_loop_in_the_model(
    loop: Any,
    ask: Callable[[Rule], Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    ends_before_backward: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    source_calls._tree.cache_clear()
    lines = ["for x in loader:", *["    y = net(x)"] * 30]  # The backward pass is on line 23.
    if ends_before_backward:
        lines[22:] = ["loss = y.sum()"] * 9
    (tmp_path / "train.py").write_text("\n".join(lines))
    sampled_loop(loop, "train.py:21:main", 6)
    assert isinstance(ask(rule), list if ends_before_backward else Clear)


@pytest.mark.usefixtures("as_of_py_spy")
@pytest.mark.parametrize(
    ("text", "others"), [("x = block(x)", 4), ("error = abs", 60)], ids=["layers", "cold"]
)
def test_layers_and_cold_lines_are_no_finding(
    loop: Any, ask: Callable[[Rule], Any], tmp_path: Path, text: str, others: int
) -> None:
    file = tmp_path / "net.py"
    file.write_text(SOURCE)
    sampled_loop(loop, f"{file}:{line_of(text)}:f", 6, others)
    assert isinstance(ask(rule), Clear)


def test_the_recorders_own_samples_are_not_enough(loop: Any, ask: Callable[[Rule], Any]) -> None:
    sampled_loop(loop, "net.py:5:loss", 6)
    assert isinstance(ask(rule), NotChecked)
