"""What a trial measured, for programs: ``try.json``, and the same as the section of a report.

FORMAT 1::

    format        1                                command    list of words
    baseline      a row                            variants   rows, in the order in which they were tried
    best          name of the best fix, or null    interrupted  whether the user ended it early
    batch_size    null, or {"largest", "smallest" (that does not fit, or null), "reason", "advised", "fastest"}
    written       files that the program wrote in its working folder; null where that was not looked at

A row has ``name``, ``kind`` (fix, numerics, ceiling), ``status`` (measured, refused, unused, out of memory, crashed,
hung, no steps, interrupted), ``judgement`` (gain, slower, noise, not repeated, not measured), ``reason``,
``median_ns``, ``samples_per_s``, ``steps`` and ``runs`` (how many count), ``left_out`` (runs that something else on the
machine disturbed), ``ratio`` with ``low`` and ``high`` (the time of a step, or of a sample where batches differ, over
the baseline's, with its 95 % interval), ``loss``, ``loss_warning``, ``peak_bytes``, ``skipped_writes``, ``rule`` and
``predicted`` (``[low, high]``, by that rule), the ``prediction_error`` (0 inside that range), and ``edit`` (a diff, or
what to write).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from perfwrap import units
from perfwrap.experiments.judge import Row, best
from perfwrap.experiments.trial import Trial
from perfwrap.experiments.written import Written
from perfwrap.private_files import replace_text
from perfwrap.redaction import masked_words

FORMAT = 1
TRY = "try.json"
DIGITS = 6


def section(trial: Trial, rows: Sequence[Row], written: Written) -> dict[str, Any]:
    """Return everything that a report shows of a trial, as the document above; the first row is the baseline's."""
    found, size = best(rows), trial.found
    return {
        "format": FORMAT,
        "command": masked_words(list(trial.command)),
        "baseline": _row(rows[0]),
        "variants": [_row(row) for row in rows[1:]],
        "best": None if found is None else found.name,
        "interrupted": trial.interrupted,
        "batch_size": None if size is None else asdict(size),
        "written": None if written.unknown else list(written.changed),
    }


def write(document: dict[str, Any], folder: Path) -> None:
    """Write the document into the folder of the trial, in one step."""
    replace_text(folder / TRY, json.dumps(document, indent=1, allow_nan=False))


def _row(row: Row) -> dict[str, Any]:
    """Return one row."""
    found = row.ratio
    return {
        "name": row.name,
        "kind": row.kind,
        "status": row.status,
        "judgement": row.judgement,
        "reason": row.reason or None,
        "median_ns": None if row.median_ns is None else round(row.median_ns),
        "samples_per_s": _rounded(row.samples_per_s),
        "steps": row.steps,
        "runs": row.runs,
        "left_out": row.left_out,
        "ratio": _rounded(found.value) if found else None,
        "low": _rounded(found.low) if found else None,
        "high": _rounded(found.high) if found else None,
        "loss": _rounded(row.loss),
        "loss_warning": row.loss_warning or None,
        "peak_bytes": None if row.peak_bytes is None else round(row.peak_bytes),
        "skipped_writes": row.skipped_writes,
        "rule": row.rule or None,
        "predicted": None if row.predicted is None else [_rounded(end) for end in row.predicted],
        "prediction_error": _rounded(row.prediction_error),
        "edit": row.edit.text or None,
    }


def _rounded(value: float | None) -> float | None:
    """Return the value with some digits; None for NaN and infinity."""
    return None if value is None or not math.isfinite(value) else units.significant(float(value), DIGITS)
