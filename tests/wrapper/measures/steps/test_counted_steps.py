"""Sections without detail may begin and end anywhere within a step: the number of all steps stays exact."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.measures.account.loop_events import loop_events
from perfwrap.measures.steps.counted_steps import add_counted
from perfwrap.measures.steps.phases import find_phases
from perfwrap.measures.steps.step_ends import find_step_ends
from perfwrap.measures.steps.thinned import section_edges

CRITICS = 5
FORMS = {
    "one optimizer": lambda step: ["Adam#1"],
    "GAN": lambda step: ["Adam#1", "Adam#2"],
    "critics": lambda step: ["Adam#1", "Adam#2"] if step % CRITICS == CRITICS - 1 else ["Adam#1"],
    "three": lambda step: ["SGD#1", "SGD#2", "Adam#1"],
}


def cut(events: list[tuple[str, str]], edges: list[int], detail: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return spans of 10 ns, and sums of the events between each second pair of edges, after ``detail`` events."""
    in_section = np.zeros(len(events), dtype=bool)
    bounds = sorted({edge for edge in edges if edge > detail})
    sections = list(zip(bounds[::2], bounds[1::2], strict=False))
    sums = []
    for start, end in sections:
        in_section[start:end] = True
        counted = pl.DataFrame(events[start:end], schema=["operation", "name"], orient="row")
        sums.append(
            counted.group_by("operation", "name")
            .agg(pl.len().cast(pl.Int64).alias("count"))
            .with_columns(start=pl.lit(start * 20 - 10), end=pl.lit(end * 20 - 1), rest=pl.lit(True))
        )
    inside = {"GradScaler.step": 25}  # a scaler's step begins before the one of its optimizer
    rows = [
        (place * 20 - inside.get(name, 0), 10 + inside.get(name, 0), operation, name)
        for place, (operation, name) in enumerate(events)
        if not in_section[place]
    ]
    spans = pl.DataFrame(rows, schema=["start", "duration", "operation", "name"], orient="row").sort("start")
    empty = [pl.lit(None, kind).alias(name) for name, kind in (("file", pl.String), ("line", pl.Int32))]
    schema = {
        "operation": pl.String,
        "name": pl.String,
        "count": pl.Int64,
        "start": pl.Int64,
        "end": pl.Int64,
    }
    none = pl.DataFrame(schema={**schema, "rest": pl.Boolean})
    whole = pl.concat([none, *(table.select(none.columns).cast(dict(none.schema)) for table in sums)])
    return spans.with_columns(*empty, pl.lit(32, pl.Int64).alias("value")), whole.with_columns(*empty)


def counted(spans: pl.DataFrame, sums: pl.DataFrame) -> tuple[int, np.ndarray, bool]:
    events = loop_events(spans, np.zeros(spans.height, dtype=bool))
    found = find_step_ends(events, find_phases(events), section_edges(sums)[::2])
    assert found is not None
    ends, detailed, is_exact = add_counted(found, spans, sums)
    assert (np.diff(ends) >= 0).all()
    assert detailed.size == ends.size
    return ends.size, ends, is_exact


@pytest.mark.parametrize("loader", [True, False], ids=["loader", "no loader"])
@pytest.mark.parametrize("form", FORMS)
@given(edges=st.lists(st.integers(0, 900), max_size=12), steps=st.integers(60, 300))
def test_a_section_may_begin_and_end_within_a_step(
    form: str, loader: bool, edges: list[int], steps: int
) -> None:
    events = []
    for step in range(steps):
        events += [("data", "loader/1")] if loader else []
        events += [("optimizer", name) for name in FORMS[form](step)]
    spans, sums = cut(events, [edge for edge in edges if edge < len(events)], detail=60)
    made, ends, is_exact = counted(spans, sums)
    assert (made, is_exact) == (steps, True)
    assert ends[-1] <= len(events) * 20
    longest = (max(len(FORMS[form](step)) for step in range(CRITICS)) + loader) * 20
    assert np.diff(ends).max() <= 3 * longest


@pytest.mark.parametrize("skipped", [0, 7, 2], ids=["none skipped", "each 7th skipped", "each 2nd skipped"])
@given(edges=st.lists(st.integers(0, 900), max_size=12), steps=st.integers(60, 300))
def test_a_section_may_begin_and_end_within_the_step_of_a_scaler(
    skipped: int, edges: list[int], steps: int
) -> None:
    events = []
    for step in range(steps):
        if skipped and step % skipped == skipped - 1:
            events.append(("scaler_step", "GradScaler.step skipped"))
        else:
            events += [("optimizer", "SGD#1"), ("scaler_step", "GradScaler.step")]
    spans, sums = cut(events, [edge for edge in edges if edge < len(events)], detail=60)
    assert counted(spans, sums)[0] == steps


def test_an_optimizer_that_only_sections_have_is_counted() -> None:
    events = [("optimizer", "Adam#1")] * 100 + [("optimizer", "Adam#2")] * 50 + [("optimizer", "Adam#3")] * 50
    spans, sums = cut(events, [90, 160], detail=60)
    assert counted(spans, sums)[0] == 200


@pytest.mark.parametrize("edges", [[150, 420], [151, 420], [150, 250, 260, 420]])
@pytest.mark.parametrize("alone", ["Adam#1", "Adam#2"])
def test_a_section_in_which_only_one_optimizer_of_a_step_goes_on_is_counted(
    alone: str, edges: list[int]
) -> None:
    events = [("optimizer", name) for _ in range(100) for name in ("Adam#1", "Adam#2")]
    events += [("optimizer", alone)] * 220
    spans, sums = cut(events, edges, detail=60)
    assert counted(spans, sums)[0] == 320


def test_sections_in_which_each_optimizer_of_a_step_goes_on_alone_are_counted() -> None:
    events = [("optimizer", name) for _ in range(50) for name in ("Adam#1", "Adam#2")]
    events += [("optimizer", "Adam#1")] * 100 + [("optimizer", "Adam#2")] * 120
    spans, sums = cut(events, [80, 200, 202, 320], detail=60)
    assert counted(spans, sums)[0] == 270


def test_errors_of_many_sections_do_not_add_up() -> None:
    """No optimizer has exactly one step in each step of the training, so the ratio of the detailed steps counts."""
    events = [("optimizer", name) for _ in range(2_000) for name in ("SGD#1", "SGD#2", "SGD#2")]
    edges = [edge for start in range(300, 6_000, 151) for edge in (start, start + 100)]
    spans, sums = cut(events, edges, detail=60)
    made, _, is_exact = counted(spans, sums)
    assert made == pytest.approx(4_000, rel=0.02)
    assert not is_exact
