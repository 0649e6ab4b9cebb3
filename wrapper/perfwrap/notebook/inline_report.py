"""A diagnosis as a table for a notebook, made from the document of ``diagnosis.json`` by the standard library alone."""

from __future__ import annotations

import html
from pathlib import Path, PurePath
from typing import Any

from perfwrap import units

MAX_FINDINGS = 5
MIN_SHARE = 0.005


def report_html(document: dict[str, Any], folder: Path) -> str:
    """Return verdict, account, and the most expensive findings, with the path of the whole report."""
    account = " · ".join(
        f"{html.escape(part)} {units.share(share)}"
        for part, share in sorted(document["account"].items(), key=lambda each: -each[1])
        if share >= MIN_SHARE
    )
    steps = document["steps"]
    median = f", median {units.duration(steps['median_ns'], 3)}" if steps["median_ns"] else ""
    rows = "".join(_row(finding) for finding in document["findings"][:MAX_FINDINGS])
    head = "<tr><th>rule</th><th>severity</th><th>line</th><th style='text-align:left'>finding</th></tr>"
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>" if rows else ""
    more = len(document["findings"]) - MAX_FINDINGS
    also = f"{units.counted(more, 'more finding')}. " if more > 0 else ""
    return (
        f"<div><p><b>perfwrap</b>: {html.escape(document['verdict']['sentence'])}</p>"
        f"<p>{units.counted(steps['steady'], 'steady step')}{median}<br>{account}</p>{table}"
        f"<p>{also}Whole report: <code>{html.escape(str(folder / 'report.html'))}</code></p></div>"
    )


def _row(finding: dict[str, Any]) -> str:
    """Return a row of the table."""
    options = finding["options"]
    others = "".join(f"<br>Or: {html.escape(_sentence(option))}" for option in options[1:])
    return (
        f"<tr><td>{html.escape(finding['rule'])}</td><td>{html.escape(finding['severity'])}</td>"
        f"<td>{html.escape(_place(finding['location']))}</td>"
        f"<td style='text-align:left'>{html.escape(finding['evidence'][0])}<br>"
        f"<b>Fix:</b> {html.escape(_sentence(options[0]))}{others}</td></tr>"
    )


def _sentence(option: dict[str, Any]) -> str:
    """Return what to change, and the predicted step time."""
    predicted = units.step_time(option["saving"]["low"], option["saving"]["high"])
    return f"{option['edit']} Step time {predicted}." if predicted else str(option["edit"])


def _place(location: dict[str, Any] | None) -> str:
    """Return e.g. ``cell [3], line 2`` or ``train.py:31``; empty without a line."""
    if not location or not location.get("line"):
        return ""
    if location.get("cell"):
        return f"cell [{location['cell']}], line {location['line']}"
    return f"{PurePath(location['file']).name}:{location['line']}"
