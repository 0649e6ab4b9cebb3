"""Lines whose text shows a call that does more than is used of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from perfwrap.measures.loop.source_calls import covers, dotted, tree_of


def shuffles_to_draw(run: Mapping[str, Any], file: str, line: int) -> bool:
    """Return whether a line draws with ``numpy.random.choice(..., replace=False)``, which shuffles all first."""
    return any(
        isinstance(node, ast.Call)
        and covers(node, line)
        and dotted(node.func) in ("np.random.choice", "numpy.random.choice")
        and any(
            word.arg == "replace" and isinstance(word.value, ast.Constant) and word.value.value is False
            for word in node.keywords
        )
        for node in ast.walk(tree_of(run, file))
    )


def drops_second_result(run: Mapping[str, Any], file: str, line: int, option: str) -> bool:
    """Return whether a line calls something without ``option`` and uses only the first of its results.

    That is ``x, _ = f(...)`` or ``f(...)[0]``; an option that is passed as ``**options`` is unknown.
    """
    return any(
        isinstance(call, ast.Call)
        and covers(call, line)
        and all(keyword.arg not in (None, option) for keyword in call.keywords)
        for call in map(_used_in_part, ast.walk(tree_of(run, file)))
    )


def _used_in_part(node: ast.AST) -> ast.expr | None:
    """Return the expression of whose results a statement or expression uses only the first."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple):
        names = node.targets[0].elts
        if len(names) == 2 and isinstance(names[1], ast.Name) and names[1].id.startswith("_"):
            return node.value
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
        return node.value
    return None
