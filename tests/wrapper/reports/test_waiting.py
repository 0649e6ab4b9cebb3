from __future__ import annotations

import io

import pytest
from perfwrap.reports import waiting
from perfwrap.reports.waiting import Waiting
from rich.console import Console


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=80)


def test_a_long_wait_shows_a_bar_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.0)
    screen = console(terminal=True)
    with Waiting("Reading runs", 2, screen) as wait:
        wait._timer.join(60)
        wait.advance()
    written = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "Reading runs" in written
    assert "\x1b[2K" in written  # the line is cleared


def test_a_short_wait_shows_nothing() -> None:
    screen = console(terminal=True)
    with Waiting("Reading", console=screen) as wait:
        wait.advance()
    assert screen.file.getvalue() == ""  # type: ignore[attr-defined]
    assert not wait._timer.is_alive() or wait._timer.finished.is_set()


def test_without_a_terminal_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.0)
    screen = console(terminal=False)
    with Waiting("Reading", console=screen) as wait:
        assert not wait._timer.is_alive()
    assert screen.file.getvalue() == ""  # type: ignore[attr-defined]
