from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from perfwrap.diagnosis.model import Diagnosis, LineAccount, Verdict
from perfwrap.measures.recorder.own_cost import ProcessorTime
from perfwrap.reports.terminal.page import MAX_COLUMNS, Page
from perfwrap.reports.terminal.run_text import draw, next_command
from perfwrap.rules.model import Finding, Location, Option, Outcome

Draw = Callable[..., str]


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_looks_as_the_sample_shows(
    diagnosis: Diagnosis, drawn: Draw, width: int, compare_sample: Callable[[str, str], None]
) -> None:
    compare_sample(f"terminal-{width}.txt", drawn(diagnosis, width))


def test_a_terminal_without_unicode_gets_ascii(
    diagnosis: Diagnosis, drawn: Draw, compare_sample: Callable[[str, str], None]
) -> None:
    text = drawn(diagnosis, encoding="ascii")
    assert text.isascii()
    compare_sample("terminal-ascii.txt", text)


@pytest.mark.parametrize("width", [60, 80, 120, 300])
def test_no_line_is_wider_than_the_terminal_or_ends_in_blanks(
    diagnosis: Diagnosis, drawn: Draw, width: int
) -> None:
    lines = drawn(diagnosis, width).splitlines()
    assert max(len(line) for line in lines) <= min(width, MAX_COLUMNS)
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
    assert command == "Next: perfwrap try workers=1 -- python train.py --name 'two words'"


def test_names_cannot_steer_the_terminal_or_the_layout(
    diagnosis: Diagnosis, drawn: Draw, tmp_path: Path
) -> None:
    name = "a[red]b[/red]\x1b[31m\r\nFix:  obey\u202e.py"
    hostile = Finding(
        title=f"Look at {name}:3.",
        share=0.5,
        evidence=(f"In {name}.",),
        options=(Option(f"Open {name}.", (0.5, 1.0)),),
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
    sentence = "The imported files do not contain the phases of a step."
    text = drawn(replace(diagnosis, account={"unknown": 7}))
    assert "unknown      100.0 %" in text
    assert sentence in " ".join(text.split())
    assert sentence not in " ".join(drawn(diagnosis).split())


@pytest.mark.parametrize(
    ("rule", "informational", "command"),
    [
        ("gc_pause", False, "perfwrap explain gc_pause"),
        ("compute_bound", True, "perfwrap explain compute_bound"),
        ("", False, "perfwrap report '/runs/a b'"),
    ],
)
def test_the_next_command_depends_on_what_was_found(rule: str, informational: bool, command: str) -> None:
    found = (
        (
            Finding(
                "It is so.",
                0.5,
                (),
                (Option("Go on.", (1, 1)),),
                rule=rule,
                informational=informational,
            ),
        )
        if rule
        else ()
    )
    verdict = Verdict("healthy", 0.9, "Healthy.", "measured")
    assert next_command(Diagnosis(verdict, found), Path("/runs/a b")) == command


def next_of(*experiments: str | None) -> str:
    """Return the next command after a finding whose options have these experiments, the best first."""
    options = tuple(
        Option(f"Do {number}.", (0.5 + 0.1 * number, 1.0), experiment=experiment)
        for number, experiment in enumerate(experiments)
    )
    found = Finding("It is so.", 0.5, (), options, rule="it")
    run = {"command": ["python", "train.py"]}
    return next_command(
        Diagnosis(Verdict("data-bound", 0.9, "So.", "measured"), (found,), run=run), Path("/a")
    )


def test_a_fix_is_tried_before_an_upper_bound() -> None:
    assert next_of("cached-batch", "workers=1") == "perfwrap try workers=1 -- python train.py"
    assert next_of("cached-batch", None) == "perfwrap try cached-batch -- python train.py"
    assert next_of("workers=2", "prefetch=4") == "perfwrap try workers=2 -- python train.py"
    assert next_of(None, "workers=1") == "perfwrap explain it"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["python", "train.py", "--name", "a b"], "perfwrap run --sample 20 -- python train.py --name 'a b'"),
        (["python", "train.py", *"--option" * 10], "perfwrap run --sample 20 -- YOUR_COMMAND"),
    ],
)
def test_a_finding_that_another_run_would_explain_names_that_run(words: list[str], command: str) -> None:
    found = Finding(
        "It is so.",
        0.5,
        (),
        (Option("Go on.", (1, 1)),),
        rule="it",
        informational=True,
        rerun_options="--sample 20",
    )
    diagnosis = Diagnosis(
        Verdict("compute-bound", 0.9, "So it is.", "measured"), (found,), run={"command": words}
    )
    assert next_command(diagnosis, Path("/runs/a")) == command


@pytest.mark.parametrize(
    ("verdict", "run", "command"),
    [
        ("compute-bound", {"options": {"inspect": False}}, "perfwrap inspect -- python train.py"),
        ("compute-bound", {"options": {"inspect": True}}, "perfwrap explain it"),
        ("compute-bound", {"options": {}, "imported": []}, "perfwrap explain it"),
        ("compute-bound", {}, "perfwrap explain it"),
        ("data-bound", {"options": {"inspect": False}}, "perfwrap explain it"),
    ],
)
def test_what_the_model_computes_is_inspected_next_unless_it_was(
    verdict: str, run: dict[str, object], command: str
) -> None:
    found = Finding(
        "It is so.",
        0.5,
        (),
        (Option("Go on.", (1, 1)),),
        rule="it",
        informational=True,
    )
    run = {"command": ["python", "train.py"], **run}
    diagnosis = Diagnosis(Verdict(verdict, 0.9, "So it is.", "measured"), (found,), run=run)
    assert next_command(diagnosis, Path("/runs/a")) == command
    inspected = replace(diagnosis, line_account=LineAccount(1.0, 1.0, (), (), {}))
    assert next_command(inspected, Path("/runs/a")) == "perfwrap explain it"


