"""Computes no gradients of the discriminator's weights in the generator's step: ``requires_grad_(False)`` around it.

The line is that of the discriminator's call, or of the backward pass through it.
Refused unless the names say that the next step is the generator's, and ``zero_grad()`` clears the discriminator's
gradients before its own backward pass: then results stay. Also refused: files that set ``requires_grad`` themselves or
wrap models for several processes. Values: none.
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
from perfwrap.edits.syntax.blocks import block_of, index_in
from perfwrap.edits.syntax.call_arguments import callee, find_call, is_method
from perfwrap.edits.syntax.names import is_stored, read_names
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, with_lines

WRAPPERS = (
    "DataParallel",
    "DistributedDataParallel",
    "DDP",
    "FullyShardedDataParallel",
    "FSDP",
    "fully_shard",
)


def edit(source: Source, target: Target) -> Edited:
    """Return the source that freezes the discriminator from the line to the backward pass; raises Refusal."""
    if _sets_gradients(source):
        raise Refusal("The file sets requires_grad itself or wraps models for several processes.")
    line = line_of_discriminator(source, target.line)
    call = find_call(
        source, line, lambda call: is_of(dotted_name(call.func), DISCRIMINATOR), "a discriminator"
    )
    model = dotted_name(call.func)
    inputs = [found for argument in call.args for found in sorted(read_names(source, argument.value))]
    if not inputs:
        raise Refusal(f"The discriminator at line {target.line} has no named input.")
    backward = backward_after(source, call, inputs[0])
    check_steps(source, backward, GENERATOR)
    check_cleared(source, backward, DISCRIMINATOR)
    first = source.statement(call)
    block = block_of(source, first)
    begin, end = index_in(source, block, first), index_in(source, block, backward)
    if begin is None or end is None or begin == end:
        raise Refusal("The discriminator's call and the backward pass are not in one block.")
    changes: Changes = {
        block[begin]: with_lines(source, block[begin], [f"{model}.requires_grad_(False)"], []),
        block[end]: with_lines(source, block[end], [], [f"{model}.requires_grad_(True)"]),
    }
    return Edited(
        source.replaced(changes),
        f"Compute no gradients of {model} from line {source.line(call)} to line {source.line(backward)}.",
    )


def _sets_gradients(source: Source) -> bool:
    """Return whether a file sets ``requires_grad`` of weights, or wraps models for several processes."""
    for call in source.inside(source.module, cst.Call):
        if is_method(call, "requires_grad_") or callee(source, call) in WRAPPERS:
            return True
    return any(
        found.attr.value == "requires_grad" and is_stored(source, found)
        for found in source.inside(source.module, cst.Attribute)
    )
