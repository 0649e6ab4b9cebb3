"""Where names are read and get values, and what a value is made of."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import libcst as cst

from perfwrap.edits.syntax.source_tree import Source, dotted_name

ADDING = ("append", "extend", "add", "insert", "update", "setdefault", "put", "copy_", "add_", "appendleft")
"""Methods that put something into an object."""


def is_stored(source: Source, node: cst.CSTNode) -> bool:
    """Return whether a name or an attribute gets a value there, or loses it."""
    inner, outer = node, source.parent(node)
    while isinstance(outer, cst.Element | cst.StarredElement | cst.Tuple | cst.List):
        inner, outer = outer, source.parent(outer)
    if isinstance(outer, cst.AssignTarget | cst.AsName):
        return True
    if isinstance(outer, cst.AnnAssign | cst.AugAssign | cst.NamedExpr | cst.For | cst.CompFor):
        return outer.target is inner
    return isinstance(outer, cst.Del | cst.NameItem)


def is_variable(source: Source, node: cst.CSTNode) -> bool:
    """Return whether a name is that of a variable: no keyword, parameter, attribute, import or definition."""
    parent = source.parent(node)
    if isinstance(parent, cst.Arg):
        return parent.keyword is not node
    if isinstance(parent, cst.Param):
        return parent.name is not node
    if isinstance(parent, cst.Attribute):
        return parent.attr is not node
    if isinstance(parent, cst.FunctionDef | cst.ClassDef):
        return parent.name is not node
    return not isinstance(parent, cst.ImportAlias)


def mentions(source: Source, inside: cst.CSTNode, dotted: str) -> list[cst.CSTNode]:
    """Return where a variable, or a dotted name, stands inside of a node."""
    kind = cst.Attribute if "." in dotted else cst.Name
    found = source.inside(inside, kind)
    return [node for node in found if dotted_name(node) == dotted and is_variable(source, node)]


def reads(source: Source, inside: cst.CSTNode, dotted: str) -> list[cst.CSTNode]:
    """Return where the value of a variable is read inside of a node."""
    return [node for node in mentions(source, inside, dotted) if not is_stored(source, node)]


def writes(source: Source, scope: cst.CSTNode, dotted: str) -> list[cst.CSTNode]:
    """Return where a variable gets a value in a function, class or module itself."""
    found = writes_anywhere(source, dotted, scope)
    return [node for node in found if source.scope(node) is scope]


def writes_anywhere(source: Source, dotted: str, inside: cst.CSTNode | None = None) -> list[cst.CSTNode]:
    """Return where a variable of that name gets a value inside of a node, else in the file."""
    found = mentions(source, source.module if inside is None else inside, dotted)
    return [node for node in found if is_stored(source, node)]


def stored_names(source: Source, inside: cst.CSTNode) -> set[str]:
    """Return the dotted names that get values inside of a node."""
    found = source.inside(inside, cst.Name, cst.Attribute)
    return {dotted_name(node) for node in found if is_stored(source, node) and is_variable(source, node)} - {
        ""
    }


def changed_names(source: Source, inside: cst.CSTNode) -> set[str]:
    """Return the dotted names that get values or parts inside of a node: also ``a`` of ``a[0] = 1``."""
    found = stored_names(source, inside)
    for subscript in source.inside(inside, cst.Subscript):
        if is_stored(source, subscript):
            found.add(dotted_name(subscript.value))
    for call in source.inside(inside, cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in ADDING:
            found.add(dotted_name(call.func.value))
    return found - {""}


def read_names(source: Source, inside: cst.CSTNode) -> set[str]:
    """Return the names whose values are read inside of a node; of ``a.b`` both ``a.b`` and ``a``."""
    found = source.inside(inside, cst.Name, cst.Attribute)
    return {
        dotted_name(node) for node in found if not is_stored(source, node) and is_variable(source, node)
    } - {""}


def parameter_of(function: cst.FunctionDef, name: str) -> cst.Param | None:
    """Return a parameter of a function by its name."""
    parameters = function.params
    given = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
    others = [found for found in (parameters.star_arg, parameters.star_kwarg) if isinstance(found, cst.Param)]
    return next((found for found in (*given, *others) if found.name.value == name), None)


def ingredients(source: Source, scope: cst.CSTNode, names: Iterable[str]) -> set[str]:
    """Return all names that the values of some names may be made of in a scope, these names included.

    It follows assignments, loops, ``with`` and calls of methods such as ``append``, in any order of the lines.
    """
    steps: list[tuple[set[str], set[str]]] = []
    for node in source.inside(
        scope, cst.Assign, cst.AnnAssign, cst.AugAssign, cst.For, cst.NamedExpr, cst.WithItem
    ):
        value = (
            node.iter
            if isinstance(node, cst.For)
            else node.item
            if isinstance(node, cst.WithItem)
            else node.value
        )
        if value is not None:
            target = node.target if isinstance(node, cst.For) else node
            steps.append((changed_names(source, target), read_names(source, value)))
    for call in source.inside(scope, cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in ADDING:
            given = set().union(*(read_names(source, argument.value) for argument in call.args))
            steps.append(({dotted_name(call.func.value)} - {""}, given))
    found = set(names)
    while True:
        more = set().union(*(read for stored, read in steps if stored & found)) - found
        if not more:
            return found
        found |= more


def free_name(source: Source, wanted: str) -> str:
    """Return a name that the file does not use: the wanted one, or one with a number."""
    used = set(re.findall(r"\w+", source.module.code))
    names = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in used)
