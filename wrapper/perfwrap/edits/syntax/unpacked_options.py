"""Finds the options that calls unpack (``**options``): the literal dictionaries that they may be made of.

The name may get one dictionary or, by conditions, one of several: ``{...} if use_gpu else {}``. Others may be added to
it by ``update()``, and single items by ``options["key"] = value``. Where conditions choose, the values that the run had
tell which dictionary it used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import libcst as cst
from msgspec import Struct

from perfwrap.edits.outcome import Refusal, Value
from perfwrap.edits.syntax.call_arguments import has_value, is_method
from perfwrap.edits.syntax.names import is_stored, mentions, parameter_of, writes, writes_anywhere
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.value_origin import assigned_value, is_literal, key_of

DEFAULTS: dict[str, Value] = {
    "num_workers": 0,
    "pin_memory": False,
    "persistent_workers": False,
    "batch_size": 1,
}
"""What a DataLoader has without the argument, where that is the same in all versions."""


class Part(Struct, frozen=True):
    """A literal dictionary of which the options may be made, or an item that is set alone: then ``node`` is None."""

    items: Mapping[str, cst.BaseExpression]
    node: cst.Dict | cst.Call | None
    is_base: bool
    """Whether it is assigned; of several such parts the options are one. Other parts are added to it."""
    always: bool
    """Whether the options certainly have it: no condition decides."""


def parts_of(source: Source, name: cst.BaseExpression, is_user: Callable[[cst.Call], bool]) -> list[Part]:
    """Return the parts of the options that a call unpacks under a name, in the order in which they are added.

    Raises Refusal if something else may change them, or if calls other than the users unpack or get them.
    """
    dotted = dotted_name(name)
    if not dotted:
        raise Refusal(f"{source.code(name)} at line {source.line(name)} is no name of a dictionary.")
    home = _home(source, dotted, name)
    stores = _stores(source, home, dotted)
    values = [assigned_value(source, store) for store in stores]
    found = [one for value in values for one in (_alternatives(value) if value is not None else [None])]
    if not found or any(not isinstance(one, cst.Dict | cst.Call) for one in found):
        raise Refusal(f"{dotted} is not assigned as a literal dictionary.")
    if any(source.loop(store) is not None for store in stores):
        raise Refusal(f"{dotted} is assigned in a loop.")
    parts = [_part(source, dotted, one, True, len(found) == 1) for one in found]
    for node in _mentions(source, home, dotted):
        parts += _added(source, dotted, node, name, is_user)
    return parts


def place_of(
    source: Source, parts: list[Part], keyword: str, seen: Mapping[str, Value]
) -> cst.BaseExpression | Part | None:
    """Return the value that the run had for a keyword, or the part to add it to, or None if no part has it.

    Raises Refusal if that is not certain.
    """
    having = [index for index, part in enumerate(parts) if keyword in part.items]
    if not having:
        return None
    first = max((index for index in having if parts[index].always), default=0)
    values = [parts[index].items[keyword] for index in having if index >= first]
    without = [part for part in parts if part.is_base and keyword not in part.items]
    may_lack = bool(without) and not any(parts[index].always for index in having)
    if len(values) == 1 and not may_lack:
        return values[0]
    said = f"Conditions decide about {keyword}, and"
    if keyword not in seen:
        raise Refusal(f"{said} what the run had is not known.")
    if not all(is_literal(value) for value in values):
        raise Refusal(f"{said} not all of its values are literals.")
    same = [value for value in values if has_value(source, value, seen[keyword])]
    lacks = may_lack and DEFAULTS.get(keyword) == seen[keyword]
    if len(same) + lacks != 1 or (lacks and len(without) != 1):
        raise Refusal(f"{said} it is not certain which of its values the run had.")
    return same[0] if same else without[0]


def _home(source: Source, dotted: str, node: cst.CSTNode) -> cst.CSTNode:
    """Return the function or module in which a name gets its value."""
    scope = source.module if "." in dotted else source.scope(node)
    if "." in dotted and _stores(source, scope, dotted):
        return scope
    while True:
        if isinstance(scope, cst.FunctionDef) and parameter_of(scope, dotted) is not None:
            raise Refusal(f"{dotted} is a parameter of {scope.name.value}().")
        if not isinstance(scope, cst.ClassDef | cst.Lambda) and writes(source, scope, dotted):
            return scope
        if isinstance(scope, cst.Module):
            raise Refusal(f"{dotted} is not assigned in this file.")
        scope = source.scope(scope)


def _stores(source: Source, home: cst.CSTNode, dotted: str) -> list[cst.CSTNode]:
    """Return where a name gets its value: a variable in its scope, an attribute anywhere."""
    return writes_anywhere(source, dotted) if "." in dotted else writes(source, home, dotted)


def _mentions(source: Source, home: cst.CSTNode, dotted: str) -> Iterator[cst.CSTNode]:
    """Return where the name of a scope is read, there and in the functions inside that have none of that name."""
    for node in mentions(source, home, dotted):
        scope = home if "." in dotted else source.scope(node)
        while scope is not home and not (
            isinstance(scope, cst.FunctionDef)
            and (parameter_of(scope, dotted) is not None or writes(source, scope, dotted))
        ):
            scope = source.scope(scope)
        if scope is home and not is_stored(source, node):
            yield node


def _alternatives(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return what a conditional expression chooses from; the value itself if it is none."""
    if isinstance(value, cst.IfExp):
        return [*_alternatives(value.body), *_alternatives(value.orelse)]
    return [value]


