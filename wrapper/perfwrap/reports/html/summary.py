"""The data of the first screen: what was run, the verdict, the breakdown of the step time, and the findings."""

from __future__ import annotations

from typing import Any

from perfwrap import units
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports import ending_text, energy_text
from perfwrap.reports.command_line import as_typed, proof, training_command
from perfwrap.reports.excerpt import read_excerpt
from perfwrap.reports.gain import basis, expected
from perfwrap.reports.html.encoding import clipped
from perfwrap.reports.run_context import kind_of, run_places, run_shares, step_end
from perfwrap.reports.terminal.explanation import sections, summary
from perfwrap.reports.terminal.ranks import trainers
from perfwrap.rules import RULES
from perfwrap.rules.model import Finding, Option, rule_id
from perfwrap.timeline.notebook_cells import at_line

TENTHS = 1000
"""Shares are rounded to tenths of a per cent, which sum to 100.0 %."""

MAX_COMMAND = 4_000
MAX_PATH = 300
AROUND = 3
"""Lines of the program shown before and after those that a finding names."""


def heading(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return what was run, for how long, and how it ended."""
    run = diagnosis.run
    words = [str(word) for word in run.get("command") or ()]
    end = run.get("end")
    return {
        "command": clipped(as_typed(words)),
        "directory": clipped(run.get("cwd") or ""),
        "ended": " · ".join(text for text in (_wall(run), ending_text.sentence(run)) if text),
        "wall_ms": end["wall_ns"] / 1e6 if isinstance(end, dict) and "wall_ns" in end else None,
        "versions": {str(key): clipped(value, 80) for key, value in (run.get("versions") or {}).items()},
    }


def verdict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the verdict and the figures below it."""
    found, steps = diagnosis.verdict, diagnosis.steps
    figures = []
    if steps.count:
        figures.append(("Steps", f"{units.count(steps.steady)} steady of {units.count(steps.count)}"))
        figures.append(("Median step", units.duration(steps.median_ns, 3)))
        figures.append(("99 % of steps below", units.duration(steps.p99_ns, 3)))
    if steps.samples_per_s:
        figures.append(("Throughput", units.rate(steps.samples_per_s, "samples")))
    if len(diagnosis.ranks) > 1:
        figures.append(("Training processes", trainers(diagnosis)))
    for gpu in diagnosis.gpu_activity[:1]:
        share = gpu.busy_share if gpu.loop_busy_share is None else gpu.loop_busy_share
        figures.append((f"{gpu.device} busy", units.share(share)))
    if diagnosis.phase_idle is not None:
        idle = 1 - diagnosis.phase_idle.busy_ns / diagnosis.phase_idle.duration_ns
        figures.append(("GPU idle between phases", units.share(idle)))
    if energy_text.short(diagnosis):
        figures.append(("Energy", energy_text.short(diagnosis)))
    if diagnosis.cost is not None:
        figures.append(("Cost", f"{units.number(diagnosis.cost.amount)} {diagnosis.cost.currency}".rstrip()))
    return {
        "id": found.id,
        "sentence": clipped(found.sentence),
        "confidence": found.confidence,
        "figures": [{"name": name, "value": value} for name, value in figures],
        "ends_with": clipped(step_end(diagnosis)),
    }


def whole_run(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return the parts of the whole run in their order, and the costliest places outside the loop; None if unknown."""
    run = diagnosis.whole_run
    if run is None:
        return None
    parts = [
        {"part": part, "kind": kind_of(part), "share": share, "time": units.duration(run.parts[part])}
        for part, share in run_shares(run).items()
    ]
    return {"time": units.duration(run.total_ns), "parts": parts, "places": clipped(run_places(diagnosis))}


def account(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return the parts of the training loop, the largest first; their shares sum to exactly 100 %."""
    tenths = units.apportion({part: float(ns) for part, ns in diagnosis.account.items()}, TENTHS)
    rows = [(part, value) for part, value in tenths.items() if value]
    return [
        {"part": part, "tenths": value, "share": f"{value / 10:.1f} %"}
        for part, value in sorted(rows, key=lambda row: -row[1])
    ]


def findings(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return the findings in their order."""
    names: dict[str, int] = {}
    rows = []
    for finding in diagnosis.findings:
        names[finding.rule] = names.get(finding.rule, 0) + 1
        again = f"-{names[finding.rule]}" if names[finding.rule] > 1 else ""
        rows.append({"id": finding.rule + again, **_finding(finding, diagnosis)})
    return rows


def outcomes(diagnosis: Diagnosis) -> list[dict[str, str]]:
    """Return the outcome of each rule."""
    return [
        {"rule": outcome.rule, "state": outcome.state, "why": clipped(outcome.why)}
        for outcome in diagnosis.outcomes
    ]


def _finding(finding: Finding, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return one finding."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "share": finding.share,
        "cost": f"{units.share(finding.share)} of {finding.scope.value}" if finding.share > 0 else "",
        "sentence": clipped(finding.sentence),
        "evidence": [clipped(sentence) for sentence in finding.evidence],
        "advice": clipped(finding.advice),
        "gain": expected(finding),
        "basis": clipped(basis(finding.options[0])),
        "others": [_option(option, diagnosis) for option in finding.options[1:]],
        "experiment": _proved(finding.experiment, diagnosis),
        "ranks": list(finding.ranks),
        "place": _place(finding, diagnosis),
        "documentation": _documentation(finding.rule),
    }


def _option(option: Option, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return one of the other ways to fix a problem."""
    return {
        "advice": clipped(option.advice),
        "gain": units.step_time(*option.saving),
        "basis": clipped(basis(option)),
        "experiment": _proved(option.experiment, diagnosis),
    }


def _proved(experiment: str | None, diagnosis: Diagnosis) -> str:
    """Return the command that measures a change; empty if there is none."""
    start = proof(experiment)
    return clipped(f"{start} -- {training_command(diagnosis.run)}", MAX_COMMAND) if start else ""


def _place(finding: Finding, diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return the line that a finding names, with the lines of the file as far as they can be read."""
    location = finding.location
    if location is None:
        return None
    directory = str(diagnosis.run.get("cwd") or ".")
    excerpt = read_excerpt(location, diagnosis.run, AROUND)
    notes = []
    if excerpt is not None and excerpt.left_out:
        notes.append(units.counted(excerpt.left_out, "more line"))
    if excerpt is not None and excerpt.changed:
        notes.append("the file has changed since the run")
    if excerpt is None:
        notes.append("the file could not be read")
    return {
        "at": at_line(
            clipped(location.file.removeprefix(f"{directory.rstrip('/')}/"), MAX_PATH), location.line
        ),
        "line": location.line,
        "function": clipped(location.function, 200),
        "lines": []
        if excerpt is None
        else [[number, clipped(text, 400), number not in excerpt.around] for number, text in excerpt.lines],
        "note": "; ".join(notes),
    }


def _documentation(name: str) -> dict[str, Any]:
    """Return the documentation of a rule; empty for an unknown rule."""
    rule = next((rule for rule in RULES if rule_id(rule) == name), None)
    if rule is None:
        return {"summary": "", "sections": []}
    found = sections(rule)
    return {"summary": summary(rule), "sections": [[title, texts] for title, texts in found.items()]}


def _wall(run: dict[str, Any]) -> str:
    """Return how long the run took."""
    start, end = run.get("start"), run.get("end")
    if not isinstance(start, dict) or not isinstance(end, dict):
        return ""
    verb = "watched for" if run.get("attached") else "ran"
    return f"{verb} {units.duration(end['monotonic_ns'] - start['monotonic_ns'])}"
