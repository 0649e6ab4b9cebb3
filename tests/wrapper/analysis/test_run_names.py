from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfwrap.analysis import run_names
from perfwrap.commands import compared_runs
from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder

Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Make a run folder below perfwrap-runs of the current directory, each started later than the one before."""
    monkeypatch.chdir(tmp_path)
    count = 0

    def make(folder: str, **manifest: Any) -> Path:
        nonlocal count
        count += 1
        path = tmp_path / "perfwrap-runs" / folder
        path.mkdir(parents=True)
        start = {"monotonic_ns": count, "wall_ns": count}
        RunFolder(path).write_manifest({"command": ["python"], "start": start, **manifest})
        return path

    return make


def same(found: Path, wanted: Path) -> bool:
    return found.resolve() == wanted.resolve()


def test_a_run_is_found_by_its_folder_its_name_and_a_part_of_it(made: Made) -> None:
    first, second = made("20260101-train"), made("20260102-other", name="with workers")
    assert same(run_names.find("perfwrap-runs/20260101-train"), first)
    assert same(run_names.find("20260101-train"), first)
    assert same(run_names.find("train"), first)
    assert same(run_names.find("with workers"), second)
    assert same(run_names.find("latest"), second)


def test_the_last_of_several_runs_with_one_name_counts(made: Made) -> None:
    made("20260101-a", name="baseline")
    last = made("20260102-b", name="baseline")
    assert same(run_names.find("baseline"), last)


def test_a_name_wins_over_a_part_of_another(made: Made) -> None:
    made("20260101-slow-2")
    named = made("20260102-x", name="slow")
    assert same(run_names.find("slow"), named)


def test_one_run_of_several_below_a_folder_is_found(made: Made) -> None:
    made("20260101-demo/fixed")
    slow = made("20260101-demo/slow")
    assert same(run_names.find("demo/slow"), slow)


def test_a_name_that_may_mean_several_runs_is_refused_with_their_names(made: Made) -> None:
    for day in range(1, 9):
        made(f"2026010{day}-train")
    with pytest.raises(PerfwrapError) as raised:
        run_names.find("train")
    assert "matches 8 runs" in raised.value.message
    assert "20260108-train" in raised.value.message
    assert "perfwrap list" in raised.value.hint


@pytest.mark.parametrize("name", ["nothing", "latest", ""])
def test_what_means_no_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PerfwrapError) as raised:
        run_names.find(name)
    assert raised.value.hint


def test_the_shell_is_offered_names_and_folders(made: Made) -> None:
    made("20260101-train", name="tuned")
    assert run_names.complete("t") == ["tuned"]
    assert run_names.complete("2026") == ["20260101-train"]
    assert "latest" in run_names.complete("")
    assert run_names.complete("latest,t") == ["latest,tuned"]


def test_a_diagnosis_represents_its_run(recorded_document: Any, tmp_path: Path) -> None:
    document = recorded_document()
    path = tmp_path / "main.json"
    path.write_text(json.dumps(document))
    assert compared_runs.document(str(path)) == ("main", document)


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"format": 1}', '{"format": 99, "verdict": {}}', '{"format": 1, "verdict": {}, "steps": {}}'],
)
def test_a_file_that_is_no_such_diagnosis_is_refused_with_a_hint(tmp_path: Path, content: str) -> None:
    path = tmp_path / "diagnosis.json"
    path.write_text(content)
    with pytest.raises(PerfwrapError) as raised:
        compared_runs.document(str(path))
    assert raised.value.hint
