"""The table of commands: the help, what it imports, and the hint for a program that is not a command."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from perfwrap.cli import app
from perfwrap.commands import COMMANDS, Command
from perfwrap.errors import PerfwrapError
from typer.testing import CliRunner

HEAVY = ("polars", "numpy", "rich", "psutil", "pynvml", "plotly")


def invoked(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), prog_name="perfwrap")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_summary_fits_one_line_and_is_that_of_the_command_itself(command: Command) -> None:
    (line,) = [line for line in invoked("--help").output.splitlines() if line.split()[:1] == [command.name]]
    assert line == f"  {command.name:<9}{command.summary}"
    assert len(line) < 80
    assert (inspect.getdoc(command.load()) or "").splitlines()[0] == command.summary


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_help_of_a_command_fits_80_columns(command: Command) -> None:
    answer = invoked(command.name, "--help")
    assert answer.exit_code == 0
    assert max(map(len, answer.output.splitlines())) <= 80
    assert command.summary in answer.output


def test_without_words_three_commands_are_shown_and_each_exists() -> None:
    answer = invoked()
    assert answer.exit_code == 0
    examples = [line.split()[1] for line in answer.output.splitlines() if line.startswith("  perfwrap ")]
    assert len(examples) == 3
    assert set(examples) <= {command.name for command in COMMANDS}
    assert max(map(len, answer.output.splitlines())) < 80
    assert "perfwrap --help" in answer.output


def test_the_help_of_run_groups_its_options_with_the_common_ones_first() -> None:
    lines = invoked("run", "--help").output.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles[0] == "Common options:"
    assert titles[-1] == "Other options:"
    assert len(titles) > 5
    assert lines.index("Common options:") < next(
        number for number, line in enumerate(lines) if line.startswith("  --out")
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import perfwrap.cli", []),
        ("from perfwrap.cli import main; main()", ["--help"]),
        ("import perfwrap.cli, perfwrap.commands.run, perfwrap.commands.attach", []),
    ],
    ids=["cli", "help", "recording commands"],
)
def test_the_help_and_the_recording_commands_import_no_heavy_library(code: str, words: list[str]) -> None:
    program = f"import sys\ntry:\n    {code}\nfinally:\n    print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 0
    assert not [library for library in HEAVY if f"'{library}'" in done.stderr]
    if words:
        assert "'perfwrap.commands.report'" not in done.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["python3", "x.py", "--a b"], "perfwrap run -- python3 x.py '--a b'"),
        (["x.py", "1"], "perfwrap run -- python x.py 1"),
        (["./train.sh"], "perfwrap run -- ./train.sh"),
    ],
)
def test_a_program_instead_of_a_command_gets_the_command_to_type(words: list[str], hint: str) -> None:
    error = invoked(*words).exception
    assert isinstance(error, PerfwrapError)
    assert f"{words[0]!r} is not a perfwrap command" in error.message
    assert error.hint.endswith(hint)


@pytest.mark.parametrize(("word", "meant"), [("compar", "compare"), ("ls", "list"), ("reprot", "report")])
def test_a_misspelt_command_is_not_taken_for_a_program(
    word: str, meant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / word
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = invoked(word)
    assert answer.exit_code == 2
    assert f"'{meant}'" in answer.output
