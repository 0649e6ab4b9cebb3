"""The labelled GPU workloads, as recorded on one H200 on 2026-11-27: each has its planted problem at its line."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
RECORDINGS = sorted((REPOSITORY / "tests" / "samples" / "h200").glob("*.tar.xz"))


@pytest.fixture(scope="module")
def accuracy() -> Any:
    sys.path.insert(0, str(REPOSITORY / "scripts" / "accuracy"))
    try:
        return importlib.import_module("accuracy")
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
def test_the_planted_problem_is_found_at_its_line(accuracy: Any, recording: Path, tmp_path: Path) -> None:
    with tarfile.open(recording) as packed:
        # Python 3.11.3 and older have no filter.
        packed.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    name = recording.name.partition(".")[0]
    script = REPOSITORY / "scripts" / "gpu" / "workloads" / f"{name}.py"
    command = [sys.executable, "-m", "perfwrap", "report", str(tmp_path / name)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = accuracy._result(script, ended, tmp_path / name)
    assert found.good, (found.first, found.place, found.right_line)
    assert not found.alarms
    # A share of the loop: the findings about one part of it cannot add up to more than all of it.
    assert all(0 <= finding["share"] <= 1 for finding in found.findings)
