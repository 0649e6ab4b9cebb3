"""A diagnosis as GitLab's code quality report, which merge requests show beside the changed lines.

Format: docs.gitlab.com/ci/testing/code_quality, "Code quality report format".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports.ci.repository_places import RepositoryPlace, repository_root
from perfwrap.reports.gain import expected
from perfwrap.reports.json import dumped
from perfwrap.rules.model import Finding

SEVERITIES = {"critical": "critical", "major": "major", "minor": "minor", "note": "info"}
"""GitLab's word for each severity."""
UNKNOWN_FILE = "."
"""The place of a finding if not even the program's script is known: GitLab requires one."""


def text(diagnosis: Diagnosis, variables: Mapping[str, str] = os.environ) -> str:
    """Return the report as JSON; ``variables`` name the root of the repository in CI."""
    return dumped(entries(diagnosis, repository_root(diagnosis.run, variables)))


def entries(diagnosis: Diagnosis, root: str = "") -> list[dict[str, Any]]:
    """Return an entry for each finding that is a problem; fingerprints are different from each other."""
    wasteful = [finding for finding in diagnosis.findings if not finding.informational]
    found = [_entry(finding, RepositoryPlace(finding, diagnosis, root)) for finding in wasteful]
    seen: dict[str, int] = {}
    for entry in found:
        number = seen[entry["fingerprint"]] = seen.get(entry["fingerprint"], 0) + 1
        if number > 1:
            entry["fingerprint"] += f"-{number}"
    return found


def _entry(finding: Finding, place: RepositoryPlace) -> dict[str, Any]:
    """Return one finding."""
    where = "" if place.cell is None or finding.location is None else f" ({finding.location})"
    gain = f" Gain: {expected(finding)}." if expected(finding) else ""
    return {
        "description": f"{finding.sentence}{where} Fix: {finding.advice}{gain}",
        "check_name": f"perfwrap/{finding.rule}",
        "fingerprint": place.fingerprint(finding.rule),
        "severity": SEVERITIES[finding.severity],
        "location": {"path": place.file or UNKNOWN_FILE, "lines": {"begin": place.line or 1}},
    }
