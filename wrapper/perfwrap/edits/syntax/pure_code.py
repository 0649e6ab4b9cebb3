"""Whether code only computes with tensors, so that it may run once for all rounds of a loop."""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.call_arguments import called_name
from perfwrap.edits.syntax.names import is_stored, parameter_of, writes
from perfwrap.edits.syntax.source_tree import Source, dotted_name

BUILTINS = ("min", "max", "len", "abs", "float", "int", "bool", "sum", "zip", "range", "tuple", "enumerate")
IMPURE = re.compile(
    r"\w*rand\w*|\w*dropout\w*|bernoulli|multinomial|normal|poisson|\w*seed\w*|save|load|compile|set_\w+|\w*[^_]_"
)
"""Functions of torch that do more than to compute, or compute another value in each round."""
METHODS = re.compile(
    "abs|all|amax|amin|any|argmax|argmin|argsort|bool|ceil|chunk|clamp|clone|contiguous|cos|cumsum|detach|diag|dim|div|"
    "double|eq|exp|expand|expand_as|flatten|flip|float|floor|gather|ge|gt|half|index_select|int|le|log|log_softmax|"
    "logical_and|logical_not|logical_or|logsumexp|long|lt|masked_fill|matmul|max|maximum|mean|min|minimum|mm|mul|"
    "narrow|ne|new_full|new_ones|new_tensor|new_zeros|norm|permute|pow|prod|relu|repeat|reshape|roll|round|scatter|"
    "scatter_add|sigmoid|sign|sin|size|softmax|sort|split|sqrt|square|squeeze|std|sub|sum|t|tanh|to|topk|transpose|"
    "tril|triu|type_as|unbind|unsqueeze|var|view|view_as"
)
"""Methods of tensors that only compute."""
MAX_DEPTH = 4
"""Functions of the file that call each other."""


def check_pure(source: Source, node: cst.CSTNode, depth: int = MAX_DEPTH) -> None:
    """Refuse code that may do more than to compute with tensors, also in functions of the file that it calls."""
    for found in source.inside(node, cst.NamedExpr, cst.Await, cst.Yield, cst.Global, cst.Nonlocal, cst.Del):
        raise Refusal(f"Line {source.line(found)} does more than to compute.")
    for name in _changed_parts(source, node):
        # A part of something that the function did not make, such as a list of the caller.
        is_own = isinstance(node, cst.FunctionDef) and parameter_of(node, name) is None
        if not is_own or not writes(source, node, name):
            raise Refusal(f"Line {source.line(node)} changes {name}.")
    for call in source.inside(node, cst.Call):
        _check_call(source, call, depth)


def _changed_parts(source: Source, node: cst.CSTNode) -> list[str]:
    """Return what is changed itself, instead of that a variable gets another value."""
    attributes = [found for found in source.inside(node, cst.Attribute) if is_stored(source, found)]
    subscripts = [found.value for found in source.inside(node, cst.Subscript) if is_stored(source, found)]
    added = [found.target for found in source.inside(node, cst.AugAssign)]
    return [source.code(found) for found in (*attributes, *subscripts, *added)]


def _check_call(source: Source, call: cst.Call, depth: int) -> None:
    """Refuse a call of anything else than torch, tensors, and functions of the file that only compute."""
    name, full = called_name(call), source.name(call.func)
    refusal = Refusal(
        f"Line {source.line(call)} calls {source.code(call.func)}(), which may do more than to compute."
    )
    if full.startswith("torch.") and not IMPURE.fullmatch(name):
        return
    if isinstance(call.func, cst.Attribute):
        root = dotted_name(call.func).partition(".")[0]
        if not METHODS.fullmatch(name) or root == "self" or root in _imported(source):
            raise refusal
        return
    functions = [found for found in source.inside(source.module, cst.FunctionDef) if found.name.value == name]
    if name in BUILTINS and not functions:
        return
    if len(functions) != 1 or not isinstance(source.scope(functions[0]), cst.Module) or not depth:
        raise refusal
    if functions[0].decorators or functions[0].asynchronous is not None:
        raise refusal
    check_pure(source, functions[0], depth - 1)


def _imported(source: Source) -> set[str]:
    """Return the names that the file gets by imports."""
    return {
        dotted_name(alias.asname.name if alias.asname is not None else alias.name).partition(".")[0]
        for alias in source.inside(source.module, cst.ImportAlias)
    }
