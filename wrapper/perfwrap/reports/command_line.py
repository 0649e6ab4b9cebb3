"""Command lines that a report shows: what was run, and what to run next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

PLACEHOLDER = "YOUR_COMMAND"
"""Stands for the training command where it is unknown or too long."""
PRESETS = ("three-run",)
"""Experiments that `perfwrap try` takes as --preset."""
SEARCHES = ("find-batch-size",)
"""Experiments that are options of `perfwrap try`."""
ABOUT_WRITES = ("no-checkpoint",)
"""Experiments that need a program whose writes are allowed: otherwise no run of it saves anything."""


def as_typed(words: Sequence[str]) -> str:
    """Return a command as a user types it, with the program's name instead of its path."""
    return shlex.join([PurePath(words[0]).name, *words[1:]]) if words else ""


def training_command(run: Mapping[str, Any]) -> str:
    """Return the training command of a run; a placeholder for files of other tools and for a job that was attached."""
    words = [str(word) for word in run.get("command") or ()]
    return PLACEHOLDER if "imported" in run or run.get("attached") or not words else as_typed(words)


def proof(experiment: str | None) -> str:
    """Return the beginning of the command that measures an experiment of a finding; empty if there is none."""
    if not experiment:
        return ""
    if experiment in SEARCHES:
        return f"perfwrap try --{experiment}"
    preset = "--preset " if experiment in PRESETS else ""
    writes = " --allow-writes" if experiment in ABOUT_WRITES else ""
    return f"perfwrap try {preset}{experiment}{writes}"
