"""Replaces ``log(softmax(x))`` by ``log_softmax(x)``, which is one operation and exact. Values: none.

The softmax may be inside of the logarithm, or in a variable of the same block that is set before it; where the
variable has other readers it stays. Or it is what a model of this file returns, and a function takes the logarithm of
its argument, if both are used at one place. ``log(softmax(x) + eps)`` is refused, because its values are others.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.blocks import is_unchanged_between, value_before
from perfwrap.edits.syntax.call_arguments import argument_of, called_name, is_method, unpacked
from perfwrap.edits.syntax.names import mentions, read_names, reads, writes
from perfwrap.edits.syntax.objects import class_of, forward_of, is_script, names_of_objects
from perfwrap.edits.syntax.same_results import function_of
from perfwrap.edits.syntax.source_tree import Source

METHODS = (
    "parameters",
    "named_parameters",
    "train",
    "eval",
    "zero_grad",
    "state_dict",
    "load_state_dict",
    "to",
    "cuda",
)
"""What a program may do with a model besides calling it."""
SOFTMAX = ("torch.softmax", "torch.nn.functional.softmax")


def edit(source: Source, target: Target) -> Edited:
    """Return the source with ``log_softmax`` where the line takes a logarithm or a softmax; raises Refusal."""
    found = []
    for log in source.inside(source.module, cst.Call):
        operand = _operand(source, log)
        softmax = _softmax(source, operand) if operand is not None else None
        if softmax is not None and target.line in (*_lines(source, log), *_lines(source, softmax)):
            found.append((log, softmax))
    if not found:
        return _of_model(source, target)
    if len(found) != 1:
        raise Refusal(f"Line {target.line} is not of one logarithm of a softmax.")
    log, softmax = found[0]
    if not isinstance(softmax.func, cst.Attribute):
        raise Refusal(f"{source.code(softmax.func)} is imported by its own name.")
    operand = _operand(source, log)
    if isinstance(operand, cst.Name) and not (
        is_unchanged_between(source, read_names(source, softmax), softmax, log)
        and is_unchanged_between(source, [operand.value], softmax, log, with_first=False)
    ):
        raise Refusal(
            f"The values of the softmax at line {source.line(softmax)} change before the logarithm."
        )
    new = softmax.with_changes(func=softmax.func.with_changes(attr=cst.Name("log_softmax")))
    return Edited(
        source.replaced({log: new.with_changes(lpar=log.lpar, rpar=log.rpar)}),
        f"Use log_softmax() for the logarithm of the softmax at line {source.line(log)}.",
    )


def _of_model(source: Source, target: Target) -> Edited:
    """Return the source whose model returns the ``log_softmax`` that a function computed; raises Refusal."""
    for log in source.inside(source.module, cst.Call):
        operand, function = _operand(source, log), source.scope(log)
        if not isinstance(operand, cst.Name) or not isinstance(function, cst.FunctionDef):
            continue
        call = _only_argument(source, function, operand)
        owner = class_of(source, called_name(call)) if call is not None else None
        forward = forward_of(source, owner) if owner is not None else []
        returns = [each for one in forward for each in source.inside(one, cst.Return)]
        softmax = (
            _softmax(source, returns[0].value) if len(returns) == 1 and returns[0].value is not None else None
        )
        if call is None or owner is None or softmax is None or returns[0].value is not softmax:
            continue
        if target.line not in (*_lines(source, log), *_lines(source, softmax)):
            continue
        if not isinstance(softmax.func, cst.Attribute):
            raise Refusal(f"{source.code(softmax.func)} is imported by its own name.")
        if not is_script(source):
            raise Refusal(f"Other files may use the probabilities of {owner.name.value}.")
        for name in names_of_objects(source, owner, METHODS):
            for other in source.inside(source.module, cst.Call):
                if called_name(other) == name and other is not call:
                    raise Refusal(
                        f"Line {source.line(other)} uses the probabilities of {owner.name.value}, too."
                    )
        new = softmax.with_changes(func=softmax.func.with_changes(attr=cst.Name("log_softmax")))
        return Edited(
            source.replaced({log: operand.with_changes(lpar=log.lpar, rpar=log.rpar), softmax: new}),
            f"Return log_softmax() from {owner.name.value} at line {source.line(softmax)}, without the logarithm at "
            f"line {source.line(log)}.",
        )
    raise Refusal(f"Line {target.line} is not of one logarithm of a softmax.")


def _only_argument(source: Source, function: cst.FunctionDef, parameter: cst.Name) -> cst.Call | None:
    """Return the call that the only call of a function has for a parameter, which is read once; None if uncertain."""
    name, given = parameter.value, [each.name.value for each in function.params.params]
    calls = [
        node
        for node in mentions(source, source.module, function.name.value)
        if not isinstance(source.parent(node), cst.FunctionDef)
    ]
    outer = source.parent(calls[0]) if len(calls) == 1 else None
    if not isinstance(outer, cst.Call) or outer.func is not calls[0] or unpacked(outer):
        return None
    if function_of(source, function.name.value) != [function] or function.decorators or name not in given:
        return None
    if writes(source, function, name) or len(reads(source, function.body, name)) != 1:
        return None
    found = argument_of(outer, name, given.index(name))
    return found.value if found is not None and isinstance(found.value, cst.Call) else None


def _lines(source: Source, node: cst.CSTNode) -> range:
    return range(source.line(node), source.last_line(node) + 1)


def _operand(source: Source, call: cst.Call) -> cst.BaseExpression | None:
    """Return what a call takes the logarithm of, None if it takes none."""
    if source.name(call.func) == "torch.log" and len(call.args) == 1:
        return call.args[0].value
    if is_method(call, "log") and not call.args and isinstance(call.func, cst.Attribute):
        return call.func.value
    return None


def _softmax(source: Source, node: cst.BaseExpression) -> cst.Call | None:
    """Return the softmax that an expression is, also by a variable."""
    if isinstance(node, cst.Name):
        value = value_before(source, node)
        return _softmax(source, value) if value is not None and not isinstance(value, cst.Name) else None
    if isinstance(node, cst.Call) and (source.name(node.func) in SOFTMAX or is_method(node, "softmax")):
        return node
    return None
