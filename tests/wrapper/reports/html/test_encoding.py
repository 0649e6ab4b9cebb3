from __future__ import annotations

import base64
import json
import struct
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.reports.html.encoding import clipped, embedded, levels, moments, numbers

KINDS = {"f4": "f", "i4": "i", "u4": "I", "u1": "B"}


def read(packed: dict[str, Any]) -> list[float]:
    raw = base64.b64decode(packed["b"])
    kind = KINDS[packed["d"]]
    values = struct.unpack(f"<{len(raw) // struct.calcsize(kind)}{kind}", raw)
    return (
        [packed["first"] + value * packed["step"] for value in values] if "step" in packed else list(values)
    )


@given(st.text())
def test_no_text_can_end_the_element_that_it_is_in(text: str) -> None:
    reported = embedded({"text": text, text: "key"})
    assert not set("<>&") & set(reported)
    assert reported.isascii()
    assert json.loads(reported)["text"] == ("key" if text == "text" else text)


def test_a_number_that_is_none_is_refused_rather_than_written_as_no_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        embedded({"value": float("nan")})


def test_numbers_come_back_as_they_were() -> None:
    assert read(numbers([1.5, -2.0])) == [1.5, -2.0]
    assert read(numbers([], "i4")) == []
    assert read(numbers([0, 255], "u1")) == [0, 255]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_moments_are_right_to_a_billionth_of_their_extent(values: list[float]) -> None:
    extent = max(values) - min(values)
    assert np.allclose(read(moments(values)), values, rtol=0, atol=1e-9 * extent + 1e-9)


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = clipped("a" * 5_000 + "train.py", 100)
    assert len(text) <= 100
    assert text.startswith("aaa")
    assert text.endswith("train.py")


@given(st.integers(0, 5_000), st.integers(100, 1_000))
def test_each_level_lies_between_the_least_and_the_most_of_what_it_represents(
    points: int, finest: int
) -> None:
    y = np.sin(np.arange(points)) * 10
    found = levels(pl.DataFrame({"x": np.arange(points) / 7, "y": y}), finest, 100)
    assert len(read(found[-1]["y"])) <= 100
    assert len(read(found[0]["y"])) <= finest
    for level in found:
        columns = [np.array(read(level[name])) for name in ("low", "y", "high") if name in level]
        assert all((np.diff(columns, axis=0) >= 0).ravel())
        if points and "low" in level:
            assert columns[0].min() == pytest.approx(y.min(), rel=1e-6)
            assert columns[-1].max() == pytest.approx(y.max(), rel=1e-6)
