"""Builds the HTML file from texts, styles, scripts, data and plotly, so that it works offline."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.private_files import replace_text
from perfwrap.reports.html.document import document
from perfwrap.reports.html.encoding import embedded
from perfwrap.reports.html.tried import tried
from perfwrap.timeline.model import Timeline

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = (
    "dom.js",
    "theme.js",
    "summary.js",
    "tried.js",
    "lines.js",
    "levels.js",
    "timeline.js",
    "lanes.js",
    "flames.js",
    "ranks.js",
    "tables.js",
    "links.js",
    "keys.js",
    "main.js",
)
"""In the order in which they run; they share one scope."""

POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""The content security policy: only the page's own scripts run, and nothing is downloaded. Styles may be set
by scripts (plotly does), and images are what plotly draws of a chart that is saved."""


def write(diagnosis: Diagnosis, timeline: Timeline, path: Path, trial: dict[str, Any] | None = None) -> None:
    """Write the report of a diagnosis that carries its overview; the file is written in one step.

    ``trial`` is the document of ``trial_json`` where changes were tried.
    """
    replace_text(path, page(diagnosis, timeline, trial))


def page(diagnosis: Diagnosis, timeline: Timeline, trial: dict[str, Any] | None = None) -> str:
    """Return the whole page."""
    charts, own = _plotly(), _own_scripts()
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in (charts, own))
    pieces = {
        "policy": POLICY.format(scripts=hashes),
        "style": _asset("page.css"),
        "data": embedded(document(diagnosis, timeline) | {"tried": tried(trial)}),
        "scripts": own,
        "plotly": charts,
    }
    text = _asset("page.html")
    # One pass from the front: a piece is never searched for the name of the next.
    whole = []
    for name, piece in pieces.items():
        before, _, text = text.partition(f"<!--{name}-->")
        whole += [before, piece]
    return "".join([*whole, text])


def _plotly() -> str:
    """Return the script of plotly from its Python package."""
    # Only here: nothing else needs the package.
    from plotly.offline import get_plotlyjs

    # A comment's "<!--" or an end tag in a string would end or hide the script element.
    script: str = get_plotlyjs()
    return _harmless(script)


def _own_scripts() -> str:
    """Return the page's own scripts as one, in one scope of their own."""
    return _harmless("(function () {\n'use strict';\n" + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n")


def _harmless(script: str) -> str:
    """Return the script without what HTML would not leave inside a script element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(script: str) -> str:
    """Return the hash by which the policy knows the script; HTML reads line ends as newlines."""
    plain = script.replace("\r\n", "\n").replace("\r", "\n")
    return base64.b64encode(hashlib.sha256(plain.encode()).digest()).decode("ascii")


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
