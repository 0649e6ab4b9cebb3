"""Notebooks that real tools execute under ``perfwrap run`` have locations by cell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

CELLS = (
    "import torch",
    "",
    "model = torch.nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "for _ in range(60):\n    optimizer.zero_grad()\n    model(torch.ones(8, 4)).sum().backward()\n"
    "    optimizer.step()\n    [str(number) for number in range(40_000)]",
)
COMMANDS = {
    "nbclient": ("-c", "from nbclient.cli import main; main()", "a.ipynb"),
    "nbconvert": ("-m", "nbconvert", "--to", "notebook", "--execute", "a.ipynb", "--output", "b.ipynb"),
    "papermill": ("-m", "papermill", "a.ipynb", "b.ipynb"),
}


@pytest.mark.parametrize("tool", COMMANDS)
def test_a_location_in_a_notebook_has_its_cell_and_line(tool: str, tmp_path: Path) -> None:
    for needed in ("torch", "ipykernel", tool):
        pytest.importorskip(needed, reason=f"needs {needed} in the environment of the tests")
    code = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
        for text in CELLS
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": code, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    options = ["--no-py-spy", "--no-report", "--out", str(tmp_path / "run")]
    command = [sys.executable, *COMMANDS[tool]]
    done = subprocess.run(
        [sys.executable, "-m", "perfwrap", "run", *options, "--", *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    timeline = run_journals.read(RunFolder(tmp_path / "run"))
    cell = f"{tmp_path}/a.ipynb, cell [3]"
    spans = timeline.spans.filter(pl.col("operation").is_in(["zero_grad", "backward"]))
    assert set(spans.select("operation", "file", "line").iter_rows()) == {
        ("zero_grad", cell, 2),
        ("backward", cell, 3),
    }
    assert timeline.run["cells"][cell] == CELLS[-1]
