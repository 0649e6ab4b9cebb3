"""Options with or without a value: the command's own words are never taken for one."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from perfwrap.cli import app as perfwrap
from perfwrap.commands.options.optional_values import CommandWithOptionalValues
from typer.testing import CliRunner

app = typer.Typer()
PARSED = typer.Option("x", parser=str.upper)


@app.command(cls=CommandWithOptionalValues, context_settings={"allow_interspersed_args": False})
def show(
    words: list[str] = typer.Argument(None),  # noqa: B008 (as typer has it)
    nsys: bool = typer.Option(False, "--nsys"),
    nsys_options: str = typer.Option("", "--nsys-options", hidden=True),
    out: str = typer.Option("", "--out"),
) -> None:
    """Print what was understood."""
    print(nsys, nsys_options, out, words)


def test_the_usage_names_arguments_as_the_docs_do() -> None:
    lines = {
        "run": "perfwrap run [OPTIONS] [--] CMD...",
        "compare": "perfwrap compare [OPTIONS] A B...",
        "check": "perfwrap check [OPTIONS] RUN",
        "report": "perfwrap report [OPTIONS] [RUN]",
        "clean": "perfwrap clean [OPTIONS] [RUN...]",
    }
    for command, usage in lines.items():
        reported = CliRunner().invoke(perfwrap, [command, "-h"], prog_name="perfwrap").output
        assert reported.splitlines()[0] == f"Usage: {usage}"


@pytest.mark.parametrize(
    ("line", "understood"),
    [
        (["python", "a"], "False   ['python', 'a']"),
        (["--nsys", "python"], "True   ['python']"),
        (["--nsys=--trace=cuda", "python"], "True --trace=cuda  ['python']"),
        (["--nsys=", "--", "python"], "True   ['python']"),
        (["python", "--nsys=x"], "False   ['python', '--nsys=x']"),
        (["--", "--nsys=x"], "False   ['--nsys=x']"),
        (["--out", "--nsys=x", "python"], "False  --nsys=x ['python']"),
        (["--out=here", "--nsys=-tcuda", "python"], "True -tcuda here ['python']"),
    ],
)
def test_a_value_belongs_to_an_option_only_where_it_is_joined(line: list[str], understood: str) -> None:
    assert CliRunner().invoke(app, line).output.rstrip("\n") == understood


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report", "./missing", "--rules", "slow_steps"], "There is no folder ./missing."),
        (["run", "--rules", "nonsense", "--", "true"], "There is no rule 'nonsense' (--rules)."),
    ],
)
def test_common_options_are_read_without_pydantic(words: list[str], says: str) -> None:
    program = (
        "import sys; from perfwrap.cli import app\n"
        "try:\n    app(sys.argv[1:], standalone_mode=False)\nexcept Exception as error:\n    print(error)\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.stdout.splitlines() == [says, "False"]


def test_a_value_that_is_no_text_is_converted() -> None:
    counting = typer.Typer()

    @counting.command(cls=CommandWithOptionalValues)
    def count(
        number: int = 1,
        share: float = 0.5,
        name: str = "",
        parsed: str = PARSED,
        each: list[str] | None = None,
    ) -> None:
        print(number, share, repr(name), parsed, *([each] if each else ()))

    assert CliRunner().invoke(counting, []).output == "1 0.5 '' X\n"
    assert CliRunner().invoke(counting, ["--each", "a", "--each", "b"]).output == "1 0.5 '' X ['a', 'b']\n"
    line = ["--number", "3", "--share", "1", "--name", "4", "--parsed", "y"]
    assert CliRunner().invoke(counting, line).output == "3 1.0 '4' Y\n"
    assert CliRunner().invoke(counting, ["--number", "many"]).exit_code == 2
