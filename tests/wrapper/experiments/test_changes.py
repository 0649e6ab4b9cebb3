"""Words that ask for changes are understood, or refused in words."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from perfwrap.errors import PerfwrapError
from perfwrap.experiments.changes import CEILING, CHANGES, FIX, NUMERICS, checked, find


def test_words_are_taken_one_by_one_and_joined() -> None:
    assert checked(["workers=8+bf16", "compile"]) == ("workers=8", "bf16", "compile")
    assert checked([]) == ()
    assert find("compile=max-autotune").name == "compile"


def test_names_are_unique() -> None:
    assert len({change.name for change in CHANGES}) == len(CHANGES)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wokers=8"], "no change 'wokers'"),
        (["workers"], "needs a number"),
        (["workers=-1"], "needs a number"),
        (["batch-size=0"], "needs a number"),
        (["bf16=yes"], "takes no value"),
        (["compile=fast"], "no mode 'fast'"),
        (["workers=2", "workers=4"], "was given twice"),
        (["bf16+fp16"], "exclude each other"),
        (["bf16+"], "no change ''"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(PerfwrapError, match=said):
        checked(words)


def test_the_recorder_knows_the_same_changes(repository: Path) -> None:
    source = repository / "inject" / "perfwrap_recorder" / "changes" / "__init__.py"
    names: dict[str, object] = {"FIX": FIX, "NUMERICS": NUMERICS, "CEILING": CEILING}
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "CHANGES":
            table = eval(compile(ast.Expression(node.value), "CHANGES", "eval"), names)
    assert [row[:2] for row in table] == [(change.name, change.kind) for change in CHANGES]
    assert [row[2] for row in table] == [change.name.replace("-", "_") for change in CHANGES]
