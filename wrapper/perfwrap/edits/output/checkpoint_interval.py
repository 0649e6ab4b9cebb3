"""Saves checkpoints in every Nth round of a loop, and in the last one: ``torch.save`` under an ``if``.

The save may be in a function of the file that only saves, and that the loop calls at one place. The loop must count
its rounds with ``range``, with ``enumerate`` of something that has a length, or with ``while step < steps`` and
``step += 1``, and must not end early, so that the last round is known. Values: ``every``, e.g. 5.
"""

from __future__ import annotations

import re

import libcst as cst
from msgspec import Struct

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import called_name, find_call, is_method
from perfwrap.edits.syntax.callers import alone, only_caller
from perfwrap.edits.syntax.counted_rounds import counter_of, counting, under_condition
from perfwrap.edits.syntax.names import changed_names, read_names, writes_anywhere
from perfwrap.edits.syntax.source_tree import Loop, Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines

SAVES = ("torch.save", "safetensors.torch.save_file", "torch.distributed.checkpoint.save")
IN_BACKGROUND = "save_in_background"
"""What ``background_save`` makes of them."""
METHODS = ("save_pretrained", "save_checkpoint", "save_state", "save_weights")
MODULES = ("os", "shutil", "json", "logging", "glob")
"""Modules whose functions a function that only saves may call."""
FUNCTIONS = (
    *(
        "print",
        "str",
        "int",
        "float",
        "len",
        "dict",
        "list",
        "sorted",
        "getattr",
        "hasattr",
        "isinstance",
        "open",
    ),
    *("Path", "vars", "asdict", "format", "max", "min", "round", "is_main_process", "get_rank"),
)
OWN_METHODS = (
    *(
        "state_dict",
        "join",
        "format",
        "mkdir",
        "unlink",
        "rename",
        "replace",
        "exists",
        "with_suffix",
        "cpu",
        "clone",
    ),
    *(
        "detach",
        "info",
        "debug",
        "warning",
        "log",
        "items",
        "to",
        "dump",
        "strip",
        "is_main_process",
        "named_parameters",
    ),
)


class Rounds(Struct, frozen=True):
    """How a loop counts: the counter, and the test of the last round, where the statement stands."""

    counter: str
    last: str
    first: str = "0"
    """The counter's value in the first round."""


def edit(source: Source, target: Target) -> Edited:
    """Return the source that saves at the line in every Nth round; raises Refusal."""
    every = target.values.get("every")
    if not isinstance(every, int) or every < 2:
        raise Refusal("The edit needs every=N, of at least 2.")
    call = find_call(
        source,
        target.line,
        lambda call: (
            source.name(call.func) in SAVES or is_method(call, *METHODS) or called_name(call) == IN_BACKGROUND
        ),
        "a function that saves",
    )
    statement = alone(source, call, "save")
    loop = source.loop(statement)
    if loop is None:
        statement = only_caller(source, statement, lambda found: _only_saves(source, found), "save")
        loop = source.loop(statement)
    check_own_lines(source, statement)
    if loop is None or (isinstance(loop, cst.For) and loop.asynchronous is not None):
        raise Refusal(f"Line {source.line(statement)} is not in a loop that counts its rounds.")
    if any(source.loop(found) is loop for found in source.inside(loop, cst.Break)) or any(
        source.scope(found) is source.scope(loop) for found in source.inside(loop, cst.Return)
    ):
        raise Refusal(f"The loop at line {source.line(loop)} may end early, and its last round must save.")
    changes: Changes = {}
    rounds = _rounds(source, loop, statement, changes)
    outer = [
        found
        for found in source.around(statement, cst.If)
        if source.is_inside(found, loop) and not _is_constant(source, found, statement, loop)
    ]
    if outer:
        return _longer(source, outer, rounds, every)
    test = (
        f"({rounds.counter} + 1) % {every} == 0"
        if rounds.first == "0"
        else f"{rounds.counter} % {every} == 0"
    )
    changes[statement] = under_condition(source, f"{test} or {rounds.last}")
    return Edited(
        source.replaced(changes),
        f"Save at line {source.line(statement)} in every {every}th round of the loop and in the last one.",
    )


def _only_saves(source: Source, call: cst.Call) -> bool:
    """Return whether a call in a function that saves does nothing else, as far as its name says."""
    full = source.name(call.func)
    return (
        full in SAVES
        or called_name(call) in (IN_BACKGROUND, "in_background")
        or full.partition(".")[0] in MODULES
        or called_name(call) in FUNCTIONS
        or is_method(call, *OWN_METHODS, *METHODS)
    )