def _part(source: Source, dotted: str, node: object, is_base: bool, always: bool) -> Part:
    """Return the part that a literal dictionary is, or a call with keywords alone."""
    if isinstance(node, cst.Call):
        if is_base and dotted_name(node.func) != "dict" or any(found.keyword is None for found in node.args):
            raise Refusal(f"{dotted} is not a literal dictionary.")
        items = {found.keyword.value: found.value for found in node.args if found.keyword is not None}
        return Part(items, node, is_base, always)
    assert isinstance(node, cst.Dict)
    keys = [key_of(element) for element in node.elements]
    if any(key is None for key in keys):
        raise Refusal(f"{dotted} has keys that are not written as text.")
    return Part(
        {str(key): found.value for key, found in zip(keys, node.elements, strict=True)}, node, is_base, always
    )


def _added(
    source: Source,
    dotted: str,
    node: cst.CSTNode,
    name: cst.BaseExpression,
    is_user: Callable[[cst.Call], bool],
) -> list[Part]:
    """Return what a use of the name adds to the options; raises Refusal if it may do anything else."""
    parent = source.parent(node)
    outer = source.parent(parent) if parent is not None else None
    if isinstance(parent, cst.Arg) and isinstance(outer, cst.Call):
        is_read = is_user(outer) if parent.star == "**" else _is_update(source, outer)
        if not is_read:
            raise Refusal(f"{dotted} is also used at line {source.line(node)}.")
        if not parent.star and isinstance(outer.func, cst.Attribute):
            # What the other dictionary is used for, these items are used for.
            _check_users(source, outer.func.value, is_user)
        return []
    if isinstance(parent, cst.Attribute) and isinstance(outer, cst.Call):
        if parent.attr.value in ("get", "items", "keys", "values", "copy"):
            return []
        if not _is_update(source, outer):
            raise Refusal(f"{dotted} is changed by {parent.attr.value}() at line {source.line(node)}.")
        return [_of_update(source, dotted, outer, name, is_user)]
    if isinstance(parent, cst.Subscript):
        if not is_stored(source, parent):
            return []
        assign = source.parent(outer) if isinstance(outer, cst.AssignTarget) else None
        index = parent.slice[0].slice if len(parent.slice) == 1 else None
        key = index.value if isinstance(index, cst.Index) else None
        if isinstance(assign, cst.Assign) and len(assign.targets) == 1 and isinstance(key, cst.SimpleString):
            items = {str(key.evaluated_value): assign.value}
            return [Part(items, None, False, _reaches(source, dotted, node, name))]
    raise Refusal(f"{dotted} is used in another way at line {source.line(node)}.")


def _is_update(source: Source, call: cst.Call) -> bool:
    """Return whether a call is a statement ``name.update(...)`` with one dictionary or with keywords."""
    given = [found for found in call.args if found.keyword is None]
    return (
        is_method(call, "update")
        and isinstance(source.parent(call), cst.Expr)
        and (not given or len(call.args) == 1 and not given[0].star)
    )


