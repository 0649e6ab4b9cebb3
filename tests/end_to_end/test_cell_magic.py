"""``%%perfwrap`` in a real kernel: the cell computes the same, its report is shown, and torch is as before."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
pytest.importorskip("ipykernel", reason="needs ipykernel")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
nbformat = pytest.importorskip("nbformat", reason="needs nbformat")

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

SETUP = """
import gc, sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), index / 400.0)

torch.manual_seed(0)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
loader = DataLoader(Slow(), batch_size=4, shuffle=True)
"""
TRAIN = """for batch in loader:
    optimizer.zero_grad()
    loss = net(batch).square().mean()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
net.weight.sum().item()"""
STATE = """
def functions():
    found = {}
    for name, module in sorted(sys.modules.items()):
        if name == "torch" or name.startswith("torch."):
            for owner in [module, *(value for value in list(vars(module).values()) if isinstance(value, type))]:
                if not str(getattr(owner, "__module__", "torch")).startswith("torch") and owner is not module:
                    continue
                for key, value in list(vars(owner).items()):
                    inner = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
                    if isinstance(inner, type(functions)):
                        found[name, owner.__name__, key] = value, inner.__code__
    return found

def state():
    return functions(), dict(vars(torch.Tensor)), list(gc.callbacks)
"""
BEFORE = """
import torch._dynamo  # as the first step of an optimizer has it
net(torch.ones(1, 8)).sum().backward()
optimizer.step()
before = state()"""
AFTER = """after = state()
changed = [key for key, (value, code) in before[0].items()
           if after[0].get(key, (None, None))[0] is not value or after[0][key][1] is not code]
print(json.dumps([len(before[0]), changed, before[1] == after[1], before[2] == after[2], torch.rand(1).item()]))"""


def run_notebook(folder: Path, *cells: str, fails: bool = False) -> list[Any]:
    """Run the cells in a kernel of this environment; return their outputs, a list for each."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    folder.mkdir(exist_ok=True)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    (folder / "a.ipynb").write_text(nbformat.writes(notebook))
    os.environ["JPY_SESSION_NAME"] = str(folder / "a.ipynb")
    try:
        if fails:
            with pytest.raises(nbclient.exceptions.CellExecutionError):
                client.execute()
        else:
            client.execute()
    finally:
        del os.environ["JPY_SESSION_NAME"]
    return [cell.outputs for cell in notebook.cells]


def text_of(outputs: Any) -> str:
    """Return what a cell printed to standard output."""
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


@pytest.mark.timing
def test_a_cell_is_recorded_computes_the_same_and_leaves_torch_as_it_was(tmp_path: Path) -> None:
    marked = f"%%perfwrap --name first\n{TRAIN}"
    cells = (SETUP, STATE, "import json\n" + BEFORE)
    bare = run_notebook(tmp_path / "bare", *cells, TRAIN, AFTER, TRAIN)
    found = run_notebook(tmp_path / "work", "%load_ext perfwrap", *cells, marked, AFTER, TRAIN)
    ours, theirs = found[4], bare[3]
    assert text_of(ours) == text_of(theirs)
    results = [
        [each.data["text/plain"] for each in outputs if each.output_type == "execute_result"]
        for outputs in (ours, theirs)
    ]
    assert results[0] == results[1] != []
    assert text_of(found[6]) == text_of(bare[5]), "the training after the cell"

    number, changed, tensor, callbacks, random = json.loads(text_of(found[5]))
    assert number > 1_000
    assert (changed, tensor, callbacks) == ([], True, True)
    assert random == json.loads(text_of(bare[4]))[-1]

    (shown,) = (output for output in ours if output.output_type == "display_data")
    assert "<b>perfwrap</b>: Data-bound" in shown.data["text/html"]
    assert "data_loader_single_process" in shown.data["text/html"]
    assert "Data-bound" in shown.data["text/plain"]
    (folder,) = (tmp_path / "work" / "perfwrap-runs").glob("*-first")
    diagnosis = json.loads((folder / "diagnosis.json").read_text())
    assert diagnosis["steps"]["count"] == 100
    location = diagnosis["findings"][0]["location"]
    assert (location["cell"], location["line"]) == (5, 2)
    assert (folder / "report.html").is_file()


def test_a_cell_can_be_recorded_again_and_its_error_is_shown_once(tmp_path: Path) -> None:
    few = TRAIN.replace("for batch in loader:", "for batch in list(loader)[:30]:")
    found = run_notebook(
        tmp_path / "work",
        "%load_ext perfwrap",
        SETUP,
        f"%%perfwrap\n{few}",
        f"%%perfwrap --name again\n{few}\nraise KeyError('mine')",
        fails=True,
    )
    assert sum(output.output_type == "display_data" for output in found[2]) == 1
    errors = [output for output in found[3] if output.output_type == "error"]
    assert errors[-1].ename == "KeyError"
    printed = re.sub("\x1b\\[[0-9;]*m", "", "".join(line for error in errors for line in error.traceback))
    assert printed.count("raise KeyError('mine')") == 1
    assert "cell_magic.py" not in printed
    folders = sorted((tmp_path / "work" / "perfwrap-runs").glob("*-*-*"))
    assert [folder.name.split("-", 2)[2] for folder in folders] == ["cell", "again"]
    counts = [json.loads((folder / "diagnosis.json").read_text())["steps"]["count"] for folder in folders]
    assert counts == [30, 30]


def test_cells_with_other_magics_a_semicolon_or_await(tmp_path: Path) -> None:
    found = run_notebook(
        tmp_path / "work",
        "%load_ext perfwrap",
        "%%perfwrap\n%%capture held\nprint('kept')",
        "print(repr(held.stdout))",
        "%%perfwrap\n40 + 2;",
        "%%perfwrap\n40 + 2",
        "40 + 2",
        "%%perfwrap\nimport asyncio\nawait asyncio.sleep(0)",
        fails=True,
    )
    assert not [each for each in found[1] if each.output_type == "error"]
    assert text_of(found[2]) == "'kept\\n'\n"
    results = [sum(each.output_type == "execute_result" for each in outputs) for outputs in found[3:6]]
    assert results == [0, 1, 1]
    (error,) = [each for each in found[6] if each.output_type == "error"]
    assert "cannot record a cell with `await` outside of a function" in error.evalue


def test_a_cell_that_cannot_be_recorded_runs_and_that_is_said(tmp_path: Path) -> None:
    found = run_notebook(
        tmp_path / "work",
        "%load_ext perfwrap",
        SETUP + "torch.compile(net, backend='eager')(torch.ones(1, 8))",
        "%%perfwrap\nprint('ran')",
        "%unload_ext perfwrap",
    )
    assert text_of(found[2]) == "ran\n"
    complaint = "".join(output.text for output in found[2] if output.get("name") == "stderr")
    assert "this cell was not recorded: torch.compile has compiled parts of the program" in complaint
