"""Creates a constant tensor of a module once, as a buffer, instead of ``torch.tensor([0.2, 0.8])`` in ``forward``.

The tensor's values must be literals; ``device=`` of the old line becomes ``.to()``, which does nothing where the buffer
is already there. The buffer is not part of checkpoints. Refused: tensors that the method changes or returns, modules
without an ``__init__`` that calls ``super().__init__()``, and files that convert models to other types. Values: none.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.blocks import changed_in_place
from perfwrap.edits.syntax.call_arguments import argument_of, called_name
from perfwrap.edits.syntax.names import free_name, is_stored, reads, writes
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, with_lines

FACTORIES = tuple(
    f"torch.{name}" for name in ("tensor", "ones", "zeros", "full", "eye", "arange", "linspace")
)
CONVERTS = re.compile(r"\.(half|bfloat16|double)\(\)|\.to\((dtype=)?torch\.")


def edit(source: Source, target: Target) -> Edited:
    """Return the source in which the tensor of the line is a buffer of its module; raises Refusal."""
    call = _creation_at(source, target.line)
    method = source.scope(call)
    owner = source.scope(method)
    if not isinstance(method, cst.FunctionDef) or not isinstance(owner, cst.ClassDef):
        raise Refusal(f"Line {target.line} is not in a method of a module.")
    if (
        method.name.value == "__init__"
        or not method.params.params
        or method.params.params[0].name.value != "self"
    ):
        raise Refusal(f"Line {target.line} is not in a method that runs in each step.")
    if CONVERTS.search(source.module.code):
        raise Refusal("The file converts models or tensors to other types, which would change the buffer.")
    if argument_of(call, "requires_grad") is not None:
        raise Refusal("The tensor requires a gradient.")
    place = _after_super(source, owner)
    _check_use(source, call, method)
    device = argument_of(call, "device")
    kept = [argument for argument in call.args if argument is not device]
    if kept:
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    for argument in kept:
        _check_literal(source, argument)
    assign = source.parent(call)
    wanted = source.code(assign.targets[0].target) if isinstance(assign, cst.Assign) else "constant"
    name = free_name(source, f"{wanted}_buffer")
    value = source.code(call.with_changes(args=kept, lpar=[], rpar=[]))
    register = f'self.register_buffer("{name}", {value}, persistent=False)'
    buffer: cst.BaseExpression = cst.Attribute(cst.Name("self"), cst.Name(name))
    if device is not None:
        buffer = cst.Call(cst.Attribute(buffer, cst.Name("to")), [cst.Arg(device.value)])
    changes: Changes = {call: buffer, place: with_lines(source, place, [], [register])}
    return Edited(
        source.replaced(changes),
        f"Create the tensor of line {source.line(call)} once, as a buffer of its module.",
    )


def _creation_at(source: Source, line: int) -> cst.Call:
    found = [
        call
        for call in source.inside(source.module, cst.Call)
        if source.line(call) <= line <= source.last_line(call) and source.name(call.func) in FACTORIES
    ]
    if len(found) != 1:
        raise Refusal(f"Line {line} does not create one tensor.")
    call: cst.Call = found[0]
    return call


def _check_literal(source: Source, argument: cst.Arg) -> None:
    """Refuse an argument that is neither a literal nor a type of torch's."""
    if argument.star:
        raise Refusal("The tensor's arguments are unpacked.")
    if source.name(argument.value).startswith("torch."):
        return
    try:
        ast.literal_eval(source.code(argument.value))
    except (ValueError, SyntaxError):
        raise Refusal(f"{source.code(argument.value)} is not a literal.") from None


def _check_use(source: Source, call: cst.Call, method: cst.FunctionDef) -> None:
    """Refuse a tensor that the method may change or pass on under its name."""
    outer = source.parent(call)
    if isinstance(outer, cst.Return):
        raise Refusal("The tensor is returned.")
    if isinstance(outer, cst.Attribute) and outer.attr.value.endswith("_"):
        raise Refusal("The tensor is changed.")
    if not isinstance(outer, cst.Assign):
        return
    name = outer.targets[0].target
    if len(outer.targets) != 1 or not isinstance(name, cst.Name):
        raise Refusal(f"Line {source.line(call)} sets more than a variable.")
    if len(writes(source, method, name.value)) != 1 or name.value in changed_in_place(source, method):
        raise Refusal(f"The method changes {name.value}.")
    for node in reads(source, method, name.value):
        parent = source.parent(node)
        is_set = isinstance(parent, cst.Subscript) and (
            is_stored(source, parent) or any(source.around(node, cst.AssignTarget))
        )
        if is_set or isinstance(parent, cst.Return | cst.Element | cst.DictElement):
            raise Refusal(f"Line {source.line(node)} changes {name.value} or passes it on.")


def _after_super(source: Source, owner: cst.ClassDef) -> cst.BaseStatement:
    """Return the statement of a module's ``__init__`` that calls the one of its base class."""
    for method in source.inside(owner, cst.FunctionDef):
        if method.name.value != "__init__" or source.scope(method) is not owner:
            continue
        for call in source.inside(method.body, cst.Call):
            is_super = called_name(call) == "__init__" and isinstance(source.parent(call), cst.Expr)
            if is_super and (
                "super" in source.code(call.func) or dotted_name(call.func).endswith("Module.__init__")
            ):
                return source.statement(call)
    raise Refusal(f"{owner.name.value} has no __init__() that calls super().__init__().")
