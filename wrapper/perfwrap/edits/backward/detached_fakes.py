"""Detaches the generator's samples in the discriminator's step: ``D(fake)`` becomes ``D(fake.detach())``.

The line is that of the discriminator's call, of the generator's whose samples it gets next, or of the backward pass.
Its backward pass then ends at the samples. Refused unless the names say that the next step is the discriminator's, and
``zero_grad()`` clears the generator's gradients before its own backward pass: then results stay. Values: none.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.adversaries import (
    DISCRIMINATOR,
    GENERATOR,
    backward_after,
    check_cleared,
    check_steps,
    is_of,
    line_of_discriminator,
)
from perfwrap.edits.syntax.call_arguments import called_name, find_call
from perfwrap.edits.syntax.names import mentions, writes
from perfwrap.edits.syntax.source_tree import Source, dotted_name


def edit(source: Source, target: Target) -> Edited:
    """Return the source in which the discriminator's call at the line gets detached samples; raises Refusal."""
    call = find_call(
        source,
        _line_of_discriminator(source, target.line),
        lambda call: is_of(dotted_name(call.func), DISCRIMINATOR) and bool(_fakes(source, call)),
        "a discriminator with samples of a generator",
    )
    fakes = _fakes(source, call)
    if len(fakes) != 1:
        raise Refusal(f"The call at line {target.line} has several samples.")
    (fake,) = fakes
    for other in source.inside(source.module, cst.Call):
        if called_name(other) == "grad" and any(
            mentions(source, found, source.code(fake)) for found in other.args
        ):
            raise Refusal(f"Line {source.line(other)} takes a gradient with respect to {source.code(fake)}.")
    backward = backward_after(source, call, source.code(fake))
    check_steps(source, backward, DISCRIMINATOR)
    check_cleared(source, backward, GENERATOR)
    detached = cst.Call(cst.Attribute(fake, cst.Name("detach")))
    return Edited(
        source.replaced({fake: detached}),
        f"Pass {source.code(fake)}.detach() to the discriminator at line {source.line(call)}.",
    )


def _line_of_discriminator(source: Source, line: int) -> int:
    """Return the line of the first discriminator's call that gets what a generator makes at a line; else the line."""
    for assign in source.at_line(line, cst.Assign):
        made = assign.value
        name = assign.targets[0].target
        if (
            isinstance(made, cst.Call)
            and is_of(dotted_name(made.func), GENERATOR)
            and isinstance(name, cst.Name)
        ):
            for call in source.inside(source.scope(assign), cst.Call):
                if (
                    source.line(call) > line
                    and is_of(dotted_name(call.func), DISCRIMINATOR)
                    and name.value in {fake.value for fake in _fakes(source, call)}
                ):
                    return source.line(call)
    return line_of_discriminator(source, line)


def _fakes(source: Source, call: cst.Call) -> list[cst.Name]:
    """Return the arguments of a call that are variables which a generator sets."""
    found = []
    for argument in call.args:
        name = argument.value
        if not isinstance(name, cst.Name) or argument.star:
            continue
        stores = writes(source, source.scope(call), name.value)
        made = [_call_of(source, store) for store in stores]
        if made and all(each is not None and is_of(dotted_name(each.func), GENERATOR) for each in made):
            found.append(name)
    return found


def _call_of(source: Source, store: cst.CSTNode) -> cst.Call | None:
    """Return the call whose result a name gets."""
    assign = next(source.around(store, cst.Assign), None)
    return assign.value if assign is not None and isinstance(assign.value, cst.Call) else None
