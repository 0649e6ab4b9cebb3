"""Whether a function computes the same from the same inputs, and which of its inputs count by their shape alone.

Only what is listed here is allowed in such a function: operations without random numbers, hidden state or effects. It
may change tensors that it made itself, but none that it got.
"""

from __future__ import annotations

import builtins

import libcst as cst
from msgspec import Struct

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.call_arguments import argument_of, called_name, unpacked
from perfwrap.edits.syntax.names import (
    is_stored,
    is_variable,
    mentions,
    parameter_of,
    writes,
    writes_anywhere,
)
from perfwrap.edits.syntax.operations import computes, imported, is_method_that_computes, is_module, pairs
from perfwrap.edits.syntax.pure_code import BUILTINS
from perfwrap.edits.syntax.shared_memory import Sharing
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.value_origin import is_literal

ATTRIBUTES = ("shape", "dtype", "device", "ndim", "T", "mT", "is_cuda", "layout", "real", "imag")
LIMITS = ("min", "max", "eps", "tiny", "smallest_normal")
"""Values of ``torch.finfo()``."""
OF_SHAPE = ("shape", "dtype", "device", "ndim", "is_cuda")
OF_SHAPE_METHODS = ("size", "dim", "numel", "ndimension")
ODD = (
    *(cst.With, cst.Try, cst.Global, cst.Nonlocal, cst.Yield, cst.Await, cst.NamedExpr, cst.Del, cst.Import),
    *(cst.ImportFrom, cst.Lambda, cst.FunctionDef, cst.ClassDef, cst.TryStar),
)
KNOWN = {
    *BUILTINS,
    "list",
    "isinstance",
    "reversed",
    "all",
    "any",
    "range",
    "round",
    "pow",
    "divmod",
    "sorted",
}
KNOWN |= {"ValueError", "TypeError", "RuntimeError", "NotImplementedError", "AssertionError"}
VALUES = {"True", "False", "None", "int", "float", "bool", "tuple", "list", "str"}
MAX_DEPTH = 3
"""Functions of the file that call each other."""


class SameResult(Struct, frozen=True):
    """A function that computes the same from the same inputs."""

    node: cst.FunctionDef
    shapes: tuple[str, ...]
    """The parameters of which it uses only the shape, the type and the device."""
    attributes: tuple[str, ...]
    """The attributes of ``self`` that it reads."""


def check_same_result(source: Source, function: cst.FunctionDef, depth: int = MAX_DEPTH) -> SameResult:
    """Return what a function's result depends on; raises Refusal where that is not certain."""
    name = function.name.value
    if function.decorators or function.asynchronous is not None:
        raise Refusal(f"{name}() has a decorator, or is asynchronous.")
    parameters = _parameters(source, function)
    for found in source.inside(function.body, *ODD):
        raise Refusal(f"Line {source.line(found)} of {name}() does more than to compute.")
    attributes = _own_attributes(source, function)
    for node in source.inside(function.body, cst.Name):
        if is_variable(source, node) and not is_stored(source, node):
            _check_name(source, function, node, parameters)
    for attribute in source.inside(function.body, cst.Attribute):
        _check_attribute(source, attribute)
    given = Sharing(source, function, (), parameters, attributes)
    for call in source.inside(function.body, cst.Call):
        _check_call(source, function, call, given, depth)
    change = given.change()
    if change is not None:
        raise Refusal(f"Line {source.line(change)} may change what {name}() gets.")
    shapes = [each for each in parameters if each != "self" and _is_shape_only(source, function, each)]
    return SameResult(function, tuple(shapes), tuple(sorted(attributes)))


def _parameters(source: Source, function: cst.FunctionDef) -> list[str]:
    """Return the parameters; raises Refusal for unpacked ones, and for defaults that are no literals."""
    given = function.params
    if isinstance(given.star_arg, cst.Param) or given.star_kwarg is not None or given.posonly_params:
        raise Refusal(f"{function.name.value}() takes any arguments.")
    for parameter in (*given.params, *given.kwonly_params):
        if parameter.default is not None and not is_literal(parameter.default):
            raise Refusal(f"The default of {parameter.name.value} is no literal.")
    return [parameter.name.value for parameter in (*given.params, *given.kwonly_params)]


def _own_attributes(source: Source, function: cst.FunctionDef) -> set[str]:
    """Return the attributes of ``self`` that are read; raises Refusal for any other use of it."""
    found = set()
    for node in mentions(source, function.body, "self"):
        outer = source.parent(node)
        if not isinstance(outer, cst.Attribute) or is_stored(source, outer):
            raise Refusal(f"Line {source.line(node)} uses self for more than to read a value.")
        found.add(outer.attr.value)
    methods = {each.name.value for each in source.inside(source.scope(function), cst.FunctionDef)}
    if found & methods:
        raise Refusal(f"{function.name.value}() uses self.{sorted(found & methods)[0]}.")
    return found


