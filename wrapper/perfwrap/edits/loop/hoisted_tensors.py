"""Creates a tensor once, before the loop, if each round makes the same one: ``mask = torch.ones(n)``.

The line moves before the outermost loop in which nothing that it uses changes. Refused: random tensors, tensors that
the loop changes, and values of attributes other than options and devices, which any call may change. Values: none.
"""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.blocks import changed_in_place
from perfwrap.edits.syntax.call_arguments import argument_of, is_method
from perfwrap.edits.syntax.names import ADDING, changed_names, mentions, read_names, reads, writes
from perfwrap.edits.syntax.source_tree import Loop, Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines

FACTORIES = re.compile(
    r"torch\.(tensor|ones|zeros|full|eye|arange|linspace|logspace|tril|triu|hann_window|hamming_window|device)"
)
METHODS = (
    *(
        "to",
        "cuda",
        "float",
        "long",
        "int",
        "bool",
        "double",
        "half",
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
    ),
    *("expand", "repeat", "t", "transpose", "permute", "tril", "triu", "contiguous", "flatten"),
)
"""Methods of a new tensor that return another one."""
PLAIN = re.compile(
    r"(?i)(args|opts?|cfg|config|conf|hparams|params)\.\w+|(self\.)?\w*device|torch\..*|math\..*|np\.pi"
)
"""Dotted names whose values stay."""


def edit(source: Source, target: Target) -> Edited:
    """Return the source in which the line stands before the loop; raises Refusal."""
    statement, assign, name = _creation_at(source, target.line)
    loop = source.loop(assign)
    if loop is None:
        raise Refusal(f"Line {target.line} is not in a loop.")
    check_own_lines(source, statement)
    _check_value(source, assign.value)
    _check_use(source, name, assign, loop)
    while not _changes(source, loop, assign.value, name, assign):
        outer = source.loop(loop)
        if outer is None or _changes(source, outer, assign.value, name, assign):
            break
        _check_use(source, name, assign, outer)
        loop = outer
    changed = _changes(source, loop, assign.value, name, assign)
    if changed:
        raise Refusal(f"The loop at line {source.line(loop)} changes {sorted(changed)[0]}.")
    check_own_lines(source, loop)
    block = source.parent(statement)
    is_only = isinstance(block, cst.IndentedBlock) and len(block.body) == 1
    moved = statement.with_changes(leading_lines=[])
    changes: Changes = {loop: lambda updated: cst.FlattenSentinel([moved, updated])}
    changes[statement] = source.parse("pass") if is_only else lambda updated: cst.RemovalSentinel.REMOVE
    return Edited(
        source.replaced(changes),
        f"Create {name} of line {source.line(assign)} once, before the loop at line {source.line(loop)}.",
    )


def _creation_at(source: Source, line: int) -> tuple[cst.SimpleStatementLine, cst.Assign, str]:
    """Return the statement at a line that creates a tensor, and the name that it sets."""
    for statement in source.inside(source.module, cst.SimpleStatementLine):
        if not source.line(statement) <= line <= source.last_line(statement) or len(statement.body) != 1:
            continue
        (assign,) = statement.body
        if isinstance(assign, cst.Assign) and len(assign.targets) == 1:
            name = assign.targets[0].target
            is_made = any(
                FACTORIES.fullmatch(source.name(call.func)) for call in source.inside(assign.value, cst.Call)
            )
            if isinstance(name, cst.Name) and is_made:
                if any(line.comment for line in statement.leading_lines):
                    raise Refusal(
                        f"Line {source.line(statement)} has a comment above it, which may be of more lines."
                    )
                return statement, assign, name.value
    raise Refusal(f"Line {line} does not create a tensor for a variable.")


