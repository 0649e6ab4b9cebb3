from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PERFWRAP = [sys.executable, "-m", "perfwrap"]


def perfwrap(*words: str, **settings: Any) -> Any:
    return subprocess.run([*PERFWRAP, "run", *words], capture_output=True, text=True, **settings)


@pytest.mark.parametrize("words", [[], ["--"], ["--no-monitors"], ["--no-monitors", "--"]])
def test_without_a_command_it_says_how_to_give_one(words: list[str], tmp_path: Path) -> None:
    answer = perfwrap(*words, cwd=tmp_path)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "No command was given." in answer.stderr
    assert "perfwrap run -- python train.py" in answer.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["--no-such-option", "true"],
        ["--rate", "0", "true"],
        ["--rate", "x", "true"],
        ["--budget", "0", "true"],
        ["--max-overhead", "much", "true"],
        ["--max-overhead", "0%", "true"],
        ["--max-overhead", "101", "true"],
        ["--trial-warm-up", "soon", "true"],
        ["--trial-precision", "2%", "true"],
    ],
)
def test_a_wrong_option_is_a_mistake_and_nothing_runs(words: list[str], tmp_path: Path) -> None:
    answer = perfwrap(*words, cwd=tmp_path)
    assert answer.returncode == 2
    assert words[0] in answer.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("separator", [["--"], []])
def test_options_after_the_first_word_are_the_commands(separator: list[str], tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; print(sys.argv[1:])",
        "--out",
        "x",
        "--",
        "-h",
        "--",
        "--rate",
    ]
    answer = perfwrap("--no-monitors", "--no-report", *separator, *command, cwd=tmp_path)
    assert answer.stdout == "['--out', 'x', '--', '-h', '--', '--rate']\n"
    assert not (tmp_path / "x").exists()


def test_a_command_that_begins_with_a_dash_needs_the_separator(tmp_path: Path) -> None:
    program = tmp_path / "-program"
    program.write_text("#!/bin/sh\necho it ran\n")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    answer = perfwrap("--no-monitors", "--no-report", "--", "-program", cwd=tmp_path, env=environment)
    assert answer.stdout == "it ran\n"


def test_run_folders_are_named_after_time_and_command(tmp_path: Path) -> None:
    for _ in range(2):
        assert perfwrap("--no-monitors", "--no-report", "sh", "-c", ":", cwd=tmp_path).returncode == 0
    folders = sorted((tmp_path / "perfwrap-runs").glob("[!.]*"))
    assert len(folders) == 2
    assert all("-sh" in folder.name and (folder / "run.json").exists() for folder in folders)


def test_the_help_names_every_option_and_fits_80_columns() -> None:
    answer = perfwrap("--help")
    assert answer.returncode == 0
    for option in ("--out", "--nvtx", "--no-monitors", "--rate", "--no-report", "--budget"):
        assert option in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 80


def test_a_missing_reading_half_is_said_in_one_line(tmp_path: Path) -> None:
    code = "import sys; sys.modules['polars'] = None; from perfwrap.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        code,
        "run",
        "--no-monitors",
        "--out",
        "run",
        "--",
        "sh",
        "-c",
        "echo mine; exit 3",
    ]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (3, "mine\n")
    (line,) = answer.stderr.splitlines()
    assert "polars" in line
    assert str(tmp_path / "run") in line


def test_the_launcher_is_the_same_under_both_names(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "perfwrap"
    if not script.exists():
        pytest.skip("perfwrap is not installed as a script")
    words = ["run", "--no-monitors", "--no-report", "sh", "-c", "exit 12"]
    assert subprocess.run([script, *words], cwd=tmp_path, capture_output=True).returncode == 12
    assert subprocess.run([*PERFWRAP, *words], cwd=tmp_path, capture_output=True).returncode == 12


def test_a_run_has_the_name_and_the_tags_that_it_was_given(tmp_path: Path) -> None:
    answer = perfwrap(
        "--no-monitors", "--no-report", "--name", "two words", "--tags", "a, b,a", "true", cwd=tmp_path
    )
    assert answer.returncode == 0
    (folder,) = (tmp_path / "perfwrap-runs").glob("[!.]*")
    manifest = json.loads((folder / "run.json").read_text())
    assert folder.name.endswith("-two_words")
    assert manifest["name"] == "two words"
    assert manifest["tags"] == ["a", "b"]


@pytest.mark.parametrize("setting", ["error", "always"])
def test_warnings_that_the_command_asks_for_are_only_the_commands(setting: str, tmp_path: Path) -> None:
    asked = {"PYTHONWARNINGS": setting, "PYTHONWARNDEFAULTENCODING": "1", "PYTHONDEVMODE": "1"}
    program = "import sys; print(sys.warnoptions, sys.flags.warn_default_encoding)"
    answer = perfwrap(
        *("--out", "run", "--", sys.executable, "-c", program), cwd=tmp_path, env={**os.environ, **asked}
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"['{setting}'] 1\n".replace("['", "['default', '")
    assert "Warning" not in answer.stderr
    assert "Traceback" not in answer.stderr
