"""Reads the sizes of matrix operations from PyTorch traces with shapes (``record_shapes=True``).

PyTorch writes them as ``Input Dims`` and ``Input type`` of each function's event (torch/csrc/autograd/
profiler_kineto.cpp). Seen: PyTorch 1.8 (no types) to 2.13. Each becomes a mark named ``matrix`` at the function's
beginning, whose detail is a JSON object of ``op``, ``dims`` and ``types``.
"""

from __future__ import annotations

import json

import msgspec

from perfwrap.sources.kineto.trace_file import NO_JSON, Event

MARK = "matrix"

PRODUCTS = frozenset(
    {
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::baddbmm",
        "aten::_scaled_mm",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_flash_attention_backward",
        "aten::_scaled_dot_product_efficient_attention_backward",
        "aten::_scaled_dot_product_cudnn_attention_backward",
        "aten::cudnn_convolution",
        "aten::miopen_convolution",
        "aten::convolution_backward",
        "aten::cudnn_convolution_backward",
    }
)
"""PyTorch functions that call a library for one matrix product, attention or convolution."""

MAX_SHAPES = 500_000
"""Maximum number of calls whose sizes are kept; a step of a large model has some thousand."""
LONGEST_TEXT = 2000


def has_shapes(event: Event) -> bool:
    """Return whether an event is of such a function and contains its sizes."""
    about = event.args
    return about is not None and bool(bytes(about.dims) or bytes(about.old_dims))


def shapes_of(event: Event) -> str:
    """Return function, sizes and types as JSON; empty if they cannot be read."""
    about = event.args
    if about is None:
        return ""
    raw = about.old_dims if about.dims == NO_JSON else about.dims
    try:
        dims = msgspec.json.decode(raw, type=list[list[int | list[int]]])
        types = msgspec.json.decode(about.types, type=list[str]) if bytes(about.types) else []
    except msgspec.DecodeError:
        return ""
    text = json.dumps({"op": event.name, "dims": dims, "types": types})
    return text if len(text) <= LONGEST_TEXT else ""
