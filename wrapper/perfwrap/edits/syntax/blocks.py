"""What is certain about two places of one block of statements: which comes first, and what happens in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from perfwrap.edits.syntax.names import changed_names, is_stored, mentions
from perfwrap.edits.syntax.source_tree import Source, dotted_name


def block_of(source: Source, statement: cst.CSTNode) -> Sequence[cst.BaseStatement]:
    """Return the statements of the block that a statement is in; empty for one behind a colon."""
    block = source.parent(statement)
    if isinstance(block, cst.IndentedBlock | cst.Module):
        return block.body
    return ()


def index_in(source: Source, block: Sequence[cst.BaseStatement], node: cst.CSTNode) -> int | None:
    """Return which statement of a block a node is in, None if it is in none."""
    return next((index for index, found in enumerate(block) if source.is_inside(node, found)), None)


def value_before(source: Source, name: cst.Name) -> cst.BaseExpression | None:
    """Return the value that a variable has where it is read: of the last plain assignment before it, in its block.

    None if it is not certain: then an inner block, a loop or something else may set it.
    """
    statement = source.statement(name)
    block = block_of(source, statement)
    place = index_in(source, block, statement)
    for index in range((place or 0) - 1, -1, -1):
        earlier = block[index]
        if not any(is_stored(source, node) for node in mentions(source, earlier, name.value)):
            continue
        assign = earlier.body[0] if isinstance(earlier, cst.SimpleStatementLine) else None
        if isinstance(assign, cst.Assign) and len(assign.targets) == 1:
            return assign.value if dotted_name(assign.targets[0].target) == name.value else None
        return None
    return None


def is_unchanged_between(
    source: Source, names: Iterable[str], first: cst.CSTNode, second: cst.CSTNode, with_first: bool = True
) -> bool:
    """Return whether the statements from one place to a later one of the same block certainly keep some names.

    The statement of the second place does not count, that of the first one only with ``with_first``.
    """
    block = block_of(source, source.statement(first))
    begin, end = index_in(source, block, first), index_in(source, block, second)
    if begin is None or end is None or begin > end:
        return False
    kept = set(names)
    return not any(
        kept & {changed, *_parts(changed)}
        for statement in block[begin + (not with_first) : end]
        for changed in changed_names(source, statement) | changed_in_place(source, statement)
    )


def changed_in_place(source: Source, inside: cst.CSTNode) -> set[str]:
    """Return the names of tensors that methods such as ``add_`` change."""
    return {
        dotted_name(call.func.value)
        for call in source.inside(inside, cst.Call)
        if isinstance(call.func, cst.Attribute)
        and call.func.attr.value.endswith("_")
        and not call.func.attr.value.endswith("__")
    } - {""}


def _parts(dotted: str) -> list[str]:
    """Return ``a`` and ``a.b`` of ``a.b.c``: what a change of a part changes."""
    words = dotted.split(".")
    return [".".join(words[:count]) for count in range(1, len(words))]
