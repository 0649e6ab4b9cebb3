"""Finds where the value of an argument is written: in the call, a variable, an option of argparse, a dictionary."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from msgspec import Struct

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.call_arguments import argument_of, is_method, unpacked
from perfwrap.edits.syntax.names import is_stored, parameter_of, reads, writes, writes_anywhere
from perfwrap.edits.syntax.source_tree import Source, dotted_name

MAX_HOPS = 6
PARSES = ("parse_args", "parse_known_args", "parse_intermixed_args")
CHANGES = ("update", "pop", "setdefault", "clear", "popitem", "__setitem__")
"""Methods that change a dictionary."""


class Origin(Struct, frozen=True):
    """The place of a value: ``node`` is the literal that is written there."""

    node: cst.BaseExpression
    place: str
    """What it is, for a sentence: ``the default of --workers``; empty for the argument itself."""
    flags: tuple[str, ...] = ()
    """The option's names on the command line."""


def find_origin(source: Source, argument: cst.Arg, followers: tuple[str, ...] = ()) -> Origin:
    """Return where the value of a keyword argument is written; raises Refusal if that is not one literal of this file.

    A name that is used for more than this keyword is refused: changing it would change the other uses. Arguments of
    the keywords in ``followers`` may use it, too: they are meant to change with it.
    """
    origin = _follow(source, argument.value, MAX_HOPS)
    dotted = dotted_name(argument.value)
    for other in _loads(source, argument.value, dotted) if dotted else ():
        parent = source.parent(other)
        keyword = parent.keyword if isinstance(parent, cst.Arg) else None
        is_same = (
            keyword is not None and argument.keyword is not None and keyword.value == argument.keyword.value
        )
        outer = next(source.around(other, cst.Arg), None)
        follows = outer is not None and outer.keyword is not None and outer.keyword.value in followers
        if not (is_same or follows) and other is not argument.value:
            raise Refusal(f"{dotted} is used for something else at line {source.line(other)}.")
    return origin


def _loads(source: Source, node: cst.BaseExpression, dotted: str) -> list[cst.CSTNode]:
    """Return where the value of a dotted name is read: in its own scope if it belongs to it, else anywhere."""
    scope = source.scope(node)
    own = isinstance(scope, cst.FunctionDef) and (
        parameter_of(scope, dotted) is not None or bool(writes(source, scope, dotted))
    )
    return reads(source, scope if own else source.module, dotted)


def _follow(source: Source, node: cst.BaseExpression, hops: int) -> Origin:
    """Return where the value of an expression is written."""
    if hops == 0:
        raise Refusal("The value passes through too many names.")
    if is_literal(node):
        return Origin(node, "")
    if isinstance(node, cst.Name):
        return _of_name(source, node, hops)
    if isinstance(node, cst.Attribute):
        return _of_attribute(source, node, hops)
    if isinstance(node, cst.Subscript):
        return _of_item(source, node)
    raise Refusal(f"The value at line {source.line(node)} is computed: {source.code(node)}.")


def dictionary_of(source: Source, name: cst.BaseExpression) -> cst.Dict | cst.Call:
    """Return the one literal (``{...}`` or ``dict(...)``) that a name stands for and that nothing changes."""
    dotted = dotted_name(name)
    if not dotted:
        raise Refusal(f"{source.code(name)} at line {source.line(name)} is no name of a dictionary.")
    values = _assigned(source, dotted, name)
    if len(values) != 1 or not isinstance(values[0], cst.Dict | cst.Call):
        raise Refusal(f"{dotted} is not assigned once, as a literal dictionary.")
    value = values[0]
    if isinstance(value, cst.Call) and (dotted_name(value.func) != "dict" or not _all_keywords(value)):
        raise Refusal(f"{dotted} is not a literal dictionary.")
    if isinstance(value, cst.Dict) and any(key_of(element) is None for element in value.elements):
        raise Refusal(f"{dotted} has keys that are not written as text.")
    if _is_changed(source, dotted):
        raise Refusal(f"{dotted} is changed after it was made.")
    return value


def item_of(dictionary: cst.Dict | cst.Call, key: str) -> cst.BaseExpression | None:
    """Return the value of a key in a literal dictionary."""
    if isinstance(dictionary, cst.Call):
        found = argument_of(dictionary, key)
        return found.value if found else None
    return next(
        (
            element.value
            for element in dictionary.elements
            if isinstance(element, cst.DictElement) and key_of(element) == key
        ),
        None,
    )


def is_literal(node: cst.BaseExpression) -> bool:
    """Return whether an expression is a number, a text, True, False or None."""
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Minus) and is_literal(node.expression)
    if isinstance(node, cst.Name):
        return node.value in ("True", "False", "None")
    return isinstance(node, cst.Integer | cst.Float | cst.SimpleString)


def _all_keywords(call: cst.Call) -> bool:
    return all(argument.keyword is not None for argument in call.args)


def key_of(element: cst.BaseDictElement) -> str | None:
    """Return the key of an element of a dictionary if it is written as text."""
    if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
        key = element.key.evaluated_value
        return key if isinstance(key, str) else None
    return None


