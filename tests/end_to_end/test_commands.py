"""Any command can be wrapped: its output, exit code and files are those that it has bare."""

from __future__ import annotations

import os
import subprocess
import sys
import zipapp
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """\
import os, sys
print("argv", sys.argv, "path", sys.path[:1], "name", __name__, "file", globals().get("__file__"))
print("input", sys.stdin.read().splitlines())
print("modules", sorted(name for name in sys.modules if "customize" in name or "perfwrap" in name))
os.write(2, b"a word on standard error\\n")
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""

CONSOLE = """\
import runpy, sys
sys.path.insert(0, ".")
runpy.run_module("package", run_name="__main__")
"""
"""What an installed console script does."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with one program in all the forms that programs come in."""
    (tmp_path / "program.py").write_text(PROGRAM)
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PROGRAM)
    zipapp.create_archive(package, tmp_path / "program.pyz", sys.executable)
    (tmp_path / "program.pyz").chmod(0o755)
    scripts = {
        "console": f"#!{sys.executable}\n{CONSOLE}",
        "shebang": f"#!{sys.executable}\n{PROGRAM}",
        "script.sh": f'#!/bin/sh\n{sys.executable} program.py "$@"\ncode=$?; echo after; exit $code\n',
        "failing.sh": f"#!/bin/bash\nset -euo pipefail\n{sys.executable} program.py 9 | cat\necho never\n",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


COMMANDS = {
    "script": [sys.executable, "program.py", "3", "--flag", "--", "x y"],
    "module": [sys.executable, "-m", "package", "255"],
    "code": [sys.executable, "-c", PROGRAM, "1"],
    "stdin": [sys.executable, "-", "7"],
    "flags": [sys.executable, "-X", "dev", "-W", "error", "-O", "-B", "program.py", "4"],
    "isolated": [sys.executable, "-I", "program.py", "4"],
    "without site": [sys.executable, "-S", "program.py", "4"],
    "console script": ["./console", "5"],
    "shebang": ["./shebang", "6"],
    "zip": [sys.executable, "program.pyz", "8"],
    "executable zip": ["./program.pyz", "8"],
    "shell script": ["./script.sh", "11"],
    "failing shell script": ["./failing.sh"],
    "shell": ["bash", "-c", f"{sys.executable} program.py 13 < /dev/null & wait $!"],
    "env": ["env", "A=b", sys.executable, "program.py"],
    "env -i": ["env", "-i", sys.executable, "program.py", "14"],
    "no python": ["sh", "-c", "echo no python; exit 15"],
    "not there": ["sh", "-c", "no-such-command-anywhere 2>/dev/null"],
    "traceback": [sys.executable, "-c", "print('so far'); raise KeyError('so good')"],
    "killed": [sys.executable, "-c", "import os; print('bye', flush=True); os.kill(os.getpid(), 9)"],
}


def run(command: list[str], place: Path, text: str = "one\ntwo\n") -> Any:
    """Return what a command does with that text on its standard input."""
    return subprocess.run(command, cwd=place, input=text.encode(), capture_output=True)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_wrapped_command_prints_and_ends_as_it_does_bare(command: list[str], place: Path) -> None:
    text = PROGRAM if command[1:2] == ["-"] else "one\ntwo\n"
    bare = run(command, place, text)
    files = {path.relative_to(place) for path in place.rglob("*")}
    wrapped = run([sys.executable, "-m", "perfwrap", "run", "--out", "the_run", "--", *command], place, text)
    assert wrapped.stdout == bare.stdout
    assert wrapped.returncode == bare.returncode
    assert wrapped.stderr.startswith(bare.stderr)
    new = {path.relative_to(place) for path in place.rglob("*")} - files
    assert {path.parts[0] for path in new} == {"the_run"}


@pytest.mark.parametrize("command", [COMMANDS["script"], COMMANDS["not there"], COMMANDS["killed"]])
def test_with_standard_error_thrown_away_nothing_of_perfwrap_is_seen(command: list[str], place: Path) -> None:
    prefix = [sys.executable, "-m", "perfwrap", "run"]
    for around in (prefix, [*prefix, "--out", "/proc/none/x"], [*prefix, "--no-report"]):
        seen = [
            subprocess.run(
                ["sh", "-c", '"$@" 2>/dev/null </dev/null', "-", *one], cwd=place, capture_output=True
            )
            for one in (command, [*around, "--", *command])
        ]
        assert seen[1].stdout == seen[0].stdout
        assert seen[1].returncode == seen[0].returncode


def test_every_python_of_a_script_is_reached(interpreter: str, place: Path) -> None:
    three = ["-c 'print(1)';", "program.py 0 </dev/null; exec", "-c 'print(3)'"]
    script = " ".join(f"{interpreter} {words}" for words in three)
    wrapped = run(
        [sys.executable, "-m", "perfwrap", "run", "--out", "the_run", "--", "sh", "-c", script], place
    )
    assert wrapped.returncode == 0
    records = [
        line for log in (place / "the_run" / "starts").iterdir() for line in log.read_text().splitlines()
    ]
    starts = [record.split("\t") for record in records]
    assert len([fields for fields in starts if fields[0] == "start"]) == 3
    assert len({fields[1] for fields in starts}) == 3


def test_a_pipeline_in_the_command_and_around_it_gives_the_same(place: Path) -> None:
    inner = "yes | head -3 | sort | uniq -c"
    outer = 'seq 1000 | "$@" | tail -1'
    commands = [["sh", "-c", inner + "; cat | wc -l"]]
    commands.append([sys.executable, "-m", "perfwrap", "run", "--no-report", "--", *commands[0]])
    seen = [
        subprocess.run(["bash", "-c", outer, "-", *one], cwd=place, capture_output=True).stdout
        for one in commands
    ]
    assert seen[0] == seen[1] != b""


def test_a_program_that_sees_its_environment_sees_one_variable_more(place: Path) -> None:
    code = "import os; print(sorted(os.environ))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    seen = [
        subprocess.run(
            [*prefix, sys.executable, "-c", code], cwd=place, env=environment, capture_output=True
        ).stdout
        for prefix in ([], [sys.executable, "-m", "perfwrap", "run", "--no-report", "--"])
    ]
    assert set(eval(seen[1])) - set(eval(seen[0])) == {"PYTHONPATH"}
