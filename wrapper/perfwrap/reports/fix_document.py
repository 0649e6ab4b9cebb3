"""What `perfwrap fix` proved, for programs (``fix.json``) and as the text of a pull request (``pull-request.md``).

FORMAT 1::

    format      1                             command     list of words
    root        folder to apply the patch in  interrupted whether the user ended it early
    edits       rows, in the order in which they were tried
    unedited    findings without an edit: {"rule", "reason", "file", "line", "predicted", "advice", "sentence"}; file
                and line are null where unknown, "predicted" is the ratio of step times if it is fixed by hand, best
                case first, and "sentence" says all of it
    total       the measurement of all kept edits together: "ratio", "low", "high"; null if none was kept
    patch       the unified diff; empty if none was kept
    written     files that the program wrote in its working folder; null if there are too many to check
    account     {"before", "after"}: {"step_ns", "shares"} of the parts of a step, of the unchanged program and with all
                kept edits; null where unknown

A row has ``rule``, ``edit``, ``file``, ``line``, ``sentence``, ``state`` (kept, dropped), ``reason``, ``equality``
(identical, rounding, other random numbers, changes the training, unknown) with the largest relative ``deviation`` of
losses and parameters, the ``predicted`` ratio of step times, and ``ratio``, ``low``, ``high`` as measured alone.
"""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

from perfwrap import units
from perfwrap.experiments.judge import Row
from perfwrap.experiments.written import Written
from perfwrap.fixing.before_after import StepAccount
from perfwrap.fixing.candidates import Unedited
from perfwrap.fixing.equality import WORDS
from perfwrap.fixing.search import CHECK_STEPS, Search, Tried
from perfwrap.private_files import replace_text
from perfwrap.redaction import masked_words
from perfwrap.timeline.notebook_cells import at_line

FORMAT = 1


def section(
    search: Search,
    written: Written,
    patch: bytes,
    root: Path,
    accounts: tuple[StepAccount | None, StepAccount | None] = (None, None),
) -> dict[str, Any]:
    """Return the document; ``accounts`` are those of a step before and after."""
    return {
        "format": FORMAT,
        "command": masked_words(list(search.trial.command)),
        "root": str(root),
        "interrupted": search.trial.interrupted,
        "edits": [_row(one) for one in search.tried],
        "unedited": [_unedited(one) for one in search.unedited],
        "total": _measured(search.total) if search.kept else None,
        "patch": patch.decode("utf-8", "replace"),
        "written": None if written.unknown else list(written.changed),
        "account": dict(zip(("before", "after"), map(_account, accounts), strict=True)),
    }


def write(document: dict[str, Any], path: Path, pull_request: Path) -> None:
    """Write the document, and the text of a pull request if there is a patch, each in one step."""
    replace_text(path, json.dumps(document, indent=1, allow_nan=False))
    if document["patch"]:
        replace_text(pull_request, markdown(document))


def markdown(document: dict[str, Any]) -> str:
    """Return the text of a pull request."""
    total = document["total"]
    kept = [row for row in document["edits"] if row["state"] == "kept"]
    lines = [
        f"# Training step: {_range(total)} of the time before",
        "",
        f"Measured with `perfwrap fix -- {shlex.join(document['command'])}`: steps of the edited and the unchanged "
        "program, in turns, with a 95 % interval.",
        "",
        "| edit | results | step time alone |",
        "|---|---|---|",
        *map(_line, kept),
        "",
        f"Results are the losses and all parameters after each of the first {CHECK_STEPS} steps, with equal seeds.",
        "",
    ]
    if document["unedited"]:
        lines += [
            "Not part of this change:",
            "",
            *(f"- {one['sentence']}" for one in document["unedited"]),
            "",
        ]
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    """Return one line of the table."""
    place = at_line(Path(row["file"]).name, row["line"])
    return f"| {place}: {row['sentence']} | {WORDS[row['equality']]} | {_range(row)} |"


def _range(measured: dict[str, Any]) -> str:
    """Return e.g. ``0.54 (0.51 to 0.57)``."""
    value = measured["ratio"]
    return "not measured" if value is None else units.ratio(value, measured["low"], measured["high"])


def _account(found: StepAccount | None) -> dict[str, Any] | None:
    """Return the account of a step."""
    if found is None:
        return None
    shares = {part: units.significant(share, 6) for part, share in found.shares.items()}
    return {"step_ns": round(found.step_ns), "shares": shares}


def _row(one: Tried) -> dict[str, Any]:
    """Return one row."""
    return {
        "rule": one.candidate.rule,
        "edit": one.candidate.edit,
        "file": one.candidate.place.file,
        "line": one.candidate.place.line,
        "sentence": one.candidate.sentence,
        "state": one.state,
        "reason": one.reason or None,
        "equality": one.equality,
        "deviation": one.deviation if math.isfinite(one.deviation) else None,
        "predicted": [units.significant(end, 6) for end in one.candidate.predicted],
        **_measured(one.row),
    }


def _unedited(one: Unedited) -> dict[str, Any]:
    """Return a finding without an edit."""
    return {
        "rule": one.rule,
        "reason": one.reason,
        "file": one.location.file if one.location is not None else None,
        "line": one.location.line if one.location is not None else None,
        "predicted": [units.significant(end, 6) for end in one.saving],
        "advice": one.advice,
        "sentence": one.sentence,
    }


def _measured(row: Row | None) -> dict[str, Any]:
    """Return the measured ratio; nulls if there is none."""
    found = row.ratio if row is not None else None
    ends = (found.value, found.low, found.high) if found is not None else (None, None, None)
    rounded = (None if end is None else units.significant(end, 6) for end in ends)
    return dict(zip(("ratio", "low", "high"), rounded, strict=True))
