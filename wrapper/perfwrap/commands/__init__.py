"""The commands, in the order shown to the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfwrap.commands import (
    attach,
    check,
    clean,
    compare,
    demo,
    doctor,
    explain,
    export,
    import_,
    list_,
    merge,
    open_,
    report,
    run,
    top,
    try_,
)

PASS_THROUGH = {"allow_interspersed_args": False}
"""For commands that take somebody else's: what stands behind its first word is its own."""

COMMANDS: tuple[tuple[str, Callable[..., Any], dict[str, Any]], ...] = (
    ("run", run.run, PASS_THROUGH),
    ("try", try_.try_, PASS_THROUGH),
    ("top", top.top, {}),
    ("attach", attach.attach, {}),
    ("report", report.report, {}),
    ("compare", compare.compare, {}),
    ("check", check.check, {}),
    ("export", export.export, {}),
    ("open", open_.open_, {}),
    ("list", list_.list_, {}),
    ("clean", clean.clean, {}),
    ("merge", merge.merge, {}),
    ("import", import_.import_, {}),
    ("explain", explain.explain, {}),
    ("doctor", doctor.doctor, PASS_THROUGH),
    ("demo", demo.demo, {}),
)
"""Name, function, typer context settings."""
