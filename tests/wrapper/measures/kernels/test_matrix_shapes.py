from __future__ import annotations

import json
from typing import Any

import pytest
from perfwrap.measures.kernels.matrix_shapes import Matrix, forward_flops, matrix_of


def matrix(op: str, *dims: list[int], kind: str = "c10::BFloat16") -> Matrix | None:
    return matrix_of(json.dumps({"op": f"aten::{op}", "dims": list(dims), "types": [kind] * len(dims)}))


@pytest.mark.parametrize(
    ("op", "dims", "flops", "moved"),
    [
        ("mm", [[2, 3], [3, 5]], 60, 2 * (6 + 15 + 10)),
        ("addmm", [[5], [2, 3], [3, 5]], 60, 2 * (6 + 15 + 10)),
        ("bmm", [[7, 2, 3], [7, 3, 5]], 420, 14 * (6 + 15 + 10)),
        ("baddbmm", [[7, 2, 5], [7, 2, 3], [7, 3, 5]], 420, 14 * (6 + 15 + 10)),
    ],
)
def test_a_product_counts_two_for_each_multiplication_and_addition(
    op: str, dims: list[list[int]], flops: float, moved: float
) -> None:
    found = matrix(op, *dims)
    assert found is not None
    assert (found.flops, found.bytes) == (flops, moved)


def test_attention_counts_scores_and_values_and_its_backward_pass_five_products() -> None:
    size = [2, 8, 128, 64]
    forward = matrix("_scaled_dot_product_flash_attention", size, size, size)
    backward = matrix("_scaled_dot_product_flash_attention_backward", size, size, size, size)
    assert forward is not None
    assert backward is not None
    assert forward.flops == 4 * 2 * 8 * 128 * 128 * 64
    assert backward.flops == 2.5 * forward.flops


def test_a_convolution_is_counted_where_its_output_is_known() -> None:
    source, weight, output = [32, 64, 56, 56], [128, 64, 3, 3], [32, 128, 28, 28]
    backward = matrix("convolution_backward", output, source, weight)
    older = matrix("cudnn_convolution_backward", source, output, weight)
    forward = matrix("cudnn_convolution", source, weight)
    one = 2.0 * 32 * 128 * 28 * 28 * 64 * 9
    assert backward is not None
    assert older is not None
    assert forward is not None
    assert (backward.flops, older.flops, forward.flops) == (2 * one, 2 * one, None)
    assert forward_flops([backward, forward])[forward.key][0] == one


@pytest.mark.parametrize(
    ("sizes", "kind", "unaligned"),
    [
        ((64, 128, 256), "c10::Half", ()),
        ((64, 130, 256), "c10::Half", (130,)),
        ((64, 130, 256), "float", (130,)),
        ((64, 132, 256), "float", ()),
        ((64, 131, 256), "double", ()),
        ((64, 131, 256), "", ()),
    ],
)
def test_sizes_are_aligned_to_16_bytes(
    sizes: tuple[int, int, int], kind: str, unaligned: tuple[int, ...]
) -> None:
    m, k, n = sizes
    found = matrix("mm", [m, k], [k, n], kind=kind)
    assert found is not None
    assert found.unaligned == unaligned


@pytest.mark.parametrize(
    "dims",
    [[], [[2, 3]], [[2, 3], [4, 5]], [[[2], 3], [3, 5]], [[2, 3], [7, 3, 5]], [[0, 3], [3, 5]], [[], []]],
)
def test_sizes_that_make_no_product_are_none(dims: Any) -> None:
    assert matrix("mm", *dims) is None