def _of_name(source: Source, node: cst.Name, hops: int) -> Origin:
    """Follow a variable to its only assignment, and a parameter to its only argument or to its default."""
    scope = source.scope(node)
    while True:
        if isinstance(scope, cst.FunctionDef):
            parameter = parameter_of(scope, node.value)
            if parameter is not None:
                if writes(source, scope, node.value):
                    raise Refusal(f"{node.value} is a parameter that {scope.name.value}() assigns.")
                return _of_parameter(source, scope, parameter, hops)
        if not isinstance(scope, cst.ClassDef) or scope is source.scope(node):
            stores = writes(source, scope, node.value)
            if stores:
                return _named(source, node.value, _only(source, node.value, stores), hops)
        if isinstance(scope, cst.Module):
            raise Refusal(f"{node.value} is not assigned in this file.")
        scope = source.scope(scope)


def _named(source: Source, name: str, value: cst.BaseExpression, hops: int) -> Origin:
    """Return the origin of an assigned value."""
    found = _follow(source, value, hops - 1)
    return found if found.place else Origin(found.node, f"{name} (line {source.line(found.node)})")


def _only(source: Source, name: str, stores: list[cst.CSTNode]) -> cst.BaseExpression:
    """Return the value of the only assignment among the stores."""
    values = [assigned_value(source, store) for store in stores]
    if len(values) != 1 or values[0] is None:
        raise Refusal(f"{name} is assigned in several places, or not by a simple assignment.")
    return values[0]


def assigned_value(source: Source, store: cst.CSTNode) -> cst.BaseExpression | None:
    """Return what a stored name gets, None if it is no plain assignment."""
    parent = source.parent(store)
    if isinstance(parent, cst.AnnAssign):
        return parent.value
    if isinstance(parent, cst.AssignTarget):
        statement = source.parent(parent)
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            return statement.value
    return None


def _assigned(source: Source, dotted: str, node: cst.CSTNode) -> list[cst.BaseExpression | None]:
    """Return what a dotted name gets anywhere: in its own scope if it has it, else in the whole file."""
    scope = source.scope(node)
    stores = [] if "." in dotted else writes(source, scope, dotted)
    if not stores:
        if "." not in dotted and isinstance(scope, cst.FunctionDef) and parameter_of(scope, dotted):
            raise Refusal(f"{dotted} is a parameter of {scope.name.value}().")
        stores = writes_anywhere(source, dotted)
    return [assigned_value(source, store) for store in stores]


def _is_changed(source: Source, dotted: str) -> bool:
    """Return whether a dictionary of that name is changed, or may be by something that it is passed to."""
    for node in source.inside(source.module, cst.Name, cst.Attribute):
        if dotted_name(node) != dotted or is_stored(source, node):
            continue
        parent = source.parent(node)
        if isinstance(parent, cst.Attribute):
            called = source.parent(parent)
            if isinstance(called, cst.Call) and parent.attr.value in CHANGES:
                return True
        elif isinstance(parent, cst.Subscript):
            if is_stored(source, parent):
                return True
        elif not (isinstance(parent, cst.Arg) and parent.star == "**") and not isinstance(
            parent, cst.Attribute
        ):
            return True
    return False


def _of_parameter(source: Source, function: cst.FunctionDef, parameter: cst.Param, hops: int) -> Origin:
    """Follow a parameter to the argument of the function's only call in this file, or to its default."""
    name = parameter.name.value
    if parameter in (function.params.star_arg, function.params.star_kwarg):
        raise Refusal(f"{name} is one of the unpacked parameters of {function.name.value}().")
    given = []
    for call in _calls(source, function):
        if unpacked(call):
            raise Refusal(f"{name} may be passed to {function.name.value}() at line {source.line(call)}.")
        argument = argument_of(call, name, _position(source, function, parameter))
        given.append(argument.value if argument else None)
    values = [value for value in given if value is not None]
    if not values and parameter.default is not None:
        found = _follow(source, parameter.default, hops - 1)
        place = f"the default of {name} of {function.name.value}() (line {source.line(parameter)})"
        return found if found.place else Origin(found.node, place)
    if len(given) == 1 and values:
        found = _follow(source, values[0], hops - 1)
        place = f"{name} in the call of {function.name.value}() at line {source.line(values[0])}"
        return found if found.place else Origin(found.node, place)
    raise Refusal(
        f"{name} is a parameter of {function.name.value}(), which this file does not call exactly once."
    )


def _calls(source: Source, function: cst.FunctionDef) -> Iterator[cst.Call]:
    """Return the calls of a function; of ``__init__`` those of its class."""
    owner = source.scope(function)
    name = function.name.value
    if isinstance(owner, cst.ClassDef) and name == "__init__":
        name = owner.name.value
    for call in source.inside(source.module, cst.Call):
        if dotted_name(call.func).rpartition(".")[2] == name or is_method(call, name):
            yield call


