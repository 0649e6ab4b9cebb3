"""`perfwrap fix` on real programs: it writes a patch only for a proven gain with proven results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]

PROGRAM = """import sys, time
import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep({pause})
        return torch.full((16,), index / 4000.0){noise}


def main():
    open("metrics.csv", "w").close()
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loader = DataLoader(Slow(), batch_size=4, shuffle=True)
    while True:
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)


if __name__ == "__main__":
    main()
"""


def program(folder: Path, pause: float, noise: str = "") -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM.format(pause=pause, noise=noise))
    return folder


def fixed(
    folder: Path, *words: str, command: tuple[str, ...] = ("train.py",)
) -> tuple[subprocess.CompletedProcess[str], Path, dict[str, Any]]:
    """Run ``perfwrap fix`` in a folder, its own files beside it."""
    pytest.importorskip("torch")
    out = folder.parent / f"{folder.name}-out"
    options = ["--steps", "25", "--repeats", "2", "--out", str(out), *words]
    done = subprocess.run(
        [sys.executable, "-m", "perfwrap", "fix", *options, "--", sys.executable, *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
        capture_output=True,
        text=True,
    )
    document = out / "fix.json"
    return done, out, json.loads(document.read_text()) if document.exists() else {}


@pytest.mark.timing
def test_a_gain_becomes_a_patch_that_applies_and_no_file_is_touched(tmp_path: Path) -> None:
    folder = program(tmp_path / "work", 0.01, " + torch.rand(16)")
    before = (folder / "train.py").stat()
    done, out, document = fixed(folder)
    assert done.returncode == 0, done.stderr + done.stdout
    (row,) = [row for row in document["edits"] if row["state"] == "kept"]
    assert (row["rule"], row["edit"], row["equality"]) == (
        "data_loader_single_process",
        "loader_options",
        "other random numbers",
    )
    assert document["total"]["high"] < 0.9
    assert "num_workers=" in document["patch"]
    assert (folder / "train.py").stat().st_mtime_ns == before.st_mtime_ns
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.csv", "train.py"]
    assert document["written"] == ["metrics.csv"]
    printed = " ".join(done.stdout.split())
    assert "The program wrote or removed files in its working folder: metrics.csv." in printed
    assert "Your files were not changed" in done.stdout
    assert "num_workers=" in (out / "pull-request.md").read_text()
    for command in (["git", "apply"], ["patch", "-p1", "-i"]):
        copy = tmp_path / command[0]
        copy.mkdir()
        (copy / "train.py").write_bytes((folder / "train.py").read_bytes())
        subprocess.run([*command, str(out / "perfwrap.patch")], cwd=copy, check=True, capture_output=True)
        assert "num_workers=" in (copy / "train.py").read_text()


@pytest.mark.timing
def test_a_notebook_that_papermill_runs_gets_a_patch_of_its_cell(tmp_path: Path) -> None:
    for needed in ("papermill", "ipykernel"):
        pytest.importorskip(needed, reason=f"needs {needed} in the environment of the tests")
    folder = tmp_path / "work"
    folder.mkdir()
    text = PROGRAM.format(pause=0.01, noise="")
    head, _, main = text.partition("def main():")
    cells = [head.strip(), "def main():" + main.partition("if __name__")[0].rstrip()]
    entries = [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": cell.splitlines(True),
        }
        for cell in [*cells, "main()"]
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": entries, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}
    (folder / "a.ipynb").write_text(json.dumps(content, indent=1) + "\n")
    before = (folder / "a.ipynb").read_bytes()
    done, out, document = fixed(folder, command=("-m", "papermill", "a.ipynb", str(tmp_path / "b.ipynb")))
    assert done.returncode == 0, done.stderr + done.stdout
    (row,) = [row for row in document["edits"] if row["state"] == "kept"]
    assert row["file"] == f"{folder}/a.ipynb, cell [2]"
    assert (folder / "a.ipynb").read_bytes() == before
    subprocess.run(["git", "apply", str(out / "perfwrap.patch")], cwd=folder, check=True, capture_output=True)
    edited = json.loads((folder / "a.ipynb").read_text())
    assert "num_workers=" in "".join(edited["cells"][1]["source"])
    assert [edited["cells"][0], edited["cells"][2]] == [entries[0], entries[2]]


@pytest.mark.timing
def test_a_program_with_nothing_to_gain_gets_no_patch(tmp_path: Path) -> None:
    done, out, document = fixed(program(tmp_path / "work", 0.0))
    assert done.returncode == 1, done.stdout
    assert document["patch"] == ""
    assert document["total"] is None
    assert not (out / "perfwrap.patch").exists()
    assert "there is no patch" in " ".join(done.stdout.split()).lower()


@pytest.mark.timing
def test_a_list_proves_nothing_and_a_dirty_work_tree_is_not_patched(tmp_path: Path) -> None:
    folder = program(tmp_path / "work", 0.01)
    done, out, document = fixed(folder, "--list")
    assert done.returncode == 0, done.stderr
    assert "1. Add num_workers=" in done.stdout
    assert document == {}
    ran = {each.name for each in out.iterdir()}
    assert ran - {"sample-01"} == {"01-baseline"}, "no edited program ran"


def test_a_program_that_reads_what_it_saves_is_told_the_option(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text('import torch\ntorch.save({}, "a.pt")\ntorch.load("a.pt")\n')
    done, _, document = fixed(folder)
    assert done.returncode == 2 and not document
    assert "--allow-writes" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "No command was given"),
        (("--only", "slow_optimiser", "--", sys.executable, "train.py"), "there is no rule 'slow_optimiser'"),
        (("--", "no-such-program"), "command 'no-such-program' was not found"),
    ],
)
def test_what_cannot_be_fixed_is_said_before_anything_runs(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "perfwrap", "fix", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
    assert not list(tmp_path.iterdir())
