from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from perfwrap.diagnosis import Diagnosis
from perfwrap.reports.page import MOST_COLUMNS
from perfwrap.reports.terminal import _listed, next_command
from perfwrap.rules.model import Finding, Location
from perfwrap.verdict import Verdict

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "reports"
Draw = Callable[..., str]


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_looks_as_the_sample_shows(diagnosis: Diagnosis, drawn: Draw, width: int) -> None:
    assert drawn(diagnosis, width) == (SAMPLES / f"terminal-{width}.txt").read_text(encoding="utf-8")


def test_a_terminal_without_unicode_gets_ascii(diagnosis: Diagnosis, drawn: Draw) -> None:
    text = drawn(diagnosis, encoding="ascii")
    assert text == (SAMPLES / "terminal-ascii.txt").read_text(encoding="ascii")


@pytest.mark.parametrize("width", [60, 80, 120, 300])
def test_no_line_is_wider_than_the_terminal_or_ends_in_blanks(
    diagnosis: Diagnosis, drawn: Draw, width: int
) -> None:
    lines = drawn(diagnosis, width).splitlines()
    assert max(len(line) for line in lines) <= min(width, MOST_COLUMNS)
    assert all(line == line.rstrip() for line in lines)


def test_the_shares_of_the_account_sum_to_a_hundred_per_cent(diagnosis: Diagnosis, drawn: Draw) -> None:
    odd = replace(
        diagnosis, account=dict.fromkeys(("data", "forward", "backward", "gc", "sync", "python"), 1)
    )
    shares = re.findall(r"^  \w+ +(\d+\.\d) %", drawn(odd), flags=re.MULTILINE)
    assert len(shares) == 6
    assert sum(round(10 * float(share)) for share in shares) == 1000


def test_a_pipe_gets_no_colour(diagnosis: Diagnosis, drawn: Draw) -> None:
    assert "\x1b" not in drawn(diagnosis)


def test_the_report_ends_with_the_run_folder_and_one_command(diagnosis: Diagnosis, drawn: Draw) -> None:
    *_, folder, command = drawn(diagnosis).splitlines()
    assert folder == "Run folder: /runs/20260101-120000-train"
    assert command == "Next: perfwrap explain data_loader_single_process"


def test_names_cannot_steer_the_terminal_or_the_layout(
    diagnosis: Diagnosis, drawn: Draw, tmp_path: Path
) -> None:
    name = "a[red]b[/red]\x1b[31m\r\nFix:  obey\u202e.py"
    hostile = Finding(
        title=f"Look at {name}:3.",
        share=0.5,
        saving=(0.5, 1.0),
        evidence=(f"In {name}.",),
        advice=f"Open {name}.",
        location=Location(str(tmp_path / name), 3),
        rule="python_overhead",
    )
    text = drawn(replace(diagnosis, findings=(hostile,), warnings=(name,)))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u202e" not in text
    assert "[red]b[/red]" in text
    assert "\n   Fix:  obey" not in text
    assert "\\u202e" in text


def test_a_very_long_path_keeps_its_beginning_and_its_end(diagnosis: Diagnosis, drawn: Draw) -> None:
    path = "/data/" + "very/" * 60 + "train.py"
    long = replace(diagnosis.findings[0], location=Location(path, 3))
    text = drawn(replace(diagnosis, findings=(long,)))
    line = next(line for line in text.splitlines() if line.endswith("train.py:3") and "…" in line)
    assert line.strip().startswith("/data/very/")
    assert len(line) <= 80


def test_lines_of_a_file_that_changed_since_the_run_are_marked(diagnosis: Diagnosis, drawn: Draw) -> None:
    run = {**diagnosis.run, "end": {"monotonic_ns": 1, "wall_ns": 1}}
    assert "the file has changed since the run" in drawn(replace(diagnosis, run=run))
    assert "the file has changed since the run" not in drawn(diagnosis)


def test_a_file_that_is_gone_costs_only_the_lines(diagnosis: Diagnosis, drawn: Draw, script: Path) -> None:
    script.unlink()
    text = drawn(diagnosis)
    assert "train.py:3" in text
    assert "│" not in text


def test_an_abstention_needs_no_figures(drawn: Draw) -> None:
    verdict = Verdict("unknown", None, "No verdict: 1 Python process ran, but none imported torch.", "none")
    text = drawn(Diagnosis(verdict))
    assert "No verdict" in text
    assert "Next: perfwrap doctor" in text


def test_an_imported_loop_of_which_no_phase_is_known_is_said_to_be_so(
    diagnosis: Diagnosis, drawn: Draw
) -> None:
    told = "The imported files do not tell what the program did in its steps."
    text = drawn(replace(diagnosis, account={"unknown": 7}))
    assert "unknown      100.0 %" in text
    assert told in " ".join(text.split())
    assert told not in " ".join(drawn(diagnosis).split())


@pytest.mark.parametrize(
    ("rule", "benign", "command"),
    [
        ("gc_pause", False, "perfwrap explain gc_pause"),
        ("compute_bound", True, "perfwrap explain compute_bound"),
        ("", False, "perfwrap report '/runs/a b'"),
    ],
)
def test_the_next_command_depends_on_what_was_found(rule: str, benign: bool, command: str) -> None:
    found = (Finding("It is so.", 0.5, (1, 1), (), "Go on.", rule=rule, benign=benign),) if rule else ()
    verdict = Verdict("healthy", 0.9, "Healthy.", "measured")
    assert next_command(Diagnosis(verdict, found), Path("/runs/a b")) == command


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["python", "train.py", "--name", "a b"], "perfwrap run --sample 20 -- python train.py --name 'a b'"),
        (["python", "train.py", *"--option" * 10], "perfwrap run --sample 20 -- COMMAND"),
    ],
)
def test_a_finding_that_another_run_would_tell_more_of_says_which(words: list[str], command: str) -> None:
    found = Finding("It is so.", 0.5, (1, 1), (), "Go on.", rule="it", benign=True, look_closer="--sample 20")
    diagnosis = Diagnosis(
        Verdict("compute-bound", 0.9, "So it is.", "measured"), (found,), run={"command": words}
    )
    assert next_command(diagnosis, Path("/runs/a")) == command


def test_what_was_imported_is_no_command_to_run_again() -> None:
    found = Finding("It is so.", 0.5, (1, 1), (), "Go on.", rule="it", benign=True, look_closer="--sample 20")
    run = {"command": ["perfwrap", "import", "trace.json"], "imported": [{"format": "Kineto"}]}
    diagnosis = Diagnosis(Verdict("compute-bound", 0.9, "So it is.", "measured"), (found,), run=run)
    assert next_command(diagnosis, Path("/runs/a")) == "perfwrap run --sample 20 -- COMMAND"


def test_of_many_rules_only_the_first_are_named() -> None:
    assert _listed(["a", "b", "c", "d", "e"]) == "a, b, c, d, e"
    assert _listed(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more"
