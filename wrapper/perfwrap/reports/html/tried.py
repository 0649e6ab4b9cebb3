"""What changes were worth when they were tried: a row for each variant, and the edit to make."""

from __future__ import annotations

from typing import Any

from perfwrap import units
from perfwrap.reports.html.encoding import clipped

COLUMNS = ["variant", "what it is", "median step", "samples/s", "mean step, ratio", "loss", "kind", "why"]
LONGEST_EDIT = 20_000


def tried(document: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the table of a trial, from the document of ``trial_json``; None where nothing was tried."""
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
        (row["judgement"] if row["ratio"] else "as it is") if known else row["status"],
        units.duration(row["median_ns"], 3) if row["median_ns"] else "",
        units.number(row["samples_per_s"], 3) if row["samples_per_s"] else "",
        units.ratio(row["ratio"], row["low"], row["high"]) if row["ratio"] else "",
        units.number(row["loss"], 3) if row["loss"] is not None else "",
        row["kind"] or "",
        clipped("; ".join(filter(None, (row["reason"], row["loss_warning"])))),
    ]


def _prediction(row: dict[str, Any]) -> str:
    """Return how what was measured compares with what the rule had predicted."""
    low, high = (units.ratio(end) for end in row["predicted"])
    return clipped(
        f"{row['rule']} had predicted {low} to {high} for {row['name']}; measured {units.ratio(row['ratio'])}."
    )
