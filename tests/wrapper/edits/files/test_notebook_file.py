from __future__ import annotations

import json
from pathlib import Path

import pytest
from perfwrap.edits.files.edited_text import with_edit
from perfwrap.edits.files.notebook_file import NotebookFile
from perfwrap.edits.files.source_reader import read_source
from perfwrap.edits.outcome import Refusal, Target

CELLS = [
    "%matplotlib inline\nimport torch\nfrom torch.utils.data import DataLoader\n!ls 'a' \"b\"",
    "",
    "%%bash\necho not Python (",
    "\n\nif True:\n    %time x = 1\nloader = DataLoader([1, 2])  # é\n",
    "for batch in loader:\n    pass",
]


def notebook(
    path: Path, cells: list[str], as_list: bool = True, indent: int = 1, ascii: bool = False
) -> NotebookFile:
    """Write a notebook as Jupyter does, and read it for an edit."""
    entries: list[dict[str, object]] = [{"cell_type": "markdown", "metadata": {}, "source": ["# A title"]}]
    for text in cells:
        source = text.splitlines(keepends=True) if as_list else text
        output = {"name": "stdout", "output_type": "stream", "text": ["loader = DataLoader([1, 2])\n"]}
        entries.append(
            {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [output], "source": source}
        )
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": entries, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content, indent=indent, ensure_ascii=ascii) + "\n", encoding="utf-8")
    found = read_source(path)
    assert isinstance(found, NotebookFile)
    return found


@pytest.mark.parametrize(
    ("as_list", "indent", "ascii"), [(True, 1, False), (False, 2, True), (True, 4, False)]
)
def test_only_the_lines_of_the_cell_change(as_list: bool, indent: int, ascii: bool, tmp_path: Path) -> None:
    file = notebook(tmp_path / "a.ipynb", CELLS, as_list, indent, ascii)
    line = file.line_in_text("if True:\n    %time x = 1\nloader = DataLoader([1, 2])  # é", 3)
    assert file.text.splitlines()[line - 1] == "loader = DataLoader([1, 2])  # é"
    assert file.place(line) == (3, 3)
    text = with_edit(file.text, file.text, "loader_options", Target(line, {"num_workers": 2}))
    expected = [cell.replace("DataLoader([1, 2])", "DataLoader([1, 2], num_workers=2)") for cell in CELLS]
    assert file.encoded(text) == notebook(tmp_path / "b.ipynb", expected, as_list, indent, ascii).content
    assert file.encoded(file.text) == file.content
    assert file.in_words(f"The DataLoader at line {line}.") == "The DataLoader at cell [3], line 3."
    assert "%%bash\necho not Python (\n# cell [3]\n" in file.shown_text


def test_a_cell_is_found_by_its_text_only(tmp_path: Path) -> None:
    file = notebook(tmp_path / "a.ipynb", ["x = 1", "x = 1\ny = 2", "z = 3", "z = 3"])
    assert file.place(file.line_in_text("x = 1", 1)) == (1, 1)
    assert file.place(file.line_in_text("x = 1\ny = 2", 2)) == (2, 2)
    for text in ("y = 2", "z = 3", "w = 4"):
        with pytest.raises(Refusal, match="does not have the cell"):
            file.line_in_text(text, 1)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"nbformat": 4', '"nbformat": 3', "no notebook of version 4"),
        ('"language": "python"', '"language": "R"', "a notebook in R"),
        ("{", "{ ", "not written as Jupyter writes it"),
        ("{", "[", "no notebook"),
    ],
)
def test_other_files_are_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    notebook(path, CELLS)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(Refusal, match=said):
        read_source(path)


def test_code_that_would_leave_its_cell_is_refused(tmp_path: Path) -> None:
    file = notebook(tmp_path / "a.ipynb", ["x = 1", "y = 2"])
    with pytest.raises(Refusal, match="before the first cell"):
        file.encoded("import gc\n" + file.text)
    with pytest.raises(Refusal, match="another cell"):
        file.encoded(file.text.replace("__perfwrap_cell__ = 2\n", ""))
