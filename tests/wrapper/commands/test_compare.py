"""`perfwrap compare` and `perfwrap check` on recorded runs, as a shell sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator
from perfwrap.reports.comparison_json import SCHEMA


@pytest.fixture
def folders(recorded_document: Any) -> dict[str, str]:
    """Two equal runs, one that is a fifth slower, one with another batch size."""
    made = recorded_document.folder
    return {
        "base": str(made()),
        "same": str(made(seed=1)),
        "slow": str(made(step_ms=24, data_ms=9, seed=2)),
        "batch": str(made(batch=64)),
    }


VALIDATOR = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def perfwrap(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfwrap", *words],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, **variables},
    )


ENVIRONMENT = {"PATH": "/usr/bin:/bin", "COLUMNS": "80", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


def test_a_slower_run_is_reported_as_slower(folders: dict[str, str]) -> None:
    ended = perfwrap("compare", folders["base"], folders["slow"])
    assert ended.returncode == 0
    assert "Slower: a step takes" in ended.stdout
    assert max(len(line) for line in ended.stdout.splitlines()) <= 80
    assert ended.stderr == ""


def test_several_runs_are_held_against_the_first_as_json(folders: dict[str, str]) -> None:
    ended = perfwrap("compare", folders["base"], folders["same"], folders["slow"], "--format", "json")
    document = json.loads(ended.stdout)
    VALIDATOR.validate(document)
    assert [found["outcome"] for found in document["comparisons"]] == ["same", "slower"]


@pytest.mark.parametrize(
    ("run", "options", "status"),
    [
        ("same", (), 0),
        ("slow", (), 10),
        ("slow", ("--max-regression", "50"), 0),
        ("batch", (), 11),
        ("batch", ("--allow", "batch"), 0),
        ("same", ("--max-regression", "0.1%"), 0),
        ("same", ("--max-regression", "0.1%", "--strict"), 12),
        ("same", ("--max-regression", "much"), 2),
        ("same", ("--allow", "everything"), 2),
        ("gone", (), 2),
    ],
)
def test_a_check_ends_as_documented(
    folders: dict[str, str], run: str, options: tuple[str, ...], status: int
) -> None:
    ended = perfwrap("check", folders.get(run, run), "--baseline", folders["base"], *options)
    assert ended.returncode == status, ended.stderr
    assert "Traceback" not in ended.stderr
    if status == 2:
        assert ended.stderr.count("\n") >= 2  # what is wrong, and a hint


def test_a_check_speaks_to_github_and_to_what_reads_junit(folders: dict[str, str], tmp_path: Path) -> None:
    summary, junit = tmp_path / "summary.md", tmp_path / "junit.xml"
    words = (
        "check",
        folders["slow"],
        "--baseline",
        folders["base"],
        "--format",
        "github",
        "--junit",
        str(junit),
    )
    ended = perfwrap(*words, GITHUB_STEP_SUMMARY=str(summary))
    assert ended.returncode == 10
    assert ended.stdout.startswith("::error title=perfwrap check%3A regression::A step takes +2")
    assert "❌ **regression**" in summary.read_text(encoding="utf-8")
    assert ElementTree.parse(junit).getroot().attrib["failures"] == "1"


def test_a_saved_diagnosis_is_a_baseline(folders: dict[str, str], tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text(perfwrap("report", folders["base"], "--format", "json").stdout, encoding="utf-8")
    ended = perfwrap("check", folders["slow"], "--baseline", str(baseline), "--format", "json")
    assert ended.returncode == 10
    document = json.loads(ended.stdout)
    VALIDATOR.validate(document)
    assert document["check"]["state"] == "regression"


def test_one_run_alone_is_refused(folders: dict[str, str]) -> None:
    ended = perfwrap("compare", folders["base"])
    assert ended.returncode == 2
    assert "perfwrap compare before after" in ended.stderr


def test_several_runs_of_each_are_compared_by_how_much_they_differ(recorded_document: Any) -> None:
    made = recorded_document.folder
    first = [str(made(seed=seed)) for seed in (1, 2)]
    second = [str(made(step_ms=24, data_ms=9, seed=seed)) for seed in (3, 4)]
    ended = perfwrap("compare", ",".join(first), ",".join(second), "--format", "json")
    document = json.loads(ended.stdout)
    VALIDATOR.validate(document)
    (found,) = document["comparisons"]
    assert found["outcome"] == "slower"
    assert [len(found["before_runs"]), len(found["after_runs"])] == [2, 2]
    drawn = perfwrap("compare", ",".join(first), ",".join(second))
    assert max(len(line) for line in drawn.stdout.splitlines()) <= 80
    checked = perfwrap("check", second[0], "--baseline", ",".join([*first, str(made(seed=5))]))
    assert checked.returncode == 10


@pytest.mark.parametrize("names", ["{base},{base}", "{base},", "{base},gone"])
def test_a_run_that_is_named_twice_or_not_at_all_is_refused(folders: dict[str, str], names: str) -> None:
    ended = perfwrap("compare", names.format(**folders), folders["slow"])
    assert ended.returncode == 2
    assert ended.stderr.count("\n") >= 2
    assert "Traceback" not in ended.stderr


def test_a_baseline_file_of_a_machine_that_other_programs_used_is_read(
    folders: dict[str, str], tmp_path: Path
) -> None:
    document = json.loads(perfwrap("report", folders["base"], "--format", "json").stdout)
    programs = {"cores": 0.5, "of_cores": 2, "share": 0.2, "programs": [{"name": "cc", "share": 0.2}]}
    document["machine"] = {
        "cores_online": 2,
        "cores_busy": 1.5,
        "own_cores": 1.0,
        "stolen_cores": None,
        "switches_per_s": 3.0,
        "other_programs": programs,
    }
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps(document))
    ended = perfwrap("check", folders["same"], "--baseline", str(baseline), "--allow", "load")
    assert ended.returncode == 0, ended.stderr
    document["machine"]["cores_busy"] = "many"
    baseline.write_text(json.dumps(document))
    assert "is damaged" in perfwrap("check", folders["same"], "--baseline", str(baseline)).stderr
