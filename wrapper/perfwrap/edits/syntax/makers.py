"""Which variables a function has of its own, and what the values of variables and attributes are made by."""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.syntax.call_arguments import called_name
from perfwrap.edits.syntax.names import is_stored, is_variable
from perfwrap.edits.syntax.operations import computes, is_module, pairs
from perfwrap.edits.syntax.source_tree import Source, dotted_name

TENSOR = "a tensor"


def root(node: cst.CSTNode) -> str:
    """Return the name that a chain of attributes, calls and subscripts begins with."""
    while isinstance(node, cst.Attribute | cst.Call | cst.Subscript):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node.value if isinstance(node, cst.Name) else ""


def own_names(source: Source, outer: cst.FunctionDef | cst.Lambda | cst.ClassDef) -> set[str]:
    """Return the parameters of a function and the variables that get values in it."""
    found = {
        node.value
        for node in source.inside(outer.body, cst.Name)
        if source.scope(node) is outer and is_variable(source, node) and is_stored(source, node)
    }
    if not isinstance(outer, cst.ClassDef):
        found |= {each.name.value for each in source.inside(outer.params, cst.Param)}
    shared = [*source.inside(outer.body, cst.Global), *source.inside(outer.body, cst.Nonlocal)]
    return found - {item.name.value for each in shared for item in each.names}


def _maker(source: Source, value: cst.BaseExpression) -> str:
    """Return the class that a call makes an object of; TENSOR for operations of torch."""
    assert isinstance(value, cst.Call)
    return TENSOR if is_module(source, root(value)) and computes(source, value) else called_name(value)


def constructors(source: Source) -> dict[str, set[str]]:
    """Return by the name of a variable or an attribute what it is made by: the classes, or an empty text."""
    found: dict[str, set[str]] = {}
    for assign in source.inside(source.module, cst.Assign):
        for target, value in pairs(assign):
            each = target.elements if isinstance(target, cst.Tuple | cst.List) else [target]
            for one in each:
                name = dotted_name(one.value if isinstance(one, cst.Element) else one).rpartition(".")[2]
                is_known = isinstance(value, cst.Call) and one is target
                found.setdefault(name, set()).add(_maker(source, value) if is_known else "")
    for node in source.inside(source.module, cst.For, cst.CompFor, cst.Param, cst.NamedExpr, cst.WithItem):
        name_of = node.name if isinstance(node, cst.Param) else node
        for name in source.inside(name_of, cst.Name):
            if isinstance(node, cst.Param) or is_stored(source, name):
                found.setdefault(name.value, set()).add("")
    return found