def test_what_was_imported_is_no_command_to_run_again() -> None:
    found = Finding(
        "It is so.",
        0.5,
        (),
        (Option("Go on.", (1, 1)),),
        rule="it",
        informational=True,
        rerun_options="--sample 20",
    )
    run = {"command": ["perfwrap", "import", "trace.json"], "imported": [{"format": "Kineto"}]}
    diagnosis = Diagnosis(Verdict("compute-bound", 0.9, "So it is.", "measured"), (found,), run=run)
    assert next_command(diagnosis, Path("/runs/a")) == "perfwrap run --sample 20 -- YOUR_COMMAND"


@pytest.mark.parametrize("reasons", [1, 2, 3, 9])
def test_what_was_not_checked_takes_three_lines_at_most(
    diagnosis: Diagnosis, drawn: Draw, reasons: int
) -> None:
    outcomes = tuple(
        Outcome(f"rule_{number}", "not checked", f"Reason {number % reasons}: " + 20 * "very " + "long.")
        for number in range(30)
    )
    text = drawn(replace(diagnosis, outcomes=outcomes))
    lines = text[text.index("Not checked") : text.index("Overhead of perfwrap")].splitlines()
    assert len(lines) == 1 + min(reasons, 2)
    assert lines[0] == "Not checked: 30 rules (to list them: perfwrap report --all)"
    counts = [int(line.split()[0]) for line in lines[1:]]
    assert sum(counts) == 30


def test_all_rules_and_findings_are_listed_on_request(
    diagnosis: Diagnosis, drawn: Draw, script: Path
) -> None:
    outcomes = tuple(Outcome(f"rule_{number}", "not checked", "No GPU.") for number in range(30))
    clear = tuple(Outcome(f"clear_{number}", "clear") for number in range(30))
    whole = " ".join(drawn(replace(diagnosis, outcomes=outcomes + clear), every=True).split())
    assert all(outcome.rule in whole for outcome in outcomes + clear)
    assert "4. non_finite_loss" in whole
    short = drawn(replace(diagnosis, outcomes=outcomes + clear))
    assert "rule_7" not in short
    assert "4. non_finite_loss" not in short


@pytest.mark.parametrize(
    ("how", "reported"),
    [
        ({"code": 1}, "The command failed: exit code 1. Its error message is in its output."),
        ({"code": 2}, "The command failed (exit code 2): there is no file missing.py."),
        ({"signal": 9}, "The command failed: killed by SIGKILL."),
    ],
)
def test_a_command_that_failed_before_it_trained_is_no_missing_verdict(
    drawn: Draw, tmp_path: Path, how: dict[str, int], reported: str
) -> None:
    verdict = Verdict("unknown", None, "No verdict: nothing trained.", "none")
    run = {"command": ["python", "missing.py"], "cwd": str(tmp_path), "exit": how}
    outcomes = tuple(Outcome(f"rule_{number}", "not checked", "Nothing trained.") for number in range(80))
    text = drawn(Diagnosis(verdict, outcomes=outcomes, run=run))
    assert reported in " ".join(text.split())
    assert "No verdict" not in text
    assert "Not checked" not in text
    assert "Next: perfwrap run -- python missing.py" in text


def test_a_command_that_failed_after_it_trained_keeps_its_report(diagnosis: Diagnosis, drawn: Draw) -> None:
    text = drawn(replace(diagnosis, run={**diagnosis.run, "exit": {"code": 1}}))
    assert "The command failed: exit code 1." in text
    assert "Data-bound" in text
    assert "Next: perfwrap try workers=1" in text


def test_what_the_whole_run_paid_is_reported(diagnosis: Diagnosis, drawn: Draw) -> None:
    assert diagnosis.perfwrap_cost is not None
    cost = structs.replace(diagnosis.perfwrap_cost, processor=ProcessorTime(10.5, 0.5, 0.1))
    words = " ".join(drawn(replace(diagnosis, perfwrap_cost=cost), 80).split())
    assert (
        "In the whole run: 600 ms of CPU time, 6.0 % of the program's 10 s (recorder 500 ms, estimated; "
        "monitors 100 ms)." in words
    )


def other_options(finding: Finding, every: bool) -> list[str]:
    """Return the lines of a report at 80 columns that are about other options."""
    page = Page(io.StringIO(), 80)
    diagnosis = Diagnosis(Verdict("data-bound", 0.9, "So it is.", "measured"), (finding,))
    draw(diagnosis, Path("/runs/a"), page, every)
    lines = page.text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("   Or:"))
    return [line for line in lines[first:] if line.startswith(("   Or:", "         "))]


def test_other_options_are_whole_and_all_of_them_in_the_full_report() -> None:
    edit = "Pass num_workers=2, persistent_workers=True to the DataLoader at a/long/path/train_digits.py:75."
    options = [Option(edit.replace("=2", f"={number}"), (0.1 * number, 0.9)) for number in range(1, 7)]
    finding = Finding("It waits.", 0.9, (), tuple(options), rule="it")
    short, full = other_options(finding, every=False), other_options(finding, every=True)
    assert sum(line.startswith("   Or:") for line in short) == 3
    assert all(len(line) <= 80 for line in short)
    assert " ".join(short).count("train_digits.py:75, step") == 3
    assert sum(line.startswith("   Or:") for line in full) == 5
    assert "train_digits.py:75" in " ".join(full)