def _rounds(source: Source, loop: Loop, statement: cst.BaseStatement, changes: Changes) -> Rounds:
    """Return how a loop counts its rounds, and have ``enumerate`` count them if it does not."""
    if isinstance(loop, cst.While):
        return _while_rounds(source, loop, statement)
    head = loop.iter
    refusal = Refusal(f"The loop at line {source.line(loop)} does not say how many rounds it has.")
    if not isinstance(head, cst.Call) or any(found.keyword or found.star for found in head.args):
        raise refusal
    values = [found.value for found in head.args]
    if dotted_name(head.func) == "enumerate" and len(values) == 1:
        if not isinstance(values[0], cst.Name | cst.Attribute):
            raise refusal
        step = counter_of(source, loop, changes)
        return Rounds(step, f"{step} + 1 == len({source.code(values[0])})")
    is_range = dotted_name(head.func) in ("range", "trange")
    if not is_range or len(values) not in (1, 2) or any(map(_is_uncertain, values)):
        raise refusal
    if changed_names(source, loop.body) & set().union(*(read_names(source, value) for value in values)):
        raise refusal
    step = counter_of(source, loop, changes)
    end = values[-1]
    last = f"{step} + 1 == {source.code(end)}"
    if (
        isinstance(end, cst.BinaryOperation)
        and isinstance(end.operator, cst.Add)
        and source.code(end.right) == "1"
    ):
        last = f"{step} == {source.code(end.left)}"
    return Rounds(step, last, source.code(values[0]) if len(values) == 2 else "0")


def _is_uncertain(value: cst.BaseExpression) -> bool:
    """Return whether an end of ``range`` is anything else than a name, a number, or a name plus a number."""
    if isinstance(value, cst.BinaryOperation):
        return (
            not isinstance(value.operator, cst.Add)
            or _is_uncertain(value.left)
            or not isinstance(value.right, cst.Integer)
        )
    return not isinstance(value, cst.Name | cst.Attribute | cst.Integer)


def _while_rounds(source: Source, loop: cst.While, statement: cst.BaseStatement) -> Rounds:
    """Return how a loop ``while step < steps`` counts, whose body has ``step += 1``; raises Refusal."""
    test = loop.test
    refusal = Refusal(f"The loop at line {source.line(loop)} does not count its rounds up to a number.")
    if (
        not isinstance(test, cst.Comparison)
        or len(test.comparisons) != 1
        or not isinstance(test.comparisons[0].operator, cst.LessThan)
    ):
        raise refusal
    step, end = dotted_name(test.left), test.comparisons[0].comparator
    if not step or not isinstance(end, cst.Name | cst.Attribute | cst.Integer):
        raise refusal
    if read_names(source, end) & changed_names(source, loop.body):
        raise refusal
    counts = counting(source, loop, step)
    shift = "" if source.line(counts) < source.line(statement) else " + 1"
    return Rounds(step, f"{step}{shift} >= {source.code(end)}", "0" if shift else "1")


def _is_constant(source: Source, outer: cst.If, statement: cst.BaseStatement, loop: Loop) -> bool:
    """Return whether a condition around the statement is the same in all rounds, e.g. ``if rank == 0``."""
    read = read_names(source, outer.test)
    if any(source.inside(outer.test, cst.Call, cst.NamedExpr, cst.Subscript)) or not source.is_inside(
        statement, outer.body
    ):
        return False
    # An attribute may be set by any function that the loop calls.
    written = [found for name in read if "." in name for found in writes_anywhere(source, name)]
    scopes = [source.scope(found) for found in written]
    return not read & changed_names(source, loop) and all(
        isinstance(scope, cst.FunctionDef) and scope.name.value == "__init__" for scope in scopes
    )


def _longer(source: Source, outer: list[cst.If], rounds: Rounds, every: int) -> Edited:
    """Return the source in which ``if step % 5 == 4`` around the line has an interval that is longer."""
    test = outer[0].test
    step = re.escape(rounds.counter)
    found = re.fullmatch(rf"\(?{step}( \+ 1)?\)? % (\d+|[A-Za-z_][\w.]*) == (\d+)", source.code(test))
    if len(outer) > 1 or found is None or outer[0].orelse is not None:
        raise Refusal(f"Line {source.line(outer[0])} has another condition than a number of rounds.")
    shift, written, rest = found[1] or "", found[2], int(found[3])
    if written.isdecimal():
        interval = int(written)
        longer, words = (
            str(interval * every),
            f"every {interval * every}th round instead of every {interval}th",
        )
        rest = interval * every - 1 if rest == interval - 1 and rest else rest
    else:
        if rest:
            raise Refusal(f"Line {source.line(outer[0])} has another condition than a number of rounds.")
        longer, words = f"({every} * {written})", f"every {every}th of the rounds in which it saved"
    name = f"({rounds.counter}{shift})" if shift else rounds.counter
    new = cst.parse_expression(f"{name} % {longer} == {rest} or {rounds.last}")
    return Edited(
        source.replaced({test: new}),
        f"Save in {words}, and in the last one: the condition at line {source.line(test)}.",
    )
