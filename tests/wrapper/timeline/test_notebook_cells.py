"""The words for lines of files and of notebook cells."""

from __future__ import annotations

import pytest
from perfwrap.rules.model import Location
from perfwrap.timeline.notebook_cells import at_line, cell_name, cell_number, frame_in_words, without_cell


@pytest.mark.parametrize(
    ("file", "words", "number", "notebook"),
    [
        ("train.py", "train.py:2", None, "train.py"),
        ("/a b/x, y.ipynb, cell [31]", "/a b/x, y.ipynb, cell [31], line 2", 31, "/a b/x, y.ipynb"),
        ("cell [3]", "cell [3], line 2", 3, "cell [3]"),
        ("cell [3].py", "cell [3].py:2", None, "cell [3].py"),
    ],
)
def test_a_cell_has_a_line_in_words(file: str, words: str, number: int | None, notebook: str) -> None:
    assert (at_line(file, 2), cell_number(file), without_cell(file)) == (words, number, notebook)


def test_a_location_in_a_cell_is_short() -> None:
    assert str(Location(cell_name("/work/a.ipynb", 3), 2)) == "a.ipynb, cell [3], line 2"
    assert str(Location(cell_name("", 3), 2)) == "cell [3], line 2"


def test_a_frame_in_a_cell_has_a_line_in_words() -> None:
    assert frame_in_words("step (/w/a.ipynb, cell [3]:2)") == "step (/w/a.ipynb, cell [3], line 2)"
    assert frame_in_words("step (/w/train.py:2)") == "step (/w/train.py:2)"
