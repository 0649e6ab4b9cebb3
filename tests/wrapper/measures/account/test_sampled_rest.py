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


EXPLAINED = segments((1_000, 1_600, "optimizer", "optimizer"), (1_600, 2_000, "forward", "forward"))


def test_an_operation_with_far_more_time_than_samples_loses_the_excess() -> None:
    after = place_unknown(EXPLAINED, stacks(optimizer=80, forward=80, own=240), sums(), ())
    found = lengths(after)
    assert found["optimizer", "optimizer"] == pytest.approx(200, abs=2)
    assert found["forward", "forward"] == pytest.approx(200, abs=2)
    assert found["python", None] == pytest.approx(600, abs=4)
    assert int((after["end"] - after["start"]).sum()) == 1_000
    assert after["start"].to_list()[1:] == after["end"].to_list()[:-1]


def test_own_code_that_a_rare_step_made_frequent_loses_the_excess() -> None:
    own = segments((1_000, 1_700, "python", None)).with_columns(
        pl.lit("a.py").alias("file"), pl.lit("backward").alias("after_operation")
    )
    rows = pl.concat([own, segments((1_700, 2_000, "forward", "forward"))])
    found = lengths(place_unknown(rows, stacks(forward=200, own=200), sums(), ()))
    assert found["forward", "forward"] == pytest.approx(500, abs=4)


@pytest.mark.parametrize(
    ("rows", "samples"),
    [
        (EXPLAINED, stacks(optimizer=52, forward=48)),
        (EXPLAINED, stacks(optimizer=20, forward=60)),
        (
            pl.concat([EXPLAINED, segments((2_000, 2_500, "validation", "forward"))]),
            stacks(optimizer=90, forward=110),
        ),
    ],
    ids=["within the samples' error", "too few samples", "samples of validations may be among them"],
)
def test_time_that_samples_do_not_contradict_stays(rows: pl.DataFrame, samples: pl.DataFrame) -> None:
    assert place_unknown(rows, samples, sums(), ()).equals(rows)
