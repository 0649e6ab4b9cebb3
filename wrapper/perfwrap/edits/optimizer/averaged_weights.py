"""Averages weights (EMA) in a few operations for all parameters, instead of some for each one.

``for p, q in zip(model.parameters(), average.parameters()): q.mul_(d).add_(p, alpha=1 - d)`` becomes
``torch._foreach_mul_`` and ``torch._foreach_add_`` of lists, which compute the same bits; ``lerp_`` becomes
``torch._foreach_lerp_``. Refused: other forms of the loop's one line. Values: none.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, NothingThere, Refusal, Target
from perfwrap.edits.syntax.call_arguments import argument_of, is_method
from perfwrap.edits.syntax.names import free_name, reads
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines, module_name


def edit(source: Source, target: Target) -> Edited:
    """Return the source with operations on lists instead of the loop at the line; raises Refusal."""
    loop = _loop_at(source, target.line)
    check_own_lines(source, loop)
    changes: Changes = {}
    torch = module_name(source, "torch", changes)
    lists: dict[str, str] = {}
    pairs = _pairs(source, loop)
    lines = _operations(source, _only_call(source, loop), pairs, lists)
    made = []
    for text, name in lists.items():
        owner = text.partition(".")[0]
        parameters = pairs[owner]
        made.append(
            f"{name} = list({parameters})"
            if text == owner
            else f"{name} = [{text} for {owner} in {parameters}]"
        )

    def change(updated: cst.CSTNode) -> cst.FlattenSentinel[cst.CSTNode]:
        assert isinstance(updated, cst.For)
        statements = [
            source.parse(line) for line in (*made, *(line.replace("{torch}", torch) for line in lines))
        ]
        statements[0] = statements[0].with_changes(leading_lines=updated.leading_lines)
        return cst.FlattenSentinel(statements)

    changes[loop] = change
    return Edited(
        source.replaced(changes), f"Average all parameters of the loop at line {source.line(loop)} at once."
    )


def _loop_at(source: Source, line: int) -> cst.For:
    loops = [
        loop
        for loop in source.inside(source.module, cst.For)
        if source.line(loop) <= line <= source.last_line(loop)
    ]
    if not loops:
        raise NothingThere(f"Line {line} is not in a for loop.")
    found: cst.For = loops[-1]
    return found


def _pairs(source: Source, loop: cst.For) -> dict[str, str]:
    """Return the loop's two variables, each with what it goes through."""
    zipped = loop.iter
    targets = loop.target.elements if isinstance(loop.target, cst.Tuple) else ()
    if not isinstance(zipped, cst.Call) or dotted_name(zipped.func) != "zip" or len(targets) != 2:
        raise NothingThere(
            f"The loop at line {source.line(loop)} does not go through two lists of parameters."
        )
    if len(zipped.args) != 2 or any(found.keyword or found.star for found in zipped.args) or loop.orelse:
        raise NothingThere(
            f"The loop at line {source.line(loop)} does not go through two lists of parameters."
        )
    for found in zipped.args:
        if not isinstance(found.value, cst.Call) or not is_method(found.value, "parameters", "buffers"):
            raise NothingThere(f"{source.code(found.value)} is not known to be a list of tensors.")
    return {
        source.code(element.value): source.code(found.value)
        for element, found in zip(targets, zipped.args, strict=True)
    }


def _only_call(source: Source, loop: cst.For) -> cst.Call:
    """Return the call that is all of the loop's body."""
    body = loop.body.body
    line = body[0] if len(body) == 1 else None
    small = line.body if isinstance(line, cst.SimpleStatementLine) else body
    if len(small) != 1 or not isinstance(small[0], cst.Expr) or not isinstance(small[0].value, cst.Call):
        raise Refusal(f"The loop at line {source.line(loop)} does more than one call.")
    return small[0].value


def _operations(source: Source, call: cst.Call, pairs: dict[str, str], lists: dict[str, str]) -> list[str]:
    """Return the operations on lists that the call is for each parameter; fills in the names of the lists."""
    assert isinstance(call.func, cst.Attribute)
    inner = call.func.value
    if is_method(call, "lerp_") and len(call.args) == 2:
        target = _list_of(source, inner, pairs, lists)
        other = _list_of(source, call.args[0].value, pairs, lists)
        return [f"{{torch}}._foreach_lerp_({target}, {other}, {_factor(source, call.args[1], pairs)})"]
    is_product = isinstance(inner, cst.Call) and is_method(inner, "mul_") and len(inner.args) == 1
    if is_method(call, "add_") and isinstance(inner, cst.Call) and is_product:
        assert isinstance(inner.func, cst.Attribute)
        target = _list_of(source, inner.func.value, pairs, lists)
        alpha = argument_of(call, "alpha")
        if alpha is None or len(call.args) != 2:
            raise Refusal("add_() has no alpha.")
        other = _list_of(source, call.args[0].value, pairs, lists)
        return [
            f"{{torch}}._foreach_mul_({target}, {_factor(source, inner.args[0], pairs)})",
            f"{{torch}}._foreach_add_({target}, {other}, alpha={_factor(source, alpha, pairs)})",
        ]
    if (
        is_method(call, "copy_")
        and len(call.args) == 1
        and isinstance(call.args[0].value, cst.BinaryOperation)
    ):
        return _copied_sum(source, inner, call.args[0].value, pairs, lists)
    raise Refusal(f"{source.code(call)} is not one of the forms that are known.")


def _copied_sum(
    source: Source,
    target: cst.BaseExpression,
    total: cst.BinaryOperation,
    pairs: dict[str, str],
    lists: dict[str, str],
) -> list[str]:
    """Return the operations for ``q.copy_(a * p + b * q)``: two products and their sum, as there."""
    factors: dict[str, str] = {}
    for product in (total.left, total.right):
        if isinstance(product, cst.BinaryOperation) and isinstance(product.operator, cst.Multiply):
            for factor, value in ((product.left, product.right), (product.right, product.left)):
                text = source.code(value)
                if text.removesuffix(".data") in pairs:
                    factors[_list_of(source, value, pairs, lists)] = _factor(source, cst.Arg(factor), pairs)
    own = _list_of(source, target, pairs, lists)
    if not isinstance(total.operator, cst.Add) or len(factors) != 2 or own not in factors:
        raise Refusal(f"{source.code(total)} is not a sum of two products with the parameters.")
    (other,) = set(factors) - {own}
    scaled = free_name(source, "scaled_list")
    return [
        f"{scaled} = {{torch}}._foreach_mul({other}, {factors[other]})",
        f"{{torch}}._foreach_mul_({own}, {factors[own]})",
        f"{{torch}}._foreach_add_({own}, {scaled})",
    ]


def _list_of(source: Source, node: cst.BaseExpression, pairs: dict[str, str], lists: dict[str, str]) -> str:
    """Return the name of the list of what an expression is for each parameter."""
    text = source.code(node)
    owner = next((name for name in pairs if text in (name, f"{name}.data")), None)
    if owner is None:
        raise Refusal(f"{text} is not a parameter of the loop.")
    if text not in lists:
        lists[text] = free_name(source, f"{owner}_list")
    return lists[text]


def _factor(source: Source, argument: cst.Arg, pairs: dict[str, str]) -> str:
    """Return a factor, which must be the same for all parameters."""
    text = source.code(argument.value)
    if any(reads(source, argument.value, name) for name in pairs):
        raise Refusal(f"{text} is another value for each parameter.")
    return text
