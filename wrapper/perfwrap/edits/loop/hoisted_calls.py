"""Calls a frozen model once, before the loop, if each round gives it the same input: ``texts = encoder(prompts)``.

The call must be all of a ``with torch.no_grad():`` or ``torch.inference_mode():`` in the loop. The file must switch the
model to evaluation, freeze its parameters, and use it for nothing but calls; the loop must not change what the call
uses. Values: none.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.loop.hoisted_tensors import passes_on
from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.blocks import changed_in_place
from perfwrap.edits.syntax.call_arguments import called_name, is_method, receiver
from perfwrap.edits.syntax.names import changed_names, is_stored, mentions, read_names, reads, writes
from perfwrap.edits.syntax.source_tree import Loop, Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines

WITHOUT_GRADIENTS = ("torch.no_grad", "torch.inference_mode")
MOVES = ("to", "cuda", "cpu", "float", "half", "bfloat16")


def edit(source: Source, target: Target) -> Edited:
    """Return the source in which the block of the line stands before the loop; raises Refusal."""
    block, assign, call = _call_at(source, target.line)
    name, model = source.code(assign.targets[0].target), dotted_name(call.func)
    check_own_lines(source, block)
    loop = source.loop(block)
    if loop is None:
        raise Refusal(f"Line {target.line} is not in a loop.")
    _check_frozen(source, model, call)
    needed = read_names(source, call)
    if any("." in dotted and dotted != model for dotted in needed):
        raise Refusal("The call uses attributes, which any other call may change.")
    changed = _changed(source, loop, needed, name)
    if changed:
        raise Refusal(f"The loop at line {source.line(loop)} changes {changed[0]}.")
    while (outer := source.loop(loop)) is not None and not _changed(source, outer, needed, name):
        loop = outer
    check_own_lines(source, loop)
    _check_use(source, name, assign, loop)
    parent = source.parent(block)
    is_only = isinstance(parent, cst.IndentedBlock) and len(parent.body) == 1
    changes: Changes = {
        loop: lambda updated: cst.FlattenSentinel([block, updated]),
        block: source.parse("pass") if is_only else lambda updated: cst.RemovalSentinel.REMOVE,
    }
    return Edited(
        source.replaced(changes),
        f"Call {model}() of line {source.line(call)} once, before the loop at line {source.line(loop)}.",
    )


def _call_at(source: Source, line: int) -> tuple[cst.With, cst.Assign, cst.Call]:
    """Return the block without gradients at a line, its one assignment, and the call of the model there."""
    for block in source.inside(source.module, cst.With):
        item = block.items[0].item if len(block.items) == 1 else None
        body = block.body.body
        small = body[0].body if len(body) == 1 and isinstance(body[0], cst.SimpleStatementLine) else ()
        if (
            source.line(block) <= line <= source.last_line(block)
            and isinstance(item, cst.Call)
            and source.name(item.func) in WITHOUT_GRADIENTS
            and not item.args
            and len(small) == 1
            and isinstance(small[0], cst.Assign)
            and len(small[0].targets) == 1
            and isinstance(small[0].targets[0].target, cst.Name)
            and isinstance(small[0].value, cst.Call)
            and dotted_name(small[0].value.func)
        ):
            if any(line.comment for line in block.leading_lines):
                raise Refusal(
                    f"Line {source.line(block)} has a comment above it, which may be of more lines."
                )
            return block, small[0], small[0].value
    raise Refusal(f"Line {line} is not the call of a model in a block of its own without gradients.")


def _check_frozen(source: Source, model: str, call: cst.Call) -> None:
    """Refuse a model that the file does not freeze, or uses for anything but calls."""
    for inner in source.inside(call, cst.Call):
        if inner is not call:
            raise Refusal(f"{source.code(inner.func)}() may return another value in each round.")
    is_frozen = is_evaluated = False
    for node in mentions(source, source.module, model):
        parent = source.parent(node)
        outer = source.parent(parent) if parent is not None else None
        if is_stored(source, node):
            value = next((found.value for found in source.around(node, cst.Assign)), None)
            is_evaluated = is_evaluated or (isinstance(value, cst.Call) and is_method(value, "eval"))
        elif isinstance(parent, cst.Attribute) and isinstance(outer, cst.Call) and outer.func is parent:
            method = parent.attr.value
            if method == "eval":
                is_evaluated = True
            elif _freezes(source, outer):
                is_frozen = True
            elif method not in MOVES:
                raise Refusal(f"Line {source.line(node)} calls {model}.{method}().")
        elif not (isinstance(parent, cst.Call) and parent.func is node):
            raise Refusal(f"Line {source.line(node)} passes {model} on.")
    if not (is_frozen and is_evaluated):
        raise Refusal(f"The file does not freeze {model} and switch it to evaluation.")


def _freezes(source: Source, call: cst.Call) -> bool:
    """Return whether a call is ``model.requires_grad_(False)``, or the parameters of a loop that only freezes them."""
    if is_method(call, "requires_grad_"):
        return [source.code(found.value) for found in call.args] == ["False"]
    loop = source.parent(call)
    if not is_method(call, "parameters") or not isinstance(loop, cst.For) or loop.iter is not call:
        return False
    each = dotted_name(loop.target)
    text = source.code(loop.body).strip().partition("#")[0].strip()
    return text in (f"{each}.requires_grad_(False)", f"{each}.requires_grad = False")


def _changed(source: Source, loop: Loop, needed: set[str], name: str) -> list[str]:
    """Return what a loop changes of what the call needs."""
    found = changed_names(source, loop) | changed_in_place(source, loop)
    switched = {
        receiver(call)
        for call in source.inside(loop, cst.Call)
        if called_name(call) in ("train", "load_state_dict")
    }
    return sorted(needed & (found | switched) - {name})


def _check_use(source: Source, name: str, assign: cst.Assign, loop: Loop) -> None:
    """Refuse a result that the loop sets elsewhere, changes, or passes on under another name."""
    inside = [node for node in writes(source, source.scope(loop), name) if source.is_inside(node, loop)]
    if len(inside) != 1 or name in changed_in_place(source, loop) or name in _set_in_part(source, loop):
        raise Refusal(f"The loop changes {name}.")
    for node in reads(source, loop, name):
        if source.line(node) < source.line(assign):
            raise Refusal(f"{name} is used before line {source.line(assign)}.")
        if passes_on(source, node):
            raise Refusal(f"Line {source.line(node)} gives {name} another name, which may change it.")


def _set_in_part(source: Source, loop: Loop) -> set[str]:
    """Return the names of which a loop sets a part: ``a`` of ``a[0] = 1``."""
    found = source.inside(loop, cst.Subscript)
    return {dotted_name(subscript.value) for subscript in found if is_stored(source, subscript)}
