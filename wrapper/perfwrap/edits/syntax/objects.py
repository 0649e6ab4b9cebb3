"""Which class of the file the object in a variable or an attribute is of, and under which names objects are called."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.call_arguments import called_name
from perfwrap.edits.syntax.names import mentions
from perfwrap.edits.syntax.operations import pairs
from perfwrap.edits.syntax.source_tree import Source, dotted_name


def is_script(source: Source) -> bool:
    """Return whether a file is one that other files hardly import: it is run itself."""
    return "__main__" in source.module.code or any(
        isinstance(statement, cst.For | cst.While) for statement in source.module.body
    )


def forward_of(source: Source, owner: cst.ClassDef) -> list[cst.FunctionDef]:
    """Return the method ``forward`` of a class, in a list."""
    return [
        each
        for each in source.inside(owner, cst.FunctionDef)
        if each.name.value == "forward" and source.scope(each) is owner
    ]


def class_of(source: Source, name: str) -> cst.ClassDef | None:
    """Return the module's class of which a variable or attribute of this name always is a new object."""
    values = [
        value
        for assign in source.inside(source.module, cst.Assign)
        for target, value in pairs(assign)
        if dotted_name(target).rpartition(".")[2] == name
    ]
    made = {called_name(value) if isinstance(value, cst.Call) else "" for value in values}
    classes: list[cst.ClassDef] = [
        each for each in source.inside(source.module, cst.ClassDef) if {each.name.value} == made
    ]
    if len(classes) != 1 or not isinstance(source.parent(classes[0]), cst.Module):
        return None
    return classes[0]


def names_of_objects(source: Source, owner: cst.ClassDef, methods: Collection[str] = ()) -> list[str]:
    """Return the names under which objects of a class are called; raises Refusal if there may be others.

    Of their methods only ``methods`` may be used.
    """
    found = []
    for node in mentions(source, source.module, owner.name.value):
        call = source.parent(node)
        assign = next(iter(source.around(node, cst.Assign)), None)
        names = [
            dotted_name(target).rpartition(".")[2]
            for target, value in (pairs(assign) if assign is not None else ())
            if value is call
        ]
        if not names or not all(names):
            raise Refusal(
                f"Line {source.line(node)} uses {owner.name.value} in another way than for a variable."
            )
        found += names
    for name in found:
        for node in source.inside(source.module, cst.Name):
            parent = source.parent(node)
            full = parent if isinstance(parent, cst.Attribute) and parent.attr is node else node
            outer = source.parent(full)
            is_called = isinstance(outer, cst.Call) and outer.func is full
            is_called = is_called or (isinstance(outer, cst.Attribute) and outer.attr.value in methods)
            if node.value == name and not is_called and not isinstance(outer, cst.AssignTarget | cst.Element):
                raise Refusal(f"Line {source.line(node)} uses {name} for more than to call it.")
    return found
