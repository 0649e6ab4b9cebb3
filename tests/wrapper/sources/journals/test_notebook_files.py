"""Code of notebook cells gets the name of its notebook and cell, and its text."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.reports import json as json_report
from perfwrap.reports import workflow
from perfwrap.reports.html.summary import findings
from perfwrap.reports.terminal import run_text
from perfwrap.reports.terminal.page import Page
from perfwrap.sources.journals.notebook_files import murmur2

MS = 1_000_000
LOADER = "loader = DataLoader(\n    Digits(),\n)"
STEP = "\n\ndef step(x):\n    model(x).backward()\n"
HASHES = {LOADER: 826202509, STEP: 3626344692}
"""As ipykernel 7.4.0 computes them."""


def write_notebook(path: Path, *sources: object) -> None:
    code = [{"cell_type": "code", "source": source, "execution_count": 99} for source in sources]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "# Title"}, *code]}))


def file_of(text: str, pid: int = 100) -> str:
    """Return the name that ipykernel gives to the code of a cell."""
    return f"/tmp/ipykernel_{pid}/{murmur2(text.encode())}.py"


def train(run: Any, loader: str, step: str, directory: Path, *command: str, **facts: object) -> None:
    """Write a training that waits for the loader made by one cell, in the step of another."""
    run.folder.write_manifest({"command": list(command), "cwd": str(directory)})
    created = f"{loader}\x1f1\x1f<module>"
    journal = run.journal(
        **{"loader/1/num_workers": 0, "loader/1/batch_size": 32, "loader/1/created": created}, **facts
    )
    for _ in range(40):
        journal.data(30 * MS, line=f"{step}:2:step")
        journal.forward(4 * MS, line=f"{step}:2:step")
        journal.backward(4 * MS, line=f"{step}:2:step")
        journal.optimizer(2 * MS)


def files(run: Any) -> set[str]:
    return set(run.read().spans["file"].drop_nulls())


def test_the_hash_is_that_of_ipykernel() -> None:
    assert {text: murmur2(text.encode()) for text in HASHES} == HASHES
    assert murmur2(b"") == 3990065800


def test_cells_are_named_by_notebook_and_execution_number(run: Any, tmp_path: Path) -> None:
    write_notebook(tmp_path / "a.ipynb", "import torch", "", LOADER, STEP.splitlines(keepends=True))
    numbers = {f"cell/{file_of(LOADER)}": 7, f"cell/{file_of(STEP)}": 5}
    train(run, file_of(LOADER), file_of(STEP), tmp_path, "papermill", "a.ipynb", "b.ipynb", **numbers)
    timeline = run.read()
    assert set(timeline.spans["file"].drop_nulls()) == {f"{tmp_path}/a.ipynb, cell [5]"}
    assert timeline.run["cells"] == {
        f"{tmp_path}/a.ipynb, cell [7]": LOADER,
        f"{tmp_path}/a.ipynb, cell [5]": STEP.strip("\n"),  # as IPython runs it
    }
    assert not [key for key in timeline.facts["key"] if key.startswith("cell/")]
    assert "ipykernel" not in "".join(timeline.facts["value"].drop_nulls())


def test_every_report_shows_a_line_of_a_cell(run: Any, tmp_path: Path) -> None:
    write_notebook(tmp_path / "a.ipynb", LOADER, STEP)
    train(run, file_of(LOADER), file_of(STEP), tmp_path, "jupyter", "nbconvert", "--execute", "a.ipynb")
    diagnosis = diagnose(run.read())
    assert diagnosis.findings[0].rule == "data_loader_single_process"
    assert "the DataLoader at a.ipynb, cell [1], line 1" in diagnosis.verdict.sentence
    document = json.loads(json_report.text(diagnosis))
    assert document["findings"][0]["location"] == {"file": f"{tmp_path}/a.ipynb", "cell": 1, "line": 1}
    place = findings(diagnosis)[0]["place"]
    assert place["at"] == "a.ipynb, cell [1], line 1"
    assert [text for _, text, _ in place["lines"]] == LOADER.splitlines()
    stream = io.StringIO()
    page = Page(stream, 80)
    run_text.draw(diagnosis, tmp_path, page)
    assert (
        "   a.ipynb, cell [1], line 1\n     1 │ loader = DataLoader(\n     2 │     Digits(),\n" in page.text()
    )
    assert "file=a.ipynb,title" in workflow.annotated(diagnosis)
    assert "ipykernel" not in page.text() + json.dumps(document)


def test_without_numbers_of_the_recorder_a_cell_has_its_place(run: Any, tmp_path: Path) -> None:
    write_notebook(tmp_path / "a.ipynb", "import torch", " \n", STEP)
    train(run, file_of(STEP), file_of(STEP), tmp_path, "jupyter", "execute", "a.ipynb")
    assert files(run) == {f"{tmp_path}/a.ipynb, cell [2]"}


def test_of_several_notebooks_the_one_with_the_text_is_named(run: Any, tmp_path: Path) -> None:
    write_notebook(tmp_path / "a.ipynb", LOADER)
    write_notebook(tmp_path / "b.ipynb", LOADER, STEP)
    train(run, file_of(LOADER), file_of(STEP), tmp_path, "jupyter", "execute", "a.ipynb", "--to=b.ipynb")
    timeline = run.read()
    assert set(timeline.spans["file"].drop_nulls()) == {f"{tmp_path}/b.ipynb, cell [2]"}
    assert set(timeline.run["cells"]) == {f"{tmp_path}/a.ipynb, cell [1]", f"{tmp_path}/b.ipynb, cell [2]"}


def test_the_notebook_may_be_known_from_the_kernel_only(run: Any, tmp_path: Path) -> None:
    write_notebook(tmp_path / "a.ipynb", STEP)
    kernel = ("python", "-m", "ipykernel_launcher")
    train(run, file_of(STEP), file_of(STEP), tmp_path, *kernel, notebook=str(tmp_path / "a.ipynb"))
    assert files(run) == {f"{tmp_path}/a.ipynb, cell [1]"}


@pytest.mark.parametrize(
    ("content", "command", "shown"),
    [
        (None, ("jupyter", "execute", "a.ipynb"), "{}/a.ipynb, cell [4]"),
        ("not json", ("jupyter", "execute", "a.ipynb"), "{}/a.ipynb, cell [4]"),
        ('{"cells": [3, {"cell_type": "code"}]}', ("jupyter", "execute", "a.ipynb"), "{}/a.ipynb, cell [4]"),
        (None, ("jupyter", "lab"), "cell [4]"),
    ],
)
def test_of_an_unreadable_or_unknown_notebook_the_numbers_are_shown(
    run: Any, tmp_path: Path, content: str | None, command: tuple[str, ...], shown: str
) -> None:
    if content is not None:
        (tmp_path / "a.ipynb").write_text(content)
    train(run, file_of(STEP), file_of(STEP), tmp_path, *command, **{f"cell/{file_of(STEP)}": 4})
    timeline = run.read()
    assert set(timeline.spans["file"].drop_nulls()) == {shown.format(tmp_path)}
    assert timeline.run["cells"] == {}


def test_a_cell_of_which_nothing_is_known_keeps_its_name(run: Any, tmp_path: Path) -> None:
    train(run, file_of(STEP), file_of(STEP), tmp_path, "jupyter", "lab")
    assert files(run) == {file_of(STEP)}


def test_an_input_of_ipython_has_its_number_in_its_name(run: Any, tmp_path: Path) -> None:
    text = "step(x)"
    write_notebook(tmp_path / "a.ipynb", text)
    name = f"<ipython-input-6-{hashlib.sha1((text + chr(10)).encode()).hexdigest()[:12]}>"
    train(run, name, name, tmp_path, "jupyter", "execute", "a.ipynb")
    timeline = run.read()
    assert set(timeline.spans["file"].drop_nulls()) == {f"{tmp_path}/a.ipynb, cell [6]"}
    assert timeline.run["cells"] == {f"{tmp_path}/a.ipynb, cell [6]": text}


def test_names_that_py_spy_shortened_belong_to_the_same_cell(run: Any, tmp_path: Path) -> None:
    write_notebook(tmp_path / "a.ipynb", STEP)
    short = file_of(STEP).removeprefix("/tmp/")
    numbers = {f"cell/{file_of(STEP)}": 4}
    train(run, file_of(STEP), short, tmp_path, "jupyter", "execute", "a.ipynb", **numbers)
    assert files(run) == {f"{tmp_path}/a.ipynb, cell [4]"}