def _of_update(
    source: Source, dotted: str, call: cst.Call, name: cst.BaseExpression, is_user: Callable[[cst.Call], bool]
) -> Part:
    """Return the part that ``update()`` adds."""
    always = _reaches(source, dotted, call, name)
    given = [found.value for found in call.args if found.keyword is None]
    if not given:
        return _part(source, dotted, call, False, always)
    if isinstance(given[0], cst.Dict):
        return _part(source, dotted, given[0], False, always)
    other = given[0]
    if not isinstance(other, cst.Name):
        raise Refusal(f"Line {source.line(call)} adds to {dotted} what is not a literal dictionary.")
    home = _home(source, other.value, other)
    stores = writes(source, home, other.value)
    value = assigned_value(source, stores[0]) if len(stores) == 1 else None
    if not isinstance(value, cst.Dict | cst.Call):
        raise Refusal(f"{other.value} is not assigned once, as a literal dictionary.")
    for node in _mentions(source, home, other.value):
        parent = source.parent(node)
        outer = source.parent(parent) if isinstance(parent, cst.Arg) and not parent.star else None
        if not isinstance(outer, cst.Call) or not _is_update(source, outer):
            raise Refusal(f"{other.value} is also used at line {source.line(node)}.")
        assert isinstance(outer.func, cst.Attribute)
        _check_users(source, outer.func.value, is_user)
    part = _part(source, other.value, value, True, always)
    return Part(part.items, part.node, False, always)


def _check_users(source: Source, name: cst.BaseExpression, is_user: Callable[[cst.Call], bool]) -> None:
    """Refuse a dictionary that is used for anything else than its users and its own changes."""
    dotted = dotted_name(name)
    if not dotted:
        raise Refusal(f"Line {source.line(name)} adds the options to something else.")
    for node in _mentions(source, _home(source, dotted, name), dotted):
        parent = source.parent(node)
        outer = source.parent(parent) if parent is not None else None
        is_used = (
            isinstance(parent, cst.Arg)
            and parent.star == "**"
            and isinstance(outer, cst.Call)
            and is_user(outer)
        )
        if not is_used and not isinstance(parent, cst.Attribute | cst.Subscript):
            raise Refusal(f"{dotted} is also used at line {source.line(node)}.")


def _reaches(source: Source, dotted: str, node: cst.CSTNode, name: cst.BaseExpression) -> bool:
    """Return whether what a statement adds certainly is in the options that the call under the name unpacks.

    Raises Refusal for a statement behind that call or in a loop, which may add to them later.
    """
    stores = _stores(source, _home(source, dotted, name), dotted)
    is_early = any(source.line(store) > source.line(node) for store in stores)
    if is_early or source.loop(node) is not None or source.line(node) >= source.line(name):
        raise Refusal(f"{dotted} is changed at line {source.line(node)}.")
    if source.scope(node) is not source.scope(name) and not isinstance(source.scope(node), cst.Module):
        raise Refusal(f"{dotted} is changed in another function, at line {source.line(node)}.")
    block = next(source.around(source.statement(node), cst.IndentedBlock, cst.Module))
    return isinstance(block, cst.Module) or source.is_inside(name, block)


def with_items(
    original: cst.Dict, updated: cst.CSTNode, wanted: Mapping[str, cst.BaseExpression]
) -> cst.BaseExpression:
    """Return an updated dictionary with items added behind its last one, in the style of the original."""
    assert isinstance(updated, cst.Dict)
    elements = list(updated.elements)
    first = next((each.key for each in original.elements if isinstance(each, cst.DictElement)), None)
    quote = first.quote if isinstance(first, cst.SimpleString) and len(first.quote) == 1 else '"'
    end = updated.rbrace.whitespace_before
    comment = (
        end.first_line if isinstance(end, cst.ParenthesizedWhitespace) and end.first_line.comment else None
    )
    if comment is not None and isinstance(end, cst.ParenthesizedWhitespace):
        bare = comment.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
        updated = updated.with_changes(
            rbrace=updated.rbrace.with_changes(whitespace_before=end.with_changes(first_line=bare))
        )
    for keyword, value in wanted.items():
        new = cst.DictElement(cst.SimpleString(f"{quote}{keyword}{quote}"), value)
        if elements:
            between = _between(original)
            if comment is not None and isinstance(between, cst.ParenthesizedWhitespace):
                # A comment behind the last item stays in its line.
                between, comment = between.with_changes(first_line=comment), None
            new = new.with_changes(comma=elements[-1].comma)
            elements[-1] = elements[-1].with_changes(comma=cst.Comma(whitespace_after=between))
        elements.append(new)
    return updated.with_changes(elements=elements)


def _between(original: cst.Dict) -> cst.BaseParenthesizableWhitespace:
    """Return what separates two items of a dictionary: a space, or a new line with its indentation."""
    comma = original.elements[-2].comma if len(original.elements) > 1 else None
    space = comma.whitespace_after if isinstance(comma, cst.Comma) else original.lbrace.whitespace_after
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return cst.SimpleWhitespace(" ")
    bare = space.first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
    return space.with_changes(first_line=bare, empty_lines=[])
