"""``perfwrap run --sample`` finds the line of the program's own Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.rules.needs import why_missing
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

PROGRAM = """
import time
import torch

def between():
    until = time.monotonic() + 0.7
    while time.monotonic() < until:
        sum(range(1000))  # HERE

torch.nn.Linear(1, 1)(torch.ones(1))
between()
print("done")
"""


@pytest.mark.timing
@pytest.mark.parametrize("hertz", ["50", "0"])
def test_the_line_between_the_phases_is_in_the_timeline(tmp_path: Path, hertz: str) -> None:
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    words = ["run", "--sample", hertz, "--no-report", "--no-monitors", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-m", "perfwrap", *words, "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
    timeline = run_journals.read(RunFolder(tmp_path / "run"))
    why = Evidence(timeline).get(why_missing, "stacks")
    if hertz == "0":
        assert timeline.stacks.is_empty()
        assert "--sample" in str(why)
        return
    assert why is None
    (line,) = (number for number, text in enumerate(PROGRAM.splitlines(), 1) if "HERE" in text)
    found = timeline.stacks.filter(pl.col("function") == "between")
    assert found["weight"].sum() >= 3
    assert found["line"].is_between(line - 1, line).all()
    assert set(found["operation"]) == {None}
    assert set(found["file"]) == {str(script)}
    threads = timeline.tracks.filter(pl.col("kind") == "thread")["id"]
    assert set(found["track"]) <= set(threads)
