from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from perfwrap.reports.html.html_page import page
from perfwrap.reports.html.tried import COLUMNS, tried

BASELINE = {
    "name": "baseline",
    "kind": "fix",
    "status": "measured",
    "judgement": "not measured",
    "reason": None,
    "median_ns": 10_000_000,
    "samples_per_s": 3200.0,
    "ratio": None,
    "low": None,
    "high": None,
    "loss": 0.5,
    "loss_warning": None,
    "rule": None,
    "predicted": None,
    "edit": None,
}
GAIN = {
    **BASELINE,
    "name": "workers=2",
    "judgement": "gain",
    "ratio": 0.5,
    "low": 0.4,
    "high": 0.6,
    "rule": "data_loader_single_process",
    "predicted": [0.45, 0.7],
    "edit": "-DataLoader(d)\n+DataLoader(d, num_workers=2)\n",
}
CRASHED = {
    **BASELINE,
    "name": "compile",
    "status": "crashed",
    "reason": "exit code 1",
    "median_ns": None,
    "samples_per_s": None,
}


def document(*variants: dict[str, Any], best: str | None = None) -> dict[str, Any]:
    return {"baseline": BASELINE, "variants": list(variants), "best": best}


def test_nothing_is_reported_where_nothing_was_tried() -> None:
    assert tried(None) is None


def test_each_variant_is_a_row_that_says_what_it_is() -> None:
    reported = tried(document(GAIN, CRASHED, best="workers=2"))
    assert reported is not None
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in reported["table"]["rows"]]
    assert [row["result"] for row in rows] == ["unchanged", "gain", "crashed"]
    assert rows[1]["mean step, ratio"] == "0.50 (0.40 to 0.60)"
    assert rows[2]["reason"] == "exit code 1"
    assert reported["edits"] == [{"name": "workers=2", "text": GAIN["edit"]}]
    assert reported["predictions"] == [
        "workers=2: data_loader_single_process predicted a ratio of 0.45 to 0.70, measured 0.50."
    ]


def test_without_a_best_fix_every_gain_shows_its_edit_and_noise_none() -> None:
    reported = tried(document(GAIN, {**GAIN, "name": "bf16", "judgement": "noise"}))
    assert reported is not None
    assert [edit["name"] for edit in reported["edits"]] == ["workers=2"]


def test_what_was_tried_is_data_in_the_page_and_never_markup(run: Any, fill: Callable[..., Any]) -> None:
    from perfwrap.diagnosis.engine import diagnose

    fill(run)
    timeline = run.read()
    attack = {**GAIN, "name": "</script><script>alert(1)</script>"}
    text = page(diagnose(timeline, overview=True), timeline, document(attack))
    assert "</script><script>alert(1)" not in text
    data = text.split('<script type="application/json" id="data">', 1)[1].split("</script>", 1)[0]
    assert json.loads(data)["tried"]["table"]["rows"][1][0] == attack["name"]
