"""For all names: what perfwrap prints does not control the terminal and is no command to a service."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import perfwrap
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.reports.markdown_text import code, escaped
from perfwrap.reports.terminal.page import Page
from perfwrap.shown_text import ANYWHERE, harmless, say, visible

PACKAGE = Path(perfwrap.__file__).parent
HOSTILE = "x\x1b[2J\n::error::gotcha\r##[set-env name=A]b\u202ec"
PIECES = st.lists(
    st.sampled_from([*":# \n\x1b|", "::error::x", "##[x]", "##vso[x]", "word"]), max_size=12
).map("".join)


def is_obeyed(line: str) -> bool:
    """Say whether a service takes a line for a command, as actions/runner's ActionCommand.cs and others' agents do."""
    return line.strip().startswith("::") or any(command in line for command in ANYWHERE)


@given(PIECES)
def test_no_printed_line_is_a_command(text: str) -> None:
    stream = io.StringIO()
    say(text, stream)
    say(f"  {text}", stream)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert not any(map(is_obeyed, lines))
    assert all(map(str.isprintable, lines))


@given(PIECES, st.integers(0, 40), st.sampled_from(["", "- "]))
def test_no_line_of_a_page_is_a_command_wherever_it_is_wrapped(text: str, before: int, hanging: str) -> None:
    page = Page(io.StringIO(), 40)
    page.paragraph("x" * before + " " + text, indent=2, hanging=hanging)
    page.line((text, "bold"))
    assert not any(map(is_obeyed, page.text().splitlines()))


@given(st.text(alphabet=':#[\\"a]'))
def test_json_that_was_made_harmless_says_the_same(text: str) -> None:
    assert json.loads(harmless(json.dumps(text))) == text


def test_harmless_text_stays_as_it_is() -> None:
    for text in ("torch::jit::load", "# 3 [x]", "a ## b", "std::vector"):
        assert harmless(visible(text)) == text


@pytest.mark.parametrize(
    "command",
    [
        "report {}",
        "import {}",
        "compare {} b",
        "check {} --baseline {}",
        "open {}",
        "clean {}",
        "export otlp {}",
    ],
)
@pytest.mark.parametrize("kind", ["missing", "file"])
def test_names_of_files_in_messages_steer_nothing(command: str, kind: str, tmp_path: Path) -> None:
    name = HOSTILE + ".json"
    if kind == "file":
        (tmp_path / name).write_text("{")
    _demand_harmless([word.format(name) for word in command.split()], tmp_path)


@pytest.mark.parametrize(
    "words", [[HOSTILE], ["report", "--" + HOSTILE], ["report", "a", HOSTILE], ["--" + HOSTILE]]
)
def test_words_of_the_command_line_in_messages_steer_nothing(words: list[str], tmp_path: Path) -> None:
    _demand_harmless(words, tmp_path)


def _demand_harmless(words: list[str], place: Path) -> None:
    """Demand that what perfwrap says to a command line is an error, and only text."""
    done = subprocess.run(
        [sys.executable, "-m", "perfwrap", *words],
        cwd=place,
        capture_output=True,
        env=os.environ | {"COLUMNS": "80"},
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 2
    assert "gotcha" in said
    assert not any(map(is_obeyed, said.splitlines()))
    assert all(line.isprintable() for line in said.split("\n"))


def test_help_keeps_its_lines() -> None:
    done = subprocess.run([sys.executable, "-m", "perfwrap", "--help"], capture_output=True, text=True)
    assert "\nOptions:\n" in done.stdout + done.stderr


def test_markdown_mentions_no_user_and_no_reference() -> None:
    assert escaped("by @someone, see #12 and &#64;someone") == (
        r"by @&#8203;someone, see \#&#8203;12 and \&\#&#8203;64;someone"
    )
    assert code("@someone") == "`@someone`"
    assert escaped("a @ b & c # d") == r"a @ b & c \# d"


def test_nothing_else_prints() -> None:
    allowed = {
        "shown_text.py",
        "checkup/interpreters.py",
        "demo/train_digits.py",
    }
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("print", "typer.echo", "click.echo", "typer.secho")
    }
    assert found <= allowed
