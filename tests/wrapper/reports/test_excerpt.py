from __future__ import annotations

import os
from pathlib import Path

import pytest
from perfwrap.reports.excerpt import MAX_LINES, read_excerpt
from perfwrap.rules.model import Location


def read(path: Path, line: int, until: int | None = None) -> tuple[tuple[int, str], ...] | None:
    found = read_excerpt(Location(str(path), line, "", until), {"cwd": "."})
    return found and found.lines


def test_the_named_lines_lose_the_indentation_that_they_share(script: Path) -> None:
    assert read(script, 10, 11) == ((10, "for row in output.tolist():"), (11, "    history.append(max(row))"))


def test_a_relative_path_is_relative_to_where_the_command_was_started(script: Path) -> None:
    found = read_excerpt(Location("train.py", 1), {"cwd": str(script.parent)})
    assert found is not None
    assert found.lines == ((1, "import torch"),)


def test_a_line_represents_its_whole_statement(tmp_path: Path) -> None:
    path = tmp_path / "wide.py"
    path.write_text("loader = DataLoader(\n    data,\n    batch_size=8,\n)\nfor x in loader:\n    pass\n")
    assert read(path, 1) == (
        (1, "loader = DataLoader("),
        (2, "    data,"),
        (3, "    batch_size=8,"),
        (4, ")"),
    )
    assert read(path, 5) == ((5, "for x in loader:"),)


def test_of_a_long_stretch_some_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("x = 1\n" * 40, encoding="utf-8")
    found = read_excerpt(Location(str(path), 2, "", 31), {})
    assert found is not None
    assert (len(found.lines), found.left_out) == (MAX_LINES, 30 - MAX_LINES)


def test_a_stretch_round_a_loop_ends_at_the_loops_end_and_goes_on_at_its_head(script: Path) -> None:
    found = read(script, 9, 7)
    assert found is not None
    assert [number for number, _ in found] == [9, 10, 11, 5, 6, 7]


def test_a_program_that_python_cannot_parse_shows_the_first_line_only(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text("while 1:\n    a = 1\n    print 'two'\n", encoding="utf-8")
    assert read(path, 3, 2) == ((3, "print 'two'"),)


@pytest.mark.parametrize("line", [99, 0, -3])
def test_a_line_that_the_file_does_not_have_is_not_shown(script: Path, line: int) -> None:
    assert read(script, line) is None


def test_what_is_no_ordinary_file_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    assert read(pipe, 1) is None
    assert read(tmp_path, 1) is None
    assert read(tmp_path / "gone.py", 1) is None
    assert read(Path("nul\0l.py"), 1) is None


def test_bytes_that_are_no_text_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"name = '\xe9'\n")
    assert read(path, 1) == ((1, "name = '\ufffd'"),)
