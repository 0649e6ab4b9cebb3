"""Uses the fused optimizer of torch in place of a class of the file with the same name, such as a copied ``AdamW``.

The values that the class takes where the call gives none are written into the call, because those of torch may be
others. Whether both compute the same is not known from the source: the runs tell. Refused: arguments that torch does
not have, unpacked ones, and a class that does more than an optimizer. Values: none.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.optimizer.optimizer_options import CALLEES
from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import find_call, matches, unpacked
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, module_name
from perfwrap.edits.syntax.value_origin import is_literal

ARGUMENTS = {
    "Adam": ("lr", "betas", "eps", "weight_decay", "amsgrad"),
    "AdamW": ("lr", "betas", "eps", "weight_decay", "amsgrad"),
    "SGD": ("lr", "momentum", "dampening", "weight_decay", "nesterov"),
    "Adagrad": ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"),
}
"""What both may take: https://docs.pytorch.org/docs/stable/optim.html#algorithms"""
METHODS = ("__init__", "__setstate__", "step", "_init_group", "zero_grad")
"""Methods that torch's class has, too."""


def edit(source: Source, target: Target) -> Edited:
    """Return the source in which the call at the line makes torch's optimizer; raises Refusal."""
    call = find_call(
        source, target.line, lambda call: matches(source, call, CALLEES["fused"]), "an optimizer with fused"
    )
    name = dotted_name(call.func)
    found = [each for each in source.inside(source.module, cst.ClassDef) if each.name.value == name]
    if len(found) != 1:
        raise Refusal(f"Line {target.line} makes no optimizer whose class is in this file.")
    known = ARGUMENTS[name]
    parameters = _parameters(source, found[0])
    if unpacked(call):
        raise Refusal("The optimizer has unpacked arguments.")
    given: dict[str, cst.BaseExpression] = {}
    for index, argument in enumerate(call.args):
        if argument.keyword is None and index >= len(parameters):
            raise Refusal(f"The optimizer has more arguments than {name}.__init__().")
        key = argument.keyword.value if argument.keyword is not None else list(parameters)[index]
        given[key] = argument.value
    first = next(iter(parameters), "")
    others = [key for key in given if key not in known and key != first]
    if others or first not in given:
        raise Refusal(f"torch.optim.{name} has no {', '.join(others) or 'such first argument'}.")
    added: dict[str, cst.BaseExpression] = {}
    for key, default in parameters.items():
        if key not in given and key in known and default is not None:
            if not _is_written(default):
                raise Refusal(f"The default of {key} of {name} is not written as a value.")
            added[key] = default
    changes: Changes = {}
    torch = module_name(source, "torch", changes)

    def change(updated: cst.CSTNode) -> cst.Call:
        assert isinstance(updated, cst.Call)
        arguments = []
        for index, argument in enumerate(updated.args):
            if argument.keyword is None and index:
                argument = argument.with_changes(
                    keyword=cst.Name(list(parameters)[index]), equal=_equal(), star=""
                )
            elif argument.keyword is not None and argument.keyword.value == first:
                argument = argument.with_changes(keyword=cst.Name("params"))
            arguments.append(argument)
        function = cst.parse_expression(f"{torch}.optim.{name}")
        new = {**added, "fused": cst.Name("True")}
        rest = [cst.Arg(value, keyword=cst.Name(key), equal=_equal()) for key, value in new.items()]
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        last = arguments[-1]
        arguments[-1] = last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
        rest = [argument.with_changes(comma=comma) for argument in rest[:-1]] + [
            rest[-1].with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
        ]
        return updated.with_changes(func=function, args=[*arguments, *rest])

    changes[call] = change
    values = "".join(f", {key}={source.code(value)}" for key, value in added.items())
    return Edited(
        source.replaced(changes),
        f"Use torch.optim.{name} with fused=True{values} at line {source.line(call)} instead of the file's own.",
    )


def _is_written(value: cst.BaseExpression) -> bool:
    """Return whether a value is a literal, or a tuple of them."""
    if isinstance(value, cst.Tuple):
        return all(is_literal(element.value) for element in value.elements)
    return is_literal(value)


def _equal() -> cst.AssignEqual:
    return cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


def _parameters(source: Source, found: cst.ClassDef) -> dict[str, cst.BaseExpression | None]:
    """Return the parameters of an optimizer's class with their defaults, without ``self``; raises Refusal."""
    name = found.name.value
    bases = [source.name(base.value).rpartition(".")[2] for base in found.bases]
    methods = {
        each.name.value: each for each in source.inside(found, cst.FunctionDef) if source.scope(each) is found
    }
    more = sorted(set(methods) - set(METHODS))
    if bases != ["Optimizer"] or "__init__" not in methods or "step" not in methods:
        raise Refusal(f"{name} of this file is not an optimizer of its own.")
    if more:
        raise Refusal(f"{name} of this file has {more[0]}(), which torch.optim.{name} does not have.")
    params = methods["__init__"].params
    if (
        params.posonly_params
        or params.kwonly_params
        or isinstance(params.star_arg, cst.Param)
        or params.star_kwarg
    ):
        raise Refusal(f"{name}.__init__() of this file has other than plain parameters.")
    return {param.name.value: param.default for param in params.params[1:]}