def _check_value(source: Source, value: cst.BaseExpression) -> None:
    """Refuse a value that may be another one in each round, or that needs a gradient."""
    for call in source.inside(value, cst.Call):
        made = call.func.value if is_method(call, *METHODS) and isinstance(call.func, cst.Attribute) else None
        is_factory = FACTORIES.fullmatch(source.name(call.func)) is not None
        if source.name(call.func) in ("torch.tril", "torch.triu"):
            is_factory = bool(call.args) and isinstance(call.args[0].value, cst.Call)
        is_builtin = dotted_name(call.func) in ("range", "float", "int", "len", "list", "tuple")
        if not (is_factory or isinstance(made, cst.Call | cst.BinaryOperation) or is_builtin):
            raise Refusal(f"{source.code(call.func)}() may return another value in each round.")
        if argument_of(call, "requires_grad") is not None:
            raise Refusal("The tensor requires a gradient.")
    for operation in source.inside(value, cst.BinaryOperation):
        sides = (operation.left, operation.right)
        if any(isinstance(side, cst.Call) for side in sides) and any(
            isinstance(side, cst.Name) or source.code(side).startswith("self.") for side in sides
        ):
            raise Refusal("The value may be made of a parameter, which the optimizer changes.")
    if any(source.inside(value, cst.Await, cst.Yield, cst.NamedExpr, cst.Subscript, cst.CompFor, cst.Lambda)):
        raise Refusal("The value is more than a call with names and numbers.")
    called = {source.code(call.func) for call in source.inside(value, cst.Call)}
    for dotted in read_names(source, value) - called:
        if (
            "." in dotted
            and not PLAIN.fullmatch(dotted)
            and not any(name.startswith(f"{dotted}.") for name in called)
        ):
            raise Refusal(f"{dotted} may be another value in each round.")


def _check_use(source: Source, name: str, assign: cst.Assign, loop: Loop) -> None:
    """Refuse a tensor that the loop changes, or that is something else before the line."""
    scope = source.scope(assign)
    if len(writes(source, scope, name)) > 1:
        raise Refusal(f"{name} is set in several places.")
    if name in changed_in_place(source, loop) or any(
        isinstance(found.func, cst.Attribute)
        and found.func.attr.value.endswith("_")
        and any(source.code(node) == name for node in source.inside(found.func, cst.Name))
        for found in source.inside(loop, cst.Call)
    ):
        raise Refusal(f"The loop changes {name}.")
    for subscript in source.inside(loop, cst.Subscript):
        parent = source.parent(subscript)
        is_set = isinstance(parent, cst.AssignTarget) or (
            isinstance(parent, cst.AugAssign) and parent.target is subscript
        )
        if is_set and dotted_name(subscript.value) == name:
            raise Refusal(f"The loop changes {name}.")
    if any(source.line(node) < source.line(assign) for node in mentions(source, scope, name)):
        raise Refusal(f"{name} is used before line {source.line(assign)}.")
    for node in reads(source, loop, name):
        if passes_on(source, node):
            raise Refusal(f"Line {source.line(node)} gives {name} another name, which may change it.")


def passes_on(source: Source, node: cst.CSTNode) -> bool:
    """Return whether the tensor itself gets another name, or becomes a part of something that lasts."""
    parent = source.parent(node)
    if isinstance(parent, cst.Element):
        # ``torch.cat([mask, x])`` only reads it.
        container = source.parent(parent)
        outer = source.parent(container) if container is not None else None
        parent = outer if isinstance(outer, cst.Arg) else parent
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        return isinstance(call, cst.Call) and is_method(call, *ADDING)
    return isinstance(
        parent,
        cst.Assign
        | cst.AnnAssign
        | cst.NamedExpr
        | cst.IfExp
        | cst.BooleanOperation
        | cst.Element
        | cst.DictElement
        | cst.Return
        | cst.Yield,
    )


def _changes(
    source: Source, loop: Loop, value: cst.BaseExpression, name: str, assign: cst.Assign
) -> set[str]:
    """Return the names in a value that a loop changes."""
    changed = changed_names(source, loop) | changed_in_place(source, loop)
    needed = read_names(source, value)
    return (needed & changed) - {name}
