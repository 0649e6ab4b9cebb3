"""The measured changes of a trial: a row for each variant, and the edit to make."""

from __future__ import annotations

from typing import Any

from perfwrap import units
from perfwrap.reports.html.encoding import clipped

COLUMNS = ["variant", "result", "median step", "samples/s", "mean step, ratio", "loss", "kind", "reason"]
LONGEST_EDIT = 20_000


def tried(document: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the table of a trial, from the document of ``trial_json``; None if nothing was tried."""
    if document is None:
        return None
    rows = [document["baseline"], *document["variants"]]
    edits = [row for row in document["variants"] if row["edit"] and row["judgement"] == "gain"]
    best = next((row for row in edits if row["name"] == document["best"]), None)
    return {
        "table": {"columns": COLUMNS, "rows": [_cells(row) for row in rows], "left_out": 0},
        "edits": [
            {"name": clipped(row["name"]), "text": clipped(row["edit"], LONGEST_EDIT)}
            for row in ([best] if best else edits)
        ],
        "predictions": [
            _prediction(row) for row in document["variants"] if row["predicted"] and row["ratio"]
        ],
    }


def _cells(row: dict[str, Any]) -> list[str]:
    """Return a row's cells, as COLUMNS has them."""
    known = row["status"] == "measured"
    return [
        clipped(row["name"]),
        (row["judgement"] if row["ratio"] else "unchanged") if known else row["status"],
        units.duration(row["median_ns"], 3) if row["median_ns"] else "",
        units.number(row["samples_per_s"], 3) if row["samples_per_s"] else "",
        units.ratio(row["ratio"], row["low"], row["high"]) if row["ratio"] else "",
        units.number(row["loss"], 3) if row["loss"] is not None else "",
        row["kind"] or "",
        clipped("; ".join(filter(None, (row["reason"], row["loss_warning"])))),
    ]


def _prediction(row: dict[str, Any]) -> str:
    """Return how the measurements compare with the predictions of the rules."""
    low, high = (units.ratio(end) for end in row["predicted"])
    return clipped(
        f"{row['name']}: {row['rule']} predicted a ratio of {low} to {high}, measured {units.ratio(row['ratio'])}."
    )
