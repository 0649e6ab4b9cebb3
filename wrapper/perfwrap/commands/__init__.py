"""The commands, in the order shown to the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfwrap.commands import demo, doctor, explain, report, run

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""For commands that take somebody else's command line."""

COMMANDS: tuple[tuple[str, Callable[..., Any], dict[str, Any]], ...] = (
    ("run", run.run, run.SETTINGS),
    ("report", report.report, {}),
    ("explain", explain.explain, {}),
    ("doctor", doctor.doctor, doctor.SETTINGS),
    ("demo", demo.demo, {}),
)
"""Name, function, typer context settings."""
