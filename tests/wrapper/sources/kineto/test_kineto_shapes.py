from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.wrapper.sources.traces import lasting, read, written


def marks(path: Path) -> list[dict[str, Any]]:
    found = read(path).marks.filter(pl.col("name") == "matrix").sort("time")
    return [json.loads(text) for text in found["detail"]]


def test_sizes_and_types_of_matrix_functions_become_marks(tmp_path: Path) -> None:
    dims = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}
    path = written(
        tmp_path / "trace.json",
        [lasting("cpu_op", "aten::mm", 10, 5, **dims), lasting("cpu_op", "aten::add", 20, 5, **dims)],
    )
    assert marks(path) == [{"op": "aten::mm", "dims": [[4, 8], [8, 2]], "types": ["float", "float"]}]
    assert read(path).marks.filter(pl.col("name") == "matrix")["time"].to_list() == [10_000]


def test_traces_of_1_8_have_sizes_without_types(tmp_path: Path) -> None:
    event = lasting("Operator", "aten::mm", 10, 5, **{"Input dims": [[4, 8], [8, 2]], "Input type": []})
    assert marks(written(tmp_path / "trace.json", [event])) == [
        {"op": "aten::mm", "dims": [[4, 8], [8, 2]], "types": []}
    ]


@pytest.mark.parametrize("dims", [5, "x", [1, 2], {"a": 1}, [[["deep"]], 3], None])
def test_sizes_that_are_none_are_left_out(tmp_path: Path, dims: Any) -> None:
    event = lasting("cpu_op", "aten::mm", 10, 5, **{"Input Dims": dims, "Input type": ["float"]})
    assert marks(written(tmp_path / "trace.json", [event])) == []


@pytest.mark.parametrize("name", [["aten::mm"], {"a": 1}, None, 7])
def test_names_that_are_none_do_no_harm(tmp_path: Path, name: Any) -> None:
    event = lasting("cpu_op", name, 10, 5, **{"Input Dims": [[4, 8], [8, 2]]})
    assert marks(written(tmp_path / "trace.json", [event])) == []
