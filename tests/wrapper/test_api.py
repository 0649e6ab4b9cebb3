"""`import perfwrap`: analyze() and compare(), as a script or a notebook uses them."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import perfwrap
import polars as pl
import pytest
from perfwrap.diagnosis.model import LineAccount, LineCost
from perfwrap.measures.account.lines import Line
from perfwrap.rules.model import Finding, Option


@pytest.fixture
def folder(recorded_document: Any) -> Path:
    """A run whose steps take 20 ms, 8 ms of them waiting for batches."""
    made: Path = recorded_document.folder()
    return made


def test_a_run_folder_gives_the_diagnosis_that_the_command_writes(folder: Path) -> None:
    run = perfwrap.analyze(folder)
    command = [sys.executable, "-m", "perfwrap", "report", str(folder), "--format", "json"]
    assert subprocess.run(command, capture_output=True, check=True)
    import json

    assert json.loads((folder / "diagnosis.json").read_text()) == json.loads(json.dumps(run.to_dict()))
    assert run.verdict.id == run.to_dict()["verdict"]["id"]
    assert [finding.rule for finding in run.findings] == [each["rule"] for each in run.to_dict()["findings"]]
    assert {outcome.rule for outcome in run.outcomes} == set(run.to_dict()["outcomes"])


def test_tables_are_polars_frames_in_stated_units(folder: Path) -> None:
    run = perfwrap.analyze(str(folder))
    steps = run.to_polars("steps")
    assert steps.height == run.steps.count
    assert (steps["duration"] == steps["end"] - steps["start"]).all()
    assert steps.filter("steady")["duration"].median() == run.steps.median_ns
    account = run.to_polars("account")
    assert dict(account.select("part", "share").iter_rows()) == pytest.approx(run.account)
    assert account["share"].sum() == 1
    lines = run.to_polars("lines")
    assert lines.is_empty()
    assert {"file", "line", "ns", "share", "forward", "backward", "kinds"} <= set(lines.columns)
    samples = run.to_polars("samples")
    assert set(samples.columns) == {"time", "host", "entity", "metric", "unit", "value", "source"}
    with pytest.raises(perfwrap.PerfwrapError, match="no table 'kernels'"):
        run.to_polars("kernels")  # type: ignore[arg-type]


def test_a_step_by_lines_is_a_table_whose_parts_sum_to_each_line(folder: Path) -> None:
    recorded = perfwrap.analyze(folder)
    parts = {"forward": 2e6, "backward": 5e6, "optimizer": 0.0, "python": 0.0, "data": 0.0}
    known = LineCost(Line("train.py", 7, "main"), parts, 3, (("mm", 2), ("add", 1)), "float32[8]", "Net")
    unknown = LineCost(Line("", 0), dict.fromkeys(parts, 0.0) | {"python": 1e6})
    account = LineAccount(8e6, 8e6, (known, unknown), (), {})
    lines = replace(recorded, diagnosis=replace(recorded.diagnosis, line_account=account)).to_polars("lines")
    assert lines.select("file", "line", "function", "ns", "share").row(0) == (
        "train.py",
        7,
        "main",
        7_000_000,
        0.875,
    )
    assert lines["file"].to_list() == ["train.py", None]
    assert (lines["ns"] == lines.select(pl.sum_horizontal(list(parts))).to_series()).all()
    assert lines["kinds"].to_list() == [["mm", "add"], []]


def test_a_notebook_shows_verdict_and_findings_and_no_markup_of_the_program(folder: Path) -> None:
    run = perfwrap.analyze(folder)
    shown = run._repr_html_()
    assert run.findings
    assert run.verdict.sentence in shown
    assert all(finding.rule in shown for finding in run.findings)
    object.__setattr__(run, "name", "<script>alert(1)</script>")
    assert "<script>" not in run._repr_html_()


def test_a_notebook_shows_the_other_options_too(folder: Path) -> None:
    run = perfwrap.analyze(folder)
    options = (Option("Do <this>.", (0.5, 0.6)), Option("Do <that>.", (0.7, 0.8)))
    found = (Finding("It waits.", 0.5, (), options, rule="it"),)
    shown = replace(run, diagnosis=replace(run.diagnosis, findings=found))._repr_html_()
    assert "<b>Fix:</b> Do &lt;this&gt;.<br>Or: Do &lt;that&gt;, step time 70 to 80 %</td>" in shown


def test_rules_can_be_chosen(folder: Path) -> None:
    rule = perfwrap.analyze(folder).findings[0].rule
    assert rule not in {finding.rule for finding in perfwrap.analyze(folder, ignore=[rule]).findings}
    with pytest.raises(perfwrap.PerfwrapError, match="no rule 'nonsense'"):
        perfwrap.analyze(folder, rules=["nonsense"])


def test_what_is_no_run_is_an_error_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(perfwrap.PerfwrapError) as error:
        perfwrap.analyze("nothing")
    assert error.value.hint
    (tmp_path / "notes.txt").write_text("nothing that a profiler writes")
    with pytest.raises(perfwrap.PerfwrapError, match=r"notes\.txt"):
        perfwrap.analyze("./notes.txt")


def test_files_of_other_profilers_are_read(repository: Path) -> None:
    (trace,) = (repository / "tests" / "samples" / "kineto").glob("*.json*")
    run = perfwrap.analyze([trace])
    assert run.timeline.spans.height > 0
    assert run.name == trace.name


def test_two_runs_are_compared(recorded_document: Any) -> None:
    before, after = recorded_document.folder(), recorded_document.folder(step_ms=24, data_ms=9, seed=2)
    assert perfwrap.compare(before, perfwrap.analyze(after)).outcome == "slower"
    assert perfwrap.compare([before], before).outcome == "same"


def test_the_example_of_the_documentation_runs(
    repository: Path, recorded_document: Any, tmp_path: Path
) -> None:
    page = (repository / "docs" / "python-api.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "perfwrap-runs").mkdir()
    for name, step in (("before", 24), ("after", 20)):
        recorded_document.folder(step_ms=step).rename(tmp_path / "perfwrap-runs" / f"20260101-000000-{name}")
    ended = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^\d+\.\d+ ms$", ended.stdout, re.MULTILINE)
    assert "faster" in ended.stdout


def test_importing_perfwrap_loads_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import perfwrap; print(sorted(set(sys.modules) - before)); "
        "print('analyze' in dir(perfwrap), perfwrap.__version__)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("['perfwrap']\nTrue ")


def test_a_comparison_refuses_a_run_twice_and_unknown_allowances(recorded_document: Any) -> None:
    run = perfwrap.analyze(recorded_document.folder())
    with pytest.raises(perfwrap.PerfwrapError, match="the same run twice"):
        perfwrap.compare([run, run], run)
    with pytest.raises(perfwrap.PerfwrapError, match="no difference 'colour'") as error:
        perfwrap.compare(run, run, allow=["colour"])
    assert "batch" in error.value.hint
    with pytest.raises(perfwrap.PerfwrapError, match="nothing to analyze"):
        perfwrap.analyze([])
