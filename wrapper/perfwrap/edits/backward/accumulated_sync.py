"""Synchronises gradients of DistributedDataParallel only where the optimizer steps: ``model.no_sync()`` otherwise.

The statements from the model's call to the backward pass, all of one block, get a ``with`` whose condition is that of
the ``if`` around the optimizer's step, or the last round of an inner loop before it. Refused: conditions whose
values change in between. Weights are the same up to rounding. Values: none.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.blocks import block_of, index_in, is_unchanged_between
from perfwrap.edits.syntax.call_arguments import callee, find_call, is_method
from perfwrap.edits.syntax.counted_rounds import counter_of
from perfwrap.edits.syntax.names import free_name, read_names, writes_anywhere
from perfwrap.edits.syntax.source_tree import Result, Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, module_name

WRAPPERS = ("DistributedDataParallel", "DDP")


def edit(source: Source, target: Target) -> Edited:
    """Return the source that synchronises only before the optimizer steps; raises Refusal."""
    backward = find_call(source, target.line, lambda call: is_method(call, "backward"), "backward()")
    if "no_sync" in source.module.code:
        raise Refusal("The file uses no_sync().")
    if source.loop(backward) is None:
        raise Refusal(f"Line {target.line} is not in a loop.")
    last = source.statement(backward)
    block = block_of(source, last)
    end = index_in(source, block, last)
    if end is None:
        raise Refusal(f"Line {target.line} has no block of its own.")
    begin, model = _forward(source, block, end)
    changes: Changes = {}
    condition = _condition(source, block, end)
    if condition is not None:
        if not is_unchanged_between(source, read_names(source, condition.test), block[begin], condition):
            raise Refusal(f"The condition at line {source.line(condition)} changes after the forward pass.")
        test = source.code(condition.test)
    else:
        test = _last_round_of_inner_loop(source, backward, changes)
    contextlib = module_name(source, "contextlib", changes)
    chosen = f"{contextlib}.nullcontext() if {test} else {model}.no_sync()"

    def wrap(updated: cst.CSTNode) -> Result:
        assert isinstance(updated, cst.IndentedBlock | cst.Module)
        statements = list(updated.body)
        with_block = source.parse(f"with {chosen}:\n    pass\n")
        assert isinstance(with_block, cst.With)
        first = statements[begin]
        lines = getattr(first, "leading_lines", ())
        inner = [first.with_changes(leading_lines=[]), *statements[begin + 1 : end + 1]]
        body = with_block.body.with_changes(body=inner)
        statements[begin : end + 1] = [with_block.with_changes(leading_lines=lines, body=body)]
        return updated.with_changes(body=statements)

    parent = source.parent(last)
    if parent is None or isinstance(parent, cst.Module) and changes:
        raise Refusal("The loop is at the top of a file that does not import contextlib.")
    changes[parent] = wrap
    return Edited(
        source.replaced(changes),
        f"Synchronise gradients at line {source.line(backward)} only where the optimizer steps.",
    )


def _forward(source: Source, block: object, end: int) -> tuple[int, str]:
    """Return the statement with the model's call before a backward pass, and the model's name."""
    assert isinstance(block, list | tuple)
    for index in range(end, -1, -1):
        for call in source.inside(block[index], cst.Call):
            name = dotted_name(call.func)
            if name and _is_wrapped(source, name):
                return index, name
    raise Refusal("No call of a model in DistributedDataParallel is in the block of the backward pass.")


def _is_wrapped(source: Source, name: str) -> bool:
    """Return whether a name gets a model in DistributedDataParallel."""
    for store in writes_anywhere(source, name):
        assign = next(source.around(store, cst.Assign), None)
        value = assign.value if assign is not None else None
        if isinstance(value, cst.Call) and callee(source, value) in WRAPPERS:
            return True
    return False


def _last_round_of_inner_loop(source: Source, backward: cst.Call, changes: Changes) -> str:
    """Return the condition of the last round of a loop ``for part in range(n)`` behind which the optimizer steps."""
    loop = source.loop(backward)
    outer = block_of(source, loop) if isinstance(loop, cst.For) else ()
    place = index_in(source, outer, loop) if loop is not None else None
    is_stepped = place is not None and any(
        is_method(call, "step")
        for statement in outer[place + 1 : place + 6]
        for call in source.inside(statement, cst.Call)
    )
    if not isinstance(loop, cst.For) or not is_stepped or source.loop(loop) is None:
        raise Refusal("The optimizer steps after each backward pass.")
    head = loop.iter
    if not isinstance(head, cst.Call) or dotted_name(head.func) != "range" or len(head.args) != 1:
        raise Refusal(f"The loop at line {source.line(loop)} does not say how many rounds it has.")
    if dotted_name(loop.target) == "_":
        part = free_name(source, "part")
        changes[loop.target] = cst.Name(part)
    else:
        part = counter_of(source, loop, changes)
    return f"{part} + 1 == {source.code(head.args[0].value)}"


def _condition(source: Source, block: object, end: int) -> cst.If | None:
    """Return the ``if`` behind a backward pass that holds the optimizer's step, None if there is none."""
    assert isinstance(block, list | tuple)
    for statement in block[end + 1 :]:
        if isinstance(statement, cst.If):
            if any(is_method(call, "step") for call in source.inside(statement.body, cst.Call)):
                if statement.orelse is not None or any(
                    source.inside(statement.test, cst.Call, cst.NamedExpr)
                ):
                    raise Refusal(f"The condition at line {source.line(statement)} is not a simple one.")
                return statement
        elif any(is_method(call, "step") for call in source.inside(statement, cst.Call)):
            raise Refusal("The optimizer steps after each backward pass.")
    return None
