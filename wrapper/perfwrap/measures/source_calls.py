"""Which lines of the program write for people to read: logs, progress bars, tables, trackers.

What a line calls is told by its text, as it stands in the file; a file that is newer than the run tells nothing.
"""

from __future__ import annotations

import ast
import stat
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

MOST_BYTES = 4 << 20
"""No program file is larger; what is, is not read."""

WRITES = frozenset(
    ("print", "pprint", "tqdm", "trange", "track", "write", "writelines", "writerow", "writerows", "flush")
    + ("fsync", "savefig", "imsave", "imwrite", "savetxt", "to_csv", "set_postfix", "set_postfix_str")
    + ("set_description", "set_description_str", "add_scalar", "add_scalars", "add_histogram", "add_image")
    + ("add_images", "add_figure", "add_text", "log_metric", "log_metrics", "log_dict", "log_image")
)
"""Names of functions and methods that nobody uses for anything else in a training loop."""

LEVELS = frozenset(("log", "debug", "info", "warning", "error", "exception", "critical", "dump"))
"""Names that only write when they are called on a logger, a tracker or the like."""

LOGGERS = frozenset(
    (
        "log",
        "logger",
        "logging",
        "_logger",
        "_log",
        "wandb",
        "mlflow",
        "neptune",
        "run",
        "tracker",
        "json",
        "yaml",
    )
)
"""What such methods are called on, as the last part of the name before the dot."""

MODES = frozenset(("w", "a", "x", "wt", "at", "xt", "w+", "a+", "wb", "ab"))
"""Modes in which a file is opened to write into it."""


def writing_calls(run: Mapping[str, Any], file: str, line: int) -> tuple[str, ...]:
    """Return the calls on a line that write, e.g. ``json.dump``; none where the file cannot tell."""
    end = run.get("end")
    wall_ns = end.get("wall_ns") if isinstance(end, dict) else None
    tree = _tree(str(Path(str(run.get("cwd") or "."), file)), wall_ns)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _holds(node, line)]
    return tuple(dict.fromkeys(_name(call.func) for call in calls if _writes(call)))


@lru_cache(maxsize=64)
def _tree(path: str, run_end_ns: int | None) -> ast.Module:
    """Return the file's syntax tree; an empty one when it cannot be read or has changed since the run."""
    nothing = ast.Module(body=[], type_ignores=[])
    try:
        found = Path(path).stat()
        changed = run_end_ns is not None and found.st_mtime_ns > run_end_ns
        if changed or not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            return nothing
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # An odd escape in the user's strings is none of our business.
            return ast.parse(Path(path).read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return nothing


def _holds(node: ast.Call, line: int) -> bool:
    """Say whether a call stands on a line."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _name(function: ast.expr) -> str:
    """Return a function's name with what stands before its dot, e.g. ``json.dump``; empty for others."""
    if isinstance(function, ast.Name):
        return function.id
    if not isinstance(function, ast.Attribute):
        return ""
    owner = function.value
    before = (
        owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    )
    return f"{before}.{function.attr}" if before else function.attr


def _writes(call: ast.Call) -> bool:
    """Say whether a call writes, by its name or, of ``open``, by the mode that stands in it."""
    name = _name(call.func)
    owner, _, function = name.rpartition(".")
    if function == "open":
        words = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        modes = [word.value for word in words if isinstance(word, ast.Constant)]
        return any(isinstance(mode, str) and mode in MODES for mode in modes)
    return function in WRITES or (function in LEVELS and owner.lower() in LOGGERS)
