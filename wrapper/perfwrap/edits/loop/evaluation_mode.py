"""Evaluates without gradients: ``@torch.no_grad()`` for the function, or ``with torch.no_grad():`` around the loop.

It is never ``inference_mode``: a tensor made in it can never be used for training, and a model may keep some, such as
a table of positions. A function that also trains gets the block, a function that only evaluates the decorator.
Refused: loops and functions with a backward pass or an optimizer, generators, and values that a backward pass of this
file may use. Values: none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import called_name, is_method, receiver
from perfwrap.edits.syntax.names import changed_names, ingredients, read_names, stored_names
from perfwrap.edits.syntax.source_tree import Change, Result, Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines, module_name

MODES = ("no_grad", "inference_mode", "set_grad_enabled", "enable_grad")
TRAINS = ("backward", "zero_grad", "manual_backward", "requires_grad_", "grad", "unscale_")
STEPPED = re.compile(r"(?i)opt|sched|scaler|engine")
"""What has a ``step()`` that trains; other things, such as an environment, pass arguments to theirs."""
TRAINERS = re.compile(r"(?i)train(?!ing$|er$)|fit$|backward|optimi[sz]e")
"""Names of functions that train, as far as they are not in the file."""
EVALUATES = re.compile(r"(?i)eval|valid|test|predict|infer|sampl|generat|scor|accura|metric|embed|extract")
"""Names of functions that evaluate."""
HELD_OUT = re.compile(r"(?i)val|test|eval|dev|held")
"""Names of loaders and data that are not trained with."""
MODEL = re.compile(r"(?i)model|net|module|coder|critic|actor|generator|discriminator")


def edit(source: Source, target: Target) -> Edited:
    """Return the source in which the evaluation at the line keeps no graph; raises Refusal."""
    loop = _loop_at(source, target.line)
    function = next(source.around(loop, cst.FunctionDef, cst.Lambda), None)
    for mode in MODES:
        if _is_under(source, loop, mode):
            raise Refusal(f"The loop at line {source.line(loop)} is under {mode}.")
    changes: Changes = {}
    if isinstance(function, cst.FunctionDef) and _training(source, function) is None:
        _check_function(source, function)
        changes[function] = _decorated(source, module_name(source, "torch", changes))
        return Edited(
            source.replaced(changes),
            f"Decorate {function.name.value}() at line {source.line(function)} with torch.no_grad().",
        )
    trains = _training(source, loop)
    if trains is not None:
        raise Refusal(f"The loop trains: line {source.line(trains)} calls {source.code(trains.func)}().")
    _check_loop(source, loop)
    changes[loop] = _wrapped(source, module_name(source, "torch", changes))
    return Edited(
        source.replaced(changes), f"Run the loop at line {source.line(loop)} under torch.no_grad()."
    )


def _loop_at(source: Source, line: int) -> cst.For | cst.While:
    """Return the outermost loop around a line that does not train, else the innermost one."""
    found = [
        loop
        for loop in source.inside(source.module, cst.For, cst.While)
        if source.line(loop) <= line <= source.last_line(loop)
    ]
    if not found:
        raise Refusal(f"Line {line} is not in a loop.")
    innermost: cst.For | cst.While = found[-1]
    scope = source.scope(innermost)
    outer = [loop for loop in found if source.scope(loop) is scope and _training(source, loop) is None]
    return outer[0] if outer else innermost


def _training(source: Source, node: cst.CSTNode) -> cst.Call | None:
    """Return the first call inside of a node that trains, also by a function of this file."""
    functions = _training_functions(source)
    return next((call for call in source.inside(node, cst.Call) if _trains(call, functions)), None)


@lru_cache(maxsize=1)
def _training_functions(source: Source) -> dict[str, bool]:
    """Return the functions of a file by name, and whether one of that name trains."""
    calls: dict[str, list[cst.Call]] = {}
    for function in source.inside(source.module, cst.FunctionDef):
        calls.setdefault(function.name.value, []).extend(source.inside(function.body, cst.Call))
    found = dict.fromkeys(calls, False)
    while True:
        more = [
            name
            for name, own in calls.items()
            if not found[name] and any(_trains(call, found) for call in own)
        ]
        if not more:
            return found
        found.update(dict.fromkeys(more, True))


def _trains(call: cst.Call, functions: Mapping[str, bool]) -> bool:
    """Return whether a call trains; ``functions`` are those of the file."""
    if is_method(call, *TRAINS):
        return True
    if is_method(call, "step"):
        return not call.args or STEPPED.search(receiver(call)) is not None
    if is_method(call, "train") and (MODEL.search(receiver(call)) or receiver(call) in ("self", "")):
        return False
    name = called_name(call)
    if name in functions:
        return functions[name]
    return TRAINERS.search(name) is not None and name[:1].islower()


def _is_under(source: Source, node: cst.CSTNode, mode: str) -> bool:
    """Return whether a node is in a ``with`` block or in a function of that mode."""
    for outer in source.around(node, cst.With, cst.FunctionDef):
        given = (
            [item.item for item in outer.items]
            if isinstance(outer, cst.With)
            else [decorator.decorator for decorator in outer.decorators]
        )
        for expression in given:
            called = expression.func if isinstance(expression, cst.Call) else expression
            if dotted_name(called).rpartition(".")[2] == mode:
                return True
    whole = source.scope(node) if mode == "set_grad_enabled" else node
    return any(is_method(call, mode) for call in source.inside(whole, cst.Call))


def _check_function(source: Source, function: cst.FunctionDef) -> None:
    """Refuse generators, and a function whose result a backward pass of this file may use."""
    name = function.name.value
    if any(source.scope(found) is function for found in source.inside(function, cst.Yield)):
        raise Refusal(f"{name}() is a generator.")
    if not EVALUATES.search(name) and not _switches_to_evaluation(source, function):
        raise Refusal(f"{name}() is not known to evaluate: neither its name nor a call of eval() says so.")
    if "optim" in source.code(function) or any(
        found is not function for found in source.inside(function, cst.FunctionDef)
    ):
        raise Refusal(f"{name}() may prepare a training.")
    if name in ("forward", "__call__", "training_step", "__iter__", "__getitem__"):
        raise Refusal(f"{name}() may be part of the training.")
    for call in source.inside(source.module, cst.Call):
        if called_name(call) != name:
            continue
        statement = source.statement(call)
        names = changed_names(source, statement) if isinstance(statement, cst.SimpleStatementLine) else set()
        is_inside = any(is_method(outer, "backward") for outer in source.around(call, cst.Call))
        if is_inside or _is_trained_with(source, source.scope(call), names):
            raise Refusal(f"A backward pass may use what {name}() returns at line {source.line(call)}.")


def _switches_to_evaluation(source: Source, node: cst.CSTNode) -> bool:
    """Return whether ``model.eval()`` is called inside of a node."""
    return any(is_method(call, "eval") and not call.args for call in source.inside(node, cst.Call))


def _check_loop(source: Source, loop: cst.For | cst.While) -> None:
    """Refuse a loop whose values a backward pass of the same function may use."""
    check_own_lines(source, loop)
    head = source.code(loop.iter if isinstance(loop, cst.For) else loop.test)
    if not HELD_OUT.search(head) and not _switches_to_evaluation(source, loop):
        raise Refusal(f"The loop at line {source.line(loop)} is not known to evaluate.")
    if any(source.inside(loop, cst.Yield)):
        raise Refusal(f"The loop at line {source.line(loop)} yields.")
    if _is_trained_with(source, source.scope(loop), changed_names(source, loop.body), loop):
        raise Refusal(f"A backward pass may use what the loop at line {source.line(loop)} computes.")


def _is_trained_with(
    source: Source, scope: cst.CSTNode, names: set[str], loop: cst.CSTNode | None = None
) -> bool:
    """Return whether a backward pass of a scope may use values of these names, set at the loop or the call."""
    for call in source.inside(scope, cst.Call):
        if not is_method(call, "backward", "manual_backward") or (loop and source.is_inside(call, loop)):
            continue
        roots = read_names(source, call)
        if loop is None:
            if ingredients(source, scope, roots) & names:
                return True
        elif _outside(source, scope, roots, loop) & names:
            return True
    return False


def _outside(source: Source, scope: cst.CSTNode, roots: set[str], loop: cst.CSTNode) -> set[str]:
    """Return what the backward pass is made of, except names that get a new value between the loop and it.

    A name such as ``loss`` or ``images`` is often used for both: if all its values for the backward pass are
    assigned in another loop, those of this loop never reach it.
    """
    found = ingredients(source, scope, roots)
    elsewhere = [
        other for other in source.inside(scope, cst.For, cst.While) if not _overlap(source, other, loop)
    ]
    fresh = set().union(*(_always_stored(source, other) for other in elsewhere)) if elsewhere else set()
    return found - fresh


def _overlap(source: Source, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    return source.is_inside(one, other) or source.is_inside(other, one)


def _always_stored(source: Source, loop: cst.For | cst.While) -> set[str]:
    """Return the names that each round of a loop sets anew, without a condition and without the old value."""
    found = stored_names(source, loop.target) if isinstance(loop, cst.For) else set()
    block = loop.body.body if isinstance(loop.body, cst.IndentedBlock) else []
    for statement in block:
        inner = statement.body if isinstance(statement, cst.SimpleStatementLine) else []
        for small in inner:
            if isinstance(small, cst.Assign):
                found |= stored_names(source, small)
        if isinstance(statement, cst.With):
            for assign in source.inside(statement.body, cst.Assign):
                found |= stored_names(source, assign)
    return found


def _decorated(source: Source, torch: str) -> Change:
    def change(updated: cst.CSTNode) -> Result:
        assert isinstance(updated, cst.FunctionDef)
        decorator = cst.Decorator(
            cst.parse_expression(f"{torch}.no_grad()"),
            trailing_whitespace=cst.TrailingWhitespace(newline=cst.Newline()),
        )
        return updated.with_changes(decorators=[*updated.decorators, decorator])

    return change


def _wrapped(source: Source, torch: str) -> Change:
    def change(updated: cst.CSTNode) -> Result:
        assert isinstance(updated, cst.For | cst.While)
        block = source.parse(f"with {torch}.no_grad():\n    pass\n")
        assert isinstance(block, cst.With)
        body = block.body.with_changes(body=[updated.with_changes(leading_lines=[])])
        return block.with_changes(leading_lines=updated.leading_lines, body=body)

    return change