def _check_name(source: Source, function: cst.FunctionDef, node: cst.Name, parameters: list[str]) -> None:
    """Refuse a variable that is neither the function's own nor a constant."""
    name = node.value
    is_own = name in parameters or bool(writes(source, function, name))
    if is_own and (name in KNOWN or is_module(source, name)):
        raise Refusal(f"{function.name.value}() gives {name} another meaning.")
    if is_own or name in VALUES:
        return
    if is_module(source, name) or hasattr(builtins, name):
        return
    if any(function_of(source, name)):
        return
    stored = [found for found in mentions(source, source.module, name) if is_stored(source, found)]
    outside = [found for found in stored if isinstance(source.scope(found), cst.Module)]
    is_global = any(
        item.name.value == name for each in source.inside(source.module, cst.Global) for item in each.names
    )
    if len(outside) == 1 and not is_global and _is_constant(source, outside[0]):
        return
    raise Refusal(f"{function.name.value}() uses {name}, which may change.")


def _is_constant(source: Source, node: cst.CSTNode) -> bool:
    """Return whether a name of the module gets a literal, outside of loops, alone or in a tuple."""
    assign = next(iter(source.around(node, cst.Assign)), None)
    if assign is None or source.loop(node) is not None:
        return False
    return any(is_literal(value) for target, value in pairs(assign) if target is node)


def function_of(source: Source, name: str) -> list[cst.FunctionDef]:
    """Return the one function of the module's own with a name, in a list; empty if that is not certain."""
    found = [each for each in source.inside(source.module, cst.FunctionDef) if each.name.value == name]
    if len(found) != 1 or not isinstance(source.parent(found[0]), cst.Module):
        return []
    return [] if any(is_stored(source, node) for node in mentions(source, source.module, name)) else found


def _check_attribute(source: Source, attribute: cst.Attribute) -> None:
    """Refuse an attribute that may have an effect or change unseen."""
    parent, name = source.parent(attribute), attribute.attr.value
    if isinstance(parent, cst.Call) and parent.func is attribute:
        return
    if is_module(source, dotted_name(attribute).partition(".")[0]):
        if isinstance(parent, cst.Attribute) or source.name(attribute).count(".") == 1:
            return
    elif dotted_name(attribute.value) == "self" or name in ATTRIBUTES or name in LIMITS:
        return
    raise Refusal(f"Line {source.line(attribute)} reads {source.code(attribute)}, which may change.")


def _check_call(
    source: Source, function: cst.FunctionDef, call: cst.Call, given: Sharing, depth: int
) -> None:
    """Refuse a call of anything else than what only computes."""
    name = called_name(call)
    refusal = Refusal(
        f"Line {source.line(call)} calls {source.code(call.func)}(), which may do more than to compute."
    )
    if argument_of(call, "inplace") is not None or argument_of(call, "out") is not None:
        raise refusal
    if isinstance(call.func, cst.Name):
        others = function_of(source, name)
        if others and depth and others[0] is not function and not unpacked(call):
            check_same_result(source, others[0], depth - 1)
        elif not computes(source, call) and (others or name not in KNOWN or _is_replaced(source, name)):
            raise refusal
        return
    if computes(source, call):
        return
    if not isinstance(call.func, cst.Attribute) or is_module(
        source, source.name(call.func).partition(".")[0]
    ):
        raise refusal
    base = call.func.value
    if name in ("append", "extend") and isinstance(base, cst.Name):
        if _is_own_list(source, function, base.value):
            return
    elif name.endswith("_") and is_method_that_computes(name[:-1]) and not given.may_share(base):
        return
    raise refusal


def _is_replaced(source: Source, name: str) -> bool:
    """Return whether the file gives a function of Python another meaning."""
    return name in imported(source) or bool(writes_anywhere(source, name))


def _is_own_list(source: Source, function: cst.FunctionDef, name: str) -> bool:
    """Return whether a variable only ever is a list that the function makes."""
    if parameter_of(function, name) is not None:
        return False
    values = [
        value
        for assign in source.inside(function.body, cst.Assign)
        for target, value in pairs(assign)
        if dotted_name(target) == name
    ]
    stored = writes(source, function, name)
    return len(values) == len(stored) > 0 and all(
        isinstance(value, cst.List | cst.ListComp) for value in values
    )


def _is_shape_only(source: Source, function: cst.FunctionDef, name: str) -> bool:
    """Return whether a function uses only the shape, the type and the device of a parameter."""
    for node in mentions(source, function.body, name):
        outer = source.parent(node)
        if isinstance(outer, cst.Attribute) and outer.value is node and not is_stored(source, outer):
            above = source.parent(outer)
            is_called = isinstance(above, cst.Call) and above.func is outer
            if outer.attr.value in (OF_SHAPE_METHODS if is_called else OF_SHAPE):
                continue
        elif isinstance(outer, cst.Arg):
            call = source.parent(outer)
            if isinstance(call, cst.Call) and source.code(call.func) == "len" and not outer.star:
                continue
        return False
    return True
