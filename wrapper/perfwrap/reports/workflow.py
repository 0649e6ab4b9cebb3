"""GitHub's workflow commands: annotations beside the lines of a pull request, and the summary of a job.

Format: docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands. GitHub shows about ten annotations
of each level for a step; the most expensive come first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePath

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.private_files import why_not, write_plain
from perfwrap.rules.model import Finding
from perfwrap.shown_text import say, visible
from perfwrap.timeline.notebook_cells import cell_number, without_cell

MAX_ANNOTATIONS = 10


def annotated(diagnosis: Diagnosis, root: str | None = None) -> str:
    """Return one line for the verdict and one for each finding; paths are relative to ``root``."""
    below = root if root is not None else str(diagnosis.run.get("cwd") or "")
    wasteful = [finding for finding in diagnosis.findings if not finding.informational]
    lines = [command("notice", diagnosis.verdict.sentence, {"title": "perfwrap"})]
    lines += [_annotation(finding, below) for finding in wasteful[:MAX_ANNOTATIONS]]
    return "".join(line + "\n" for line in lines)


def command(kind: str, message: str, properties: Mapping[str, str]) -> str:
    """Return a workflow command, escaped as GitHub's own toolkit does it (toolkit/packages/core/src/command.ts)."""
    joined = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    return f"::{kind} {joined}::{_message(message)}" if joined else f"::{kind}::{_message(message)}"


def append_summary(markdown: str, variables: Mapping[str, str] = os.environ) -> bool:
    """Append to the job's summary, where GitHub named one; return whether it did.

    If that file cannot be written, print a message only: the result of a check must not be lost.
    """
    path = variables.get("GITHUB_STEP_SUMMARY")
    if not path:
        return False
    try:
        write_plain(Path(path), markdown, append=True)
    except OSError as error:
        say(f"perfwrap: cannot write the job summary {path}: {why_not(error)}")
        return False
    return True


def _annotation(finding: Finding, root: str) -> str:
    """Return the annotation of one finding; a note is a notice, all others are warnings."""
    place = finding.location
    cell = None if place is None else cell_number(place.file)
    where = {} if place is None else {"file": _relative(without_cell(place.file), root)}
    if place is not None and cell is None:  # The line of a cell is not a line of the notebook's file.
        where["line"] = str(place.line)
    if cell is None and place is not None and place.until_line is not None and place.until_line > place.line:
        where["endLine"] = str(place.until_line)
    kind = "notice" if finding.severity == "note" else "warning"
    message = f"{finding.sentence} Fix: {finding.advice}"
    return command(kind, message, {**where, "title": f"perfwrap: {finding.rule}"})


def _relative(file: str, root: str) -> str:
    """Return the path relative to the repository, if it is below it."""
    path = PurePath(file)
    return str(path.relative_to(root)) if root and path.is_relative_to(root) else file


def _message(text: str) -> str:
    """Return the text of a command, escaped; control characters other than new lines are made visible."""
    lines = "\n".join("\r".join(map(visible, line.split("\r"))) for line in text.split("\n"))
    return lines.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return the value of a property, escaped."""
    return _message(text).replace(":", "%3A").replace(",", "%2C")
