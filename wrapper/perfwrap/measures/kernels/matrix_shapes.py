"""The FLOPs, the minimum bytes and the alignment of a matrix operation, from its sizes.

Counted like PyTorch's own flop counter (torch/utils/flop_counter.py): a multiplication and an addition are two.
Attention counts without a mask; its backward pass has the five products of flash attention.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from math import prod
from typing import Any

from msgspec import Struct

BITS = {"c10::BFloat16": 16, "c10::Half": 16, "float": 32, "double": 64}
"""Types of the elements as PyTorch's traces name them."""
HALF = 16
ALIGNED_BYTES = 16
"""Sizes that are multiples of this many bytes let tensor cores run at full speed (NVIDIA, Matrix Multiplication
Background User's Guide, "Tensor Core requirements")."""

MAX_TENSORS = 4
"""How many of a function's arguments are used; lists of tensors have nested sizes."""

SIZES = ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm")


class Matrix(Struct, frozen=True):
    """One operation: ``sizes`` in words, ``bits`` of an element (None: not recorded), ``flops`` and ``bytes``."""

    kind: str
    op: str
    sizes: str
    bits: int | None
    flops: float | None
    bytes: float | None
    unaligned: tuple[int, ...]
    """Sizes that are not multiples of ALIGNED_BYTES; empty if the type is unknown."""
    key: tuple[tuple[int, ...], ...] = ()
    """For a convolution: sizes of its input and weight."""
    passes: int = 1
    """Number of products of this size; a convolution's backward pass has two."""


@lru_cache(maxsize=50_000)
def matrix_of(detail: str) -> Matrix | None:
    """Return the operation of a mark named ``matrix``; None if its sizes do not fit such a function."""
    said = json.loads(detail)
    name = str(said["op"]).removeprefix("aten::")
    dims = [tuple(size) for size in said["dims"]]
    if any(type(number) is not int for size in dims[:MAX_TENSORS] for number in size):
        return None
    bits = BITS.get(next(iter(said["types"]), ""))
    if name in SIZES:
        return _product(name, dims[1:] if name in ("addmm", "baddbmm") else dims, bits)
    if "attention" in name:
        return _attention(name, dims, bits)
    return _convolution(name, dims, bits)


def _product(name: str, dims: list[tuple[int, ...]], bits: int | None) -> Matrix | None:
    """Return a matrix product, or a batch of them."""
    if len(dims) < 2 or len(dims[0]) != len(dims[1]) or len(dims[0]) not in (2, 3):
        return None
    (*many, m, k), (*_, inner, n) = dims[0], dims[1]
    batch = prod(many)
    if k != inner or min(m, n, k, batch) <= 0:
        return None
    moved = batch * (m * k + k * n + m * n)
    times = f"{batch} times " if many else ""
    return Matrix(
        "gemm", name, f"{times}{m} x {k} by {k} x {n}", bits, 2.0 * batch * m * n * k, _bytes(moved, bits),
        _unaligned((m, n, k), bits),
    )  # fmt: skip


def _attention(name: str, dims: list[tuple[int, ...]], bits: int | None) -> Matrix | None:
    """Return a fused attention over queries, keys and values of (batch, heads, length, size)."""
    backward = name.endswith("backward")
    q, k = dims[1:3] if backward else dims[0:2]
    if len(q) != 4 or len(k) != 4 or not all(q) or not all(k):
        return None
    batch, heads, length, size = q
    # Scores and their product with the values; the backward pass has five of the same.
    flops = (5 if backward else 2) * 2.0 * batch * heads * length * k[2] * size
    moved = 2 * prod(q) + 2 * prod(k)
    words = f"{batch} x {heads} heads, {length} by {k[2]} of {size}"
    return Matrix("attention", name, words, bits, flops, _bytes(moved, bits), _unaligned((size,), bits))


def _convolution(name: str, dims: list[tuple[int, ...]], bits: int | None) -> Matrix | None:
    """Return a convolution: the backward pass has the output's size, the forward pass does not."""
    if len(dims) < 2:
        return None
    backward = name.endswith("backward")
    if backward and name.startswith("cudnn"):
        (source, gradient, weight) = dims[:3]
    elif backward:
        (gradient, source, weight) = dims[:3]
    else:
        (source, weight), gradient = dims[:2], ()
    if len(source) < 3 or len(weight) != len(source):
        return None
    sizes = f"{'x'.join(map(str, source))} with {'x'.join(map(str, weight))}"
    one = 2.0 * prod(gradient) * prod(weight[1:]) if gradient else None
    moved = prod(source) + prod(weight) + prod(gradient) if gradient else None
    passes = 2 if backward else 1
    return Matrix(
        "conv", name, sizes, bits, one and one * passes, _bytes(moved and moved * passes, bits),
        _unaligned((source[1], weight[0]), bits), (source, weight), passes,
    )  # fmt: skip


def _bytes(elements: float | None, bits: int | None) -> float | None:
    return None if elements is None or bits is None else elements * bits / 8


def _unaligned(sizes: Iterable[int], bits: int | None) -> tuple[int, ...]:
    """Return the sizes that are slow on tensor cores."""
    if bits is None or bits > 32:
        return ()
    multiple = ALIGNED_BYTES * 8 // bits
    return tuple(dict.fromkeys(size for size in sizes if size % multiple))


def forward_flops(matrices: Iterable[Matrix]) -> dict[Any, tuple[float, float | None]]:
    """Return FLOPs and bytes of one pass of each convolution with a backward pass, by its sizes."""
    return {
        matrix.key: (matrix.flops / matrix.passes, matrix.bytes and matrix.bytes / matrix.passes)
        for matrix in matrices
        if matrix.kind == "conv" and matrix.flops
    }
