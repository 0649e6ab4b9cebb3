"""Operations whose derivatives PyTorch computes in another way while a dispatch mode is on the stack.

``isTensorSubclassLike`` of PyTorch's derivatives is true for every tensor then, and these formulas ask it. Their
results differ in the last bits, in the sign of zeros or in their strides. So backward must run without the mode.

Found by ``scripts/fidelity/operations.py``, which compares all operations of PyTorch's own tests.
"""

from __future__ import annotations

import sys

from perfwrap_recorder.instrumenting import instrument

PRODUCTS = frozenset(("prod", "cumprod", "_linalg_det", "masked_fill"))
DECOMPOSITIONS = frozenset(("ormqr", "linalg_qr", "linalg_eig", "_linalg_eigh", "linalg_matrix_exp", "sgn"))
"""Mostly strides of second derivatives differ; optimizers use these operations without derivatives."""
EXTREMES = frozenset(("max", "min", "median", "nanmedian"))
"""Of all elements, which is their only argument, the sign of zeros in the gradient differs."""
FILLED = 2
"""The argument of ``masked_fill`` whose derivative is meant."""


def watch_backward(torch, begins):
    """Call ``begins()`` before each backward pass; return whether it will be called."""
    run = getattr(torch.autograd.graph, "_engine_run_backward", None)
    functions = (run,) if run is not None else (torch.autograd.backward, torch.autograd.grad)
    return all(instrument.instrument(torch, each, begins, _pass) for each in functions)


def nested_passes(torch):
    """Return how many backward passes this one is inside of."""
    if torch._C._current_graph_task_id() == -1:
        return 0
    run = getattr(torch.autograd.graph, "_engine_run_backward", torch.autograd.backward)
    count, frame, code = 0, sys._getframe(1), run.__code__
    while frame is not None:
        count += frame.f_code is code
        frame = frame.f_back
    return count


def watch_profilers(torch, begins):
    """Call ``begins()`` before a profiler starts, which would count each operation twice."""
    kind = torch.autograd.profiler.profile
    return all(
        instrument.instrument(torch, each, begins, _pass) for each in (kind._prepare_trace, kind._start_trace)
    )


def is_one(name, arguments, is_tracked, is_without):
    """Return whether the derivative of that call depends on the mode, if it is computed.

    ``is_tracked``: an argument needs a gradient, and gradients are on. ``is_without``: they are off, but the operation
    ``may_run_again`` with gradients.
    """
    if name in DECOMPOSITIONS:
        return is_tracked
    if name in EXTREMES:
        return is_tracked and len(arguments) == 1
    if name.startswith("masked_fill"):
        value = arguments[FILLED] if len(arguments) > FILLED else None
        return getattr(value, "requires_grad", False)
    return is_tracked or (is_without and (arguments[0].is_floating_point() or arguments[0].is_complex()))


def may_run_again(frame):
    """Return whether a frame seems to run inside of the forward method of an ``autograd.Function``.

    Gradients are off in it. That of activation checkpointing runs the operation again with gradients inside of
    backward, too late to remove the mode. Such a method is static: its first argument is the context, or an input.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == "forward" and code.co_varnames[:1] != ("self",):
            return True
        frame = frame.f_back
    return False


def _pass(state, result):
    """Never called: ``begins`` returns no state."""
