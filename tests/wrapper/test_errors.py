from __future__ import annotations

import ast
from pathlib import Path

import perfwrap
import pytest

FILES = sorted(Path(perfwrap.__file__).parent.rglob("*.py"))


def without_hint(path: Path) -> list[int]:
    """Return the lines that make a PerfwrapError without saying what to do next."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "PerfwrapError":
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            if len(arguments) < 2 or (isinstance(arguments[1], ast.Constant) and not arguments[1].value):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_error_has_a_hint(path: Path) -> None:
    assert without_hint(path) == []


def test_an_error_without_a_hint_would_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(
        'raise PerfwrapError("No.")\nraise PerfwrapError("No.", "")\nraise PerfwrapError("No.", "Do.")\n'
    )
    assert without_hint(path) == [1, 2]