def _position(source: Source, function: cst.FunctionDef, parameter: cst.Param) -> int | None:
    """Return the position of a parameter in a call; ``self`` is none of the arguments."""
    parameters = [*function.params.posonly_params, *function.params.params]
    if parameter not in parameters:
        return None
    static = any(dotted_name(found.decorator) == "staticmethod" for found in function.decorators)
    return parameters.index(parameter) - (isinstance(source.scope(function), cst.ClassDef) and not static)


def _of_attribute(source: Source, node: cst.Attribute, hops: int) -> Origin:
    """Follow ``args.workers`` to its option or the field of its class, and ``self.workers`` to its only assignment."""
    dotted = dotted_name(node)
    options = _options(source, node.attr.value)
    if options:
        return _of_option(source, node, options)
    stores = writes_anywhere(source, dotted)
    if dotted and stores:
        return _named(source, dotted, _only(source, dotted, stores), hops)
    field = _field(source, node)
    if field is not None:
        return field
    raise Refusal(f"{source.code(node)} gets its value outside of this file.")


def _field(source: Source, node: cst.Attribute) -> Origin | None:
    """Return the default of ``config.workers`` where one class of the file has it as a field: ``workers: int = 0``.

    None if the file sets it elsewhere, passes it to the class, or uses it for anything else.
    """
    name = node.attr.value
    fields = [
        store for store in writes_anywhere(source, name) if isinstance(source.scope(store), cst.ClassDef)
    ]
    value = assigned_value(source, fields[0]) if len(fields) == 1 else None
    if value is None or not is_literal(value):
        return None
    owner = source.scope(fields[0])
    assert isinstance(owner, cst.ClassDef)
    for other in source.inside(source.module, cst.Attribute):
        argument = source.parent(other)
        is_same = isinstance(argument, cst.Arg) and argument.keyword and argument.keyword.value == name
        if other.attr.value == name and other is not node and not is_same:
            return None
    for call in source.inside(source.module, cst.Call):
        if dotted_name(call.func).rpartition(".")[2] in (owner.name.value, "replace") and (
            unpacked(call) or argument_of(call, name) or any(found.keyword is None for found in call.args)
        ):
            return None
    # Libraries make an option of each field of such a class.
    flags = (f"--{name}", f"--{name.replace('_', '-')}")
    return Origin(value, f"{name} of {owner.name.value} (line {source.line(value)})", flags)


def _options(source: Source, name: str) -> list[cst.Call]:
    """Return the calls of ``add_argument`` whose value gets that name."""
    return [
        call
        for call in source.inside(source.module, cst.Call)
        if is_method(call, "add_argument") and _destination(call) == name
    ]


def _destination(call: cst.Call) -> str:
    """Return the name under which argparse keeps an option's value."""
    given = argument_of(call, "dest")
    if given is not None:
        return _text(given.value)
    flags = _flags(call)
    long = [flag for flag in flags if flag.startswith("--")]
    return (long or flags or [""])[0].lstrip("-").replace("-", "_")


def _flags(call: cst.Call) -> list[str]:
    return [_text(argument.value) for argument in call.args if argument.keyword is None and not argument.star]


def _text(node: cst.BaseExpression) -> str:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else ""
    return value if isinstance(value, str) else ""


def _of_option(source: Source, node: cst.Attribute, options: list[cst.Call]) -> Origin:
    """Return the default of an option, if the name comes from argparse and nothing else sets it."""
    flags = tuple(_flags(options[0]))
    flag = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "")
    if len(options) > 1:
        raise Refusal(f"{flag} is defined {len(options)} times.")
    if not any(is_method(call, *PARSES) for call in source.inside(source.module, cst.Call)):
        raise Refusal(f"{source.code(node)} is not known to come from argparse.")
    if not flag.startswith("-"):
        raise Refusal(f"{flag} is an argument of the command that has no default to change.")
    if writes_anywhere(source, dotted_name(node)):
        raise Refusal(f"{source.code(node)} is assigned after the options were parsed.")
    if any(is_method(call, "set_defaults") for call in source.inside(source.module, cst.Call)):
        raise Refusal("The defaults of options are set by set_defaults().")
    if argument_of(options[0], "action") is not None:
        raise Refusal(f"{flag} is a switch: put it on the command line.")
    default = argument_of(options[0], "default")
    if default is None or not is_literal(default.value):
        raise Refusal(f"{flag} has no literal default: put {flag} on the command line.")
    return Origin(default.value, f"the default of {flag} (line {source.line(default)})", flags)


def _of_item(source: Source, node: cst.Subscript) -> Origin:
    """Follow ``config["workers"]`` to the literal dictionary."""
    index = node.slice[0].slice if len(node.slice) == 1 else None
    key = _text(index.value) if isinstance(index, cst.Index) else ""
    if not key:
        raise Refusal(f"The value at line {source.line(node)} is computed: {source.code(node)}.")
    found = item_of(dictionary_of(source, node.value), key)
    if found is None or not is_literal(found):
        raise Refusal(f"{source.code(node)} is not written as a literal.")
    return Origin(found, f"{source.code(node)} (line {source.line(found)})")
