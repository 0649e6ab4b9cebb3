from __future__ import annotations

import io
import os
import pty

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.reports.terminal.page import Page
from perfwrap.shown_text import visible


def page(width: int = 40, encoding: str = "utf-8") -> Page:
    return Page(io.TextIOWrapper(io.BytesIO(), encoding=encoding), width)


@given(st.text())
def test_what_is_visible_steers_no_terminal(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert visible(shown) == shown


@given(st.text(), st.integers(20, 200), st.sampled_from(["utf-8", "ascii"]))
def test_any_text_can_be_shown_on_any_terminal(text: str, width: int, encoding: str) -> None:
    drawn = page(width, encoding)
    drawn.paragraph(text, indent=2, hanging="- ")
    drawn.line((text, "bold"))
    drawn.text().encode(encoding)


def test_a_wrapped_paragraph_hangs_under_its_first_word() -> None:
    drawn = page(25)
    drawn.paragraph("one two three four five six", hanging="Fix: ")
    assert drawn.text() == "Fix: one two three four\n     five six\n"


def test_a_bar_is_as_long_as_its_share() -> None:
    assert page().bar(0.5, 20) == "█" * 10
    assert page().bar(0.53, 20) == "█" * 10 + "▋"
    assert page(encoding="ascii").bar(0.53, 20) == "#" * 11


def test_a_reader_who_went_away_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as stream:
        drawn = Page(stream, 80)
        drawn.paragraph("nobody reads this")
        drawn.show()
        with pytest.raises(BrokenPipeError):
            stream.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("1", False)])
def test_a_terminal_gets_colour_unless_the_user_said_no(
    monkeypatch: pytest.MonkeyPatch, no_color: str | None, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    master, slave = pty.openpty()
    try:
        with os.fdopen(slave, "w") as stream:
            drawn = Page(stream, 80)
            drawn.line(("critical", "red"))
            assert ("\x1b[31m" in drawn.text()) is coloured
    finally:
        os.close(master)
