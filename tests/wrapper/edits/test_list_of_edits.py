from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import perfwrap.edits
import pytest
from perfwrap.edits import EDITS, edit, module_of
from perfwrap.edits.outcome import Refused, Target

FOLDER = Path(perfwrap.edits.__file__).parent


def test_each_module_with_an_edit_is_listed_once() -> None:
    found = {
        path.stem: path.parent.name
        for path in FOLDER.glob("*/*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if path.stem != "__init__" and isinstance(node, ast.FunctionDef) and node.name == "edit"
    }
    assert found == EDITS


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_says_which_values_it_needs_and_refuses_without_them(name: str) -> None:
    assert "Values: " in (module_of(name).__doc__ or "").replace("\n", " ")
    found = edit(name, "x = 1\n", Target(1))
    assert isinstance(found, Refused) and found.reason.endswith(".")


@pytest.mark.parametrize("text", ["x = (\n", "x = 1\n" * 200_000, "x = " + "(" * 3000 + ")" * 3000])
def test_a_text_that_cannot_be_parsed_is_refused(text: str) -> None:
    assert isinstance(edit("cleanup_calls", text, Target(1)), Refused)


@pytest.mark.parametrize(
    "words", ["import perfwrap.edits", "import perfwrap.cli; perfwrap.cli.main(['--help'])"]
)
def test_the_parser_is_loaded_for_an_edit_only(words: str) -> None:
    code = f"import sys, atexit\natexit.register(lambda: print('libcst' in sys.modules))\n{words}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False", done.stderr
