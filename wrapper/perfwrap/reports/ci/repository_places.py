"""Where a finding is in a repository: a path relative to its root, and a line."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.rules.model import Finding
from perfwrap.timeline.notebook_cells import cell_number, without_cell

SCRIPTS = (".py", ".sh")
ROOTS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""Variables in which GitHub and GitLab name the root of the repository."""


class RepositoryPlace:
    """The place of a finding; ``line`` is None for a notebook and where only the program is known."""

    __slots__ = ("cell", "file", "function", "last_line", "line")

    def __init__(self, finding: Finding, diagnosis: Diagnosis, root: str) -> None:
        """Work out the place, relative to ``root`` if it is below it."""
        location = finding.location
        self.cell = None if location is None else cell_number(location.file)
        """The number of a notebook's cell; its lines are not lines of the notebook's file."""
        named = without_cell(location.file) if location is not None else program(diagnosis.run)
        known_line = location is not None and self.cell is None
        self.file = relative(named, root)
        """The file; empty if not even the program's script is known."""
        self.line = location.line if location is not None and known_line and location.line > 0 else None
        until = location.until_line if location is not None else None
        self.last_line = until if self.line is not None and until is not None and until > self.line else None
        """The last line of a range; None if it is one line or wraps around a loop."""
        self.function = "" if location is None else location.function

    def fingerprint(self, rule: str) -> str:
        """Return what identifies a finding over runs: rule, file, cell and function, but not the line."""
        words = (rule, self.file, str(self.cell or ""), self.function)
        return hashlib.sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()[:32]


def repository_root(run: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """Return the root of the repository as a CI service names it; without one, the folder of the run's command."""
    named = (variables.get(name) for name in ROOTS)
    return next((root for root in named if root), str(run.get("cwd") or ""))


def relative(file: str, root: str) -> str:
    """Return the path relative to the root if it is below it, without ``./`` at its beginning."""
    path = PurePath(file)
    if root and path.is_relative_to(root):
        path = path.relative_to(root)
    return str(path) if file else ""


def program(run: Mapping[str, Any]) -> str:
    """Return the script that a run's command names; empty if it names none."""
    words = [str(word) for word in run.get("command") or ()]
    script = next((word for word in words if word.endswith(SCRIPTS)), "")
    directory = str(run.get("cwd") or "")
    return str(Path(directory, script)) if script and directory else script
