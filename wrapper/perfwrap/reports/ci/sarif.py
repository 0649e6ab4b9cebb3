"""A diagnosis as SARIF 2.1.0, which GitHub code scanning, Azure DevOps and editors show beside the source.

Format: docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. A finding is a result with its line, its rule has the
help text of `perfwrap explain`. No finding has the level ``error``: the program is slow, not wrong.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from perfwrap import __version__
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports.ci.repository_places import RepositoryPlace, repository_root
from perfwrap.reports.gain import alternative, expected
from perfwrap.reports.json import dumped
from perfwrap.reports.terminal.explanation import sections, summary
from perfwrap.rules import TOPICS
from perfwrap.rules.model import Finding, Rule, rule_id

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "SRCROOT"
"""The name of the repository's root in the document."""
LEVELS = {"critical": "warning", "major": "warning", "minor": "note", "note": "note"}
SECOND = 1_000_000_000


def text(diagnosis: Diagnosis, variables: Mapping[str, str] = os.environ) -> str:
    """Return the document as JSON; ``variables`` name the root of the repository in CI."""
    return dumped(document(diagnosis, repository_root(diagnosis.run, variables)))


def document(diagnosis: Diagnosis, root: str = "") -> dict[str, Any]:
    """Return the document; paths below ``root`` are relative to it."""
    rules = {rule_id(rule): (rule, topic.TITLE) for topic in TOPICS for rule in topic.RULES}
    used = [rule for rule in rules if any(finding.rule == rule for finding in diagnosis.findings)]
    driver = {
        "name": "perfwrap",
        "semanticVersion": __version__,
        "rules": [_rule(rule, *rules[rule]) for rule in used],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "invocations": [_invocation(diagnosis)],
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, diagnosis, root, used) for finding in diagnosis.findings],
        "properties": {"verdict": diagnosis.verdict.id, "sentence": diagnosis.verdict.sentence},
    }
    if PurePath(root).is_absolute():
        run["originalUriBaseIds"] = {ROOT: {"uri": _uri(root.rstrip("/") + "/")}}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(name: str, rule: Rule, topic: str) -> dict[str, Any]:
    """Return a rule with its help, as text and as Markdown."""
    parts = [(heading, "\n\n".join(paragraphs)) for heading, paragraphs in sections(rule).items()]
    plain = "\n\n".join(f"{heading}: {words}" for heading, words in parts)
    marked = "\n\n".join(f"**{heading}.** {words}" for heading, words in parts)
    return {
        "id": name,
        "shortDescription": {"text": summary(rule)},
        "fullDescription": {"text": dict(parts).get("What it finds", summary(rule))},
        "help": {"text": plain, "markdown": marked},
        "defaultConfiguration": {"level": "warning"},
        "properties": {"tags": ["performance", "pytorch", topic]},
    }


def _result(finding: Finding, diagnosis: Diagnosis, root: str, used: list[str]) -> dict[str, Any]:
    """Return one finding."""
    place = RepositoryPlace(finding, diagnosis, root)
    gain = f" Gain: {expected(finding)}." if expected(finding) else ""
    lines = [f"{finding.sentence} Fix: {finding.advice}{gain}"]
    lines += [f"Or: {alternative(option)}." for option in finding.options[1:]]
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "kind": "informational" if finding.informational else "fail",
        "level": "none" if finding.informational else LEVELS[finding.severity],
        "message": {"text": "\n\n".join(lines)},
        "locations": _locations(place, finding),
        "partialFingerprints": {"perfwrapFinding/v1": place.fingerprint(finding.rule)},
        "rank": round(100 * min(1.0, max(0.0, finding.share)), 1),
        "properties": {
            "severity": finding.severity,
            "share": round(finding.share, 4),
            "of": finding.scope.value,
            "confidence": finding.confidence,
            "evidence": list(finding.evidence),
        },
    }
    if finding.rule in used:
        result["ruleIndex"] = used.index(finding.rule)
    return result


def _locations(place: RepositoryPlace, finding: Finding) -> list[dict[str, Any]]:
    """Return the place as SARIF has it; the whole program where no line is known, nothing without a file."""
    if not place.file:
        return []
    is_absolute = PurePath(place.file).is_absolute()
    artifact = {"uri": _uri(place.file)} if is_absolute else {"uri": _uri(place.file), "uriBaseId": ROOT}
    physical: dict[str, Any] = {"artifactLocation": artifact}
    if place.line is not None:
        physical["region"] = {"startLine": place.line}
        if place.last_line is not None:
            physical["region"]["endLine"] = place.last_line
    location: dict[str, Any] = {"physicalLocation": physical}
    if place.cell is not None and finding.location is not None:
        name = f"cell [{place.cell}], line {finding.location.line}"
        location["logicalLocations"] = [{"name": name, "kind": "cell"}]
    elif place.function:
        location["logicalLocations"] = [{"name": place.function, "kind": "function"}]
    return [location]


def _invocation(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return when the run was and how it ended, with the verdict, what was not checked, and warnings as messages."""
    run = diagnosis.run
    status = run.get("exit") or {}
    invocation: dict[str, Any] = {
        "executionSuccessful": status.get("code", 0) == 0 and "signal" not in status
    }
    for key, name in (("start", "startTimeUtc"), ("end", "endTimeUtc")):
        wall = (run.get(key) or {}).get("wall_ns")
        if wall:
            moment = datetime.fromtimestamp(wall / SECOND, timezone.utc)
            invocation[name] = moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    if isinstance(status.get("code"), int):
        invocation["exitCode"] = status["code"]
    notes = [("note", diagnosis.verdict.sentence)]
    notes += [("warning", warning) for warning in diagnosis.warnings]
    notes += [
        ("note", f"{outcome.rule}: {outcome.state}. {outcome.why}")
        for outcome in diagnosis.outcomes
        if outcome.state in ("not checked", "failed")
    ]
    invocation["toolExecutionNotifications"] = [
        {"level": level, "message": {"text": sentence}} for level, sentence in notes
    ]
    return invocation


def _uri(path: str) -> str:
    """Return a path as a URI reference: relative, or with the scheme ``file`` if it is absolute."""
    quoted = quote(path.encode("utf-8", "surrogateescape"))
    if path.startswith("/"):
        return f"file://{quoted}"
    # A colon in the first part would make it a scheme.
    return f"./{quoted}" if ":" in path.partition("/")[0] else quoted
