"""Compare each operation of PyTorch's own tests with and without the mode of a dataflow window, bit for bit.

    python scripts/fidelity/operations.py                          all operations, in single precision
    python scripts/fidelity/operations.py --dtype complex64 prod   only those with these names, in another precision

Runs in an interpreter with torch, numpy, scipy and expecttest. For each sample of PyTorch's ``op_db`` it computes
results, gradients, and gradients of gradients, twice without the mode and once with it, and compares bytes and strides;
samples that differ without the mode are left out. It prints the operations that differ, and what of them.

The mode is on the stack during backward here, which it is not in a window if an operation is in the tables of
``inject/perfwrap_recorder/dataflow/mode_dependent.py``: the exit code is 1 if an operation differs that is not known.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "inject"))
from perfwrap_recorder import guard
from perfwrap_recorder.dataflow import operation_mode, watched_operations

KNOWN = frozenset(
    (
        *("prod", "masked.prod", "cumprod", "masked.cumprod", "linalg.vander", "linalg.det", "masked_fill"),
        *("ormqr", "qr", "linalg.qr", "linalg.eig", "linalg.eigh", "matrix_exp", "sgn"),
        *("max", "min", "median", "nanmedian"),  # of all elements
        "nn.functional.rms_norm",  # strides of a second derivative without elements
        *("empty", "empty_like", "empty_strided", "new_empty", "linalg.lstsq"),  # memory that is not set
    )
)
MAX_SAMPLES = 40
SEED = [7]
"""Of the gradients that backward begins with, whose signs matter: some formulas differ in the sign of a zero."""
REFUSALS = RuntimeError, ValueError, TypeError, AssertionError, IndexError
LEVELS = ("result", "gradient", "gradient with a graph", "second gradient")
Found = tuple[list[list[Any]], bytes]


def compare(dtype: torch.dtype, names: list[str]) -> dict[str, Counter[str]]:
    """Return the operations that differ, and how often in what; prints how many samples were compared."""
    different: dict[str, Counter[str]] = {}
    compared = left_out = 0
    for operation in op_db:
        if (names and operation.name not in names) or not operation.supports_dtype(dtype, "cpu"):
            continue
        tracked = operation.supports_autograd and dtype in operation.supported_backward_dtypes("cpu")
        try:
            samples = list(operation.sample_inputs("cpu", dtype, requires_grad=tracked))
        except REFUSALS:
            continue
        for sample in samples[:MAX_SAMPLES]:
            for twice in (False, True) if tracked and operation.supports_gradgrad else (False,):
                try:
                    first, second = (run(operation, sample, twice, nullcontext) for _ in range(2))
                except REFUSALS:
                    left_out += 1
                    continue
                if first != second:
                    left_out += 1
                    continue
                compared += 1
                what = _difference(operation, sample, twice, first)
                if what:
                    different.setdefault(operation.name, Counter())[what] += 1
    print(f"{dtype}: {compared} samples compared, {left_out} left out, {len(different)} operations differ")
    return different


def run(
    operation: Any, sample: Any, twice: bool, make: Callable[[], AbstractContextManager[object]]
) -> Found:
    """Return results and gradients of one sample as bytes, and the state of the random generator."""
    arguments = tree_map(_copy, (sample.input, sample.args, sample.kwargs))
    leaves = [
        each for each in tree_leaves(arguments) if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    torch.manual_seed(SEED[0])
    with make():
        results = [
            each
            for each in tree_leaves(operation(arguments[0], *arguments[1], **arguments[2]))
            if isinstance(each, torch.Tensor)
        ]
        levels = [results]
        ends = [each for each in results if each.requires_grad]
        if ends and leaves:
            starts = [torch.randn_like(each) for each in ends]
            levels.append(_gradients(ends, leaves, starts, retain_graph=twice))
            if twice:
                starts = [each.requires_grad_() for each in starts]
                levels.append(_gradients(ends, leaves, starts, create_graph=True))
                sums = [each.abs().sum() for each in levels[-1] if each is not None and each.requires_grad]
                if sums:
                    levels.append(_gradients(sums, leaves + starts, None))
    return [[_bits(each) for each in level] for level in levels], torch.get_rng_state().numpy().tobytes()


def _gradients(ends: Any, leaves: Any, starts: Any, **options: bool) -> list[Any]:
    return list(torch.autograd.grad(ends, leaves, starts, allow_unused=True, **options))


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return (value.detach() if value.is_conj() else value.detach().clone()).requires_grad_(value.requires_grad)


def _bits(tensor: Any) -> Any:
    if tensor is None:
        return None
    tensor = tensor.detach()
    plain = tensor.to_dense() if tensor.layout != torch.strided else tensor.resolve_conj().resolve_neg()
    dense = b"" if plain.is_quantized else plain.clone(memory_format=torch.contiguous_format).reshape(-1)
    data = dense.view(torch.uint8).numpy().tobytes() if len(dense) else b""
    return tuple(plain.shape), str(plain.dtype), data, plain.stride()


def _difference(operation: Any, sample: Any, twice: bool, bare: Found) -> str:
    """Return what of a sample differs with the mode, "" if nothing."""
    guard.failed.clear()
    watched = watched_operations.Watched(torch, [])

    def push() -> Any:
        return operation_mode.make(torch, watched)

    try:
        found = run(operation, sample, twice, push)
    except REFUSALS as error:
        return f"raised {type(error).__name__}"
    if guard.failed:
        return f"perfwrap's own code failed: {guard.failed}"
    for name, one, other in zip(LEVELS[: len(bare[0])], bare[0], found[0], strict=True):
        if one != other:
            is_strides = [each and each[:3] for each in one] == [each and each[:3] for each in other]
            return f"{'strides' if is_strides else 'bits'} of the {name}"
    return "" if bare[1] == found[1] else "random numbers"


def main() -> int:
    """Compare what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only operations with these names")
    parser.add_argument(
        "--dtype", default="float32", help="a type that PyTorch names so, for example bfloat16"
    )
    parser.add_argument(
        "--seed", type=int, default=SEED[0], help="of the gradients that backward begins with"
    )
    arguments = parser.parse_args()
    SEED[0] = arguments.seed
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    different = compare(getattr(torch, arguments.dtype), arguments.names)
    for name, counts in sorted(different.items()):
        mark = "" if name in KNOWN else "  NOT KNOWN"
        print(f"{name}: {', '.join(f'{what} ({count})' for what, count in counts.items())}{mark}")
    return int(any(name not in KNOWN for name in different))


if __name__ == "__main__":
    sys.exit(main())
