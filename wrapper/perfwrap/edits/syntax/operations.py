"""Which operations of torch and of tensors only compute: without random numbers, hidden state or changed inputs."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import libcst as cst

from perfwrap.edits.syntax.call_arguments import called_name
from perfwrap.edits.syntax.pure_code import METHODS
from perfwrap.edits.syntax.source_tree import Source, dotted_name

MORE_METHODS = re.compile(
    "acos|addmm|asin|atan|atan2|baddbmm|bmm|coalesce|count_nonzero|cross|cumprod|diagonal|dot|einsum|erf|expm1|fill|"
    "fmod|hypot|index_add|index_fill|index_put|is_floating_point|isfinite|isinf|isnan|isclose|kthvalue|log1p|log10|log2|"
    "masked_select|median|mv|nan_to_num|nonzero|numel|outer|reciprocal|remainder|repeat_interleave|rot90|rsqrt|"
    "scatter_reduce|swapaxes|take_along_dim|tan|to_dense|trace|triu_indices|tril_indices|unflatten|unfold|unique|where|"
    "zero|bincount|broadcast_to|movedim|tile|masked_scatter|ndimension"
)
FUNCTIONS = re.compile(
    r"\w+_loss|binary_cross_entropy\w*|kl_div|linear|bilinear|conv[123]d|layer_norm|group_norm|leaky_relu|elu|logsigmoid|"
    "arange|block_diag|broadcast_tensors|cartesian_prod|cat|cdist|combinations|concat|cosine_similarity|cross_entropy|"
    "eye|finfo|full|full_like|gelu|hstack|iinfo|inverse|linspace|logspace|meshgrid|normalize|one_hot|ones|ones_like|pad|"
    "pairwise_distance|scalar_tensor|searchsorted|silu|softplus|sparse_coo_tensor|stack|tensor|unravel_index|"
    "vander|vstack|zeros|zeros_like|complex|polar|device|Size"
)
MODULES = ("torch", "torch.nn.functional", "torch.linalg", "torch.sparse", "torch.special", "math")
"""Modules whose functions of these names, and math's, only compute."""


def computes(source: Source, call: cst.Call) -> bool:
    """Return whether a call is that of a function or a method that only computes, without change of its inputs."""
    full, name = source.name(call.func), called_name(call)
    module = full.rpartition(".")[0]
    if is_module(source, dotted_name(call.func).partition(".")[0]) and module in MODULES:
        return module == "math" or is_method_that_computes(name) or FUNCTIONS.fullmatch(name) is not None
    if not isinstance(call.func, cst.Attribute):
        return False
    root = dotted_name(call.func).partition(".")[0]
    is_own = dotted_name(call.func.value) == "self" or name in _defined(source)
    return not is_own and root not in imported(source) and is_method_that_computes(name)


def changes_in_place(name: str) -> bool:
    """Return whether a method of tensors only changes the tensor itself: ``add_``."""
    return name.endswith("_") and (name == "copy_" or is_method_that_computes(name[:-1]))


@functools.lru_cache(maxsize=1)
def _defined(source: Source) -> frozenset[str]:
    """Return the names of the functions and methods that the file defines."""
    return frozenset(found.name.value for found in source.inside(source.module, cst.FunctionDef))


def is_method_that_computes(name: str) -> bool:
    """Return whether tensors have such a method, and it changes nothing."""
    return METHODS.fullmatch(name) is not None or MORE_METHODS.fullmatch(name) is not None


@functools.lru_cache(maxsize=1)
def imported(source: Source) -> frozenset[str]:
    """Return the names that the file gets by imports."""
    return frozenset(
        dotted_name(alias.asname.name if alias.asname is not None else alias.name).partition(".")[0]
        for alias in source.inside(source.module, cst.ImportAlias)
    )


def is_module(source: Source, name: str) -> bool:
    """Return whether a name is torch, math, or comes from one of them."""
    full = source.full_names.get(name, name)
    return full.partition(".")[0] in ("torch", "math")


def pairs(assign: cst.Assign) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """Return the targets of an assignment with their values, those of a tuple one by one if both sides have one."""
    for target in assign.targets:
        left, right = target.target, assign.value
        if (
            isinstance(left, cst.Tuple)
            and isinstance(right, cst.Tuple)
            and len(left.elements) == len(right.elements)
        ):
            both = [*left.elements, *right.elements]
            if all(isinstance(element, cst.Element) for element in both):
                for one, other in zip(left.elements, right.elements, strict=True):
                    yield one.value, other.value
                continue
        yield left, right
