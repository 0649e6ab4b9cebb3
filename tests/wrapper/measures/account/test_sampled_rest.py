from __future__ import annotations

import polars as pl
import pytest
from perfwrap.measures.account.account import SEGMENT_COLUMNS
from perfwrap.measures.account.sampled_rest import place_unknown
from perfwrap.timeline.model import empty

PAUSE = (1_000, 2_000)


def segments(*rows: tuple[int, int, str, str | None]) -> pl.DataFrame:
    """Return estimated segments in the pause: start, end, part and operation."""
    found = [
        {
            **dict.fromkeys(SEGMENT_COLUMNS),
            "start": start,
            "end": end,
            "part": part,
            "operation": operation,
            "estimated": True,
        }
        for start, end, part, operation in rows
    ]
    return pl.DataFrame(found, schema=SEGMENT_COLUMNS)


def stacks(**counts: int) -> pl.DataFrame:
    """Return so many samples of each operation, all in the pause; ``own`` has none."""
    names = [name for name, count in counts.items() for _ in range(count)]
    nothing = empty("stacks")
    rows = [
        {
            **dict.fromkeys(nothing.columns),
            "time": PAUSE[0] + number * (PAUSE[1] - PAUSE[0]) // len(names),
            "weight": 1,
            "operation": None if name == "own" else name,
            "file": "/w/a.py",
            "line": 7,
            "function": "main",
            "source": "py-spy",
        }
        for number, name in enumerate(names)
    ]
    return pl.DataFrame(rows, schema=nothing.schema)


def sums(rest: bool = True) -> pl.DataFrame:
    known = empty("sums")
    row = {**dict.fromkeys(known.columns), "start": PAUSE[0], "end": PAUSE[1], "rest": rest}
    return pl.DataFrame([row], schema={**known.schema, "rest": pl.Boolean})


def lengths(found: pl.DataFrame) -> dict[tuple[str, str | None], int]:
    rows = found.group_by("part", "operation").agg((pl.col("end") - pl.col("start")).sum())
    return {(part, operation): ns for part, operation, ns in rows.iter_rows()}


BEFORE = segments(
    (1_000, 1_200, "optimizer", "optimizer"), (1_200, 1_600, "python", None), (1_600, 2_000, "python", None)
)


def test_unknown_time_is_divided_by_samples_that_exceed_what_is_known() -> None:
    after = place_unknown(BEFORE, stacks(optimizer=20, forward=60, own=20), sums(), ())
    assert lengths(after) == {
        ("optimizer", "optimizer"): 200,
        ("forward", "forward"): 600,
        ("python", None): 200,
    }
    assert int((after["end"] - after["start"]).sum()) == 1_000
    assert after["start"].to_list()[1:] == after["end"].to_list()[:-1]
    own = after.filter(pl.col("part") == "python", pl.col("operation").is_null())
    assert set(own.select("file", "line", "until_line").iter_rows()) == {("/w/a.py", 7, 7)}


@pytest.mark.parametrize(
    ("samples", "rows"),
    [
        (stacks(forward=19), BEFORE),
        (stacks(data=40), BEFORE),
        (stacks(forward=40), segments((1_000, 2_000, "optimizer", "optimizer"))),
    ],
    ids=["few samples", "only what is summed", "nothing unknown"],
)
def test_without_evidence_nothing_changes(samples: pl.DataFrame, rows: pl.DataFrame) -> None:
    assert place_unknown(rows, samples, sums(), ()).equals(rows)


def test_samples_outside_of_pauses_do_not_count() -> None:
    assert place_unknown(BEFORE, stacks(forward=40), sums(rest=False), ()).equals(BEFORE)


@pytest.mark.parametrize(
    ("callers", "part"),
    [({("train.py", 20)}, "forward"), ({("train.py", 30)}, "validation"), (set(), "forward")],
    ids=["the usual line", "another line", "unknown"],
)
def test_models_that_are_called_from_another_line_than_usual_are_evaluated(
    callers: set[tuple[str, int]], part: str
) -> None:
    stack = ";".join(
        f"{name} ({file}:{line})"
        for name, file, line in (
            ("main", "/w/train.py", 20),
            ("_call_impl", "/lib/python3.11/site-packages/torch/nn/modules/module.py", 9),
            ("forward", "/w/net.py", 7),
        )
    )
    samples = stacks(optimizer=20, forward=60).with_columns(
        pl.when(pl.col("operation") == "forward").then(pl.lit(stack)).otherwise(pl.lit("")).alias("stack")
    )
    after = place_unknown(BEFORE, samples, sums(), callers)
    assert lengths(after)[part, "forward"] == 750
    lines = after.filter(operation="forward").select("file", "line").unique().rows()
    assert lines == [("/w/a.py", 7) if part == "forward" else ("/w/train.py", 20)]
