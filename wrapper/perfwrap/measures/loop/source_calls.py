"""Lines of the program that write for people to read (logs, progress bars), compute on tensors, or move files.

The calls of a line come from its text in the file; a file that is newer than the run gives nothing.
"""

from __future__ import annotations

import ast
import stat
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from perfwrap.timeline.notebook_cells import cell_text

MAX_BYTES = 4 << 20
"""Larger files are not program files and are not read."""

WRITES = frozenset(
    ("print", "pprint", "tqdm", "trange", "track", "write", "writelines", "writerow", "writerows", "flush")
    + ("fsync", "savefig", "imsave", "imwrite", "savetxt", "to_csv", "set_postfix", "set_postfix_str")
    + ("set_description", "set_description_str", "add_scalar", "add_scalars", "add_histogram", "add_image")
    + ("add_images", "add_figure", "add_text", "log_metric", "log_metrics", "log_dict", "log_image")
)
"""Names of functions and methods that have no other use in a training loop."""

LEVELS = frozenset(("log", "debug", "info", "warning", "error", "exception", "critical", "dump"))
"""Names that write only if they are called on a logger, a tracker or similar."""

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
"""The owners of such methods: the last part of the name before the dot."""

MODES = frozenset(("w", "a", "x", "wt", "at", "xt", "w+", "a+", "wb", "ab"))
"""Modes that open a file for writing."""


TENSOR_MODULES = ("torch.", "F.", "nn.functional.", "functional.")
"""Prefixes of functions that compute on tensors, as programs import them."""

PREPARES = frozenset(
    ("tensor", "as_tensor", "from_numpy", "zeros", "ones", "empty", "full", "arange", "Generator", "device")
    + (
        "Size",
        "no_grad",
        "enable_grad",
        "inference_mode",
        "set_grad_enabled",
        "autocast",
        "manual_seed",
        "save",
    )
    + ("load", "compile", "is_tensor", "numel", "is_grad_enabled", "clip_grad_norm_", "clip_grad_value_")
)
"""Functions of torch that compute almost nothing, or that are recorded separately."""

RECORDED_MODULES = ("torch.cuda.", "torch.distributed.", "torch.optim.", "torch.nn.Module", "torch.utils.")


MOVES = frozenset(
    (
        "fsync",
        "fdatasync",
        "rename",
        "renames",
        "unlink",
        "rmtree",
        "copyfile",
        "copy2",
        "copytree",
        "symlink",
    )
    + ("symlink_to", "hardlink_to", "upload", "upload_file", "upload_folder", "put_object")
)
"""Names of functions that move, delete, sync or upload files."""

MOVES_OF = {"os": frozenset(("replace", "remove", "link")), "shutil": frozenset(("move", "copy"))}
"""Names that mean the same only as functions of these modules."""


REPEATED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.For, ast.AsyncFor, ast.While)
"""Blocks of code that run repeatedly."""
ADDS = frozenset(("append", "extend", "insert", "appendleft", "extendleft", "add", "update"))
"""Methods that add to a container."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def file_calls(run: Mapping[str, Any], file: str, line: int) -> tuple[str, ...]:
    """Return the calls that move, delete or sync files, e.g. ``os.replace``, after a line in the same block.

    The block is the innermost loop or function around the line; empty without one.
    """
    around = [
        node
        for node in ast.walk(tree_of(run, file))
        if isinstance(node, REPEATED) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    if not around:
        return ()
    innermost = max(around, key=lambda node: node.lineno)
    calls = (node for node in ast.walk(innermost) if isinstance(node, ast.Call) and node.lineno >= line)
    names = (_name(call.func) for call in calls)
    return tuple(dict.fromkeys(name for name in names if _moves(name)))


def begin_of_statement(run: Mapping[str, Any], file: str, line: int) -> int:
    """Return the first line of the simple statement that a line is in; the line itself if that is unknown.

    While a call over several lines runs, Python says that its caller is at the first of them.
    """
    first = [
        node.lineno
        for node in ast.walk(tree_of(run, file))
        if isinstance(node, ast.stmt)
        and not hasattr(node, "body")
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(first, default=line)


def tensor_calls(run: Mapping[str, Any], file: str, first: int, last: int) -> tuple[str, ...]:
    """Return the calls on some lines that compute on tensors, e.g. ``torch.linalg.svdvals``; empty if unknown.

    Operators and methods of tensors (``a @ b``, ``a.sum()``) are not included: their names do not show the type of
    their object.
    """
    calls = (node for node in ast.walk(tree_of(run, file)) if isinstance(node, ast.Call))
    names = (dotted(call.func) for call in calls if first <= call.lineno <= last)
    return tuple(dict.fromkeys(name for name in names if _computes(name)))


def calls_of(run: Mapping[str, Any], file: str, name: str) -> tuple[int, ...]:
    """Return the lines that call a function or class by this name, with or without its module before the dot."""
    calls = (node for node in ast.walk(tree_of(run, file)) if isinstance(node, ast.Call))
    return tuple(sorted({call.lineno for call in calls if _name(call.func).rpartition(".")[2] == name}))


def independent_loop(run: Mapping[str, Any], file: str, line: int) -> tuple[int, int] | None:
    """Return first and last line of the innermost loop around a line, if its passes seem independent of each other.

    A comprehension is a loop too. None without a loop in the same function, if a pass reads what the pass before it
    computed (layers one after the other, time steps of a recurrence), and if the loop is over functions or modules that
    it calls.
    """
    innermost = _innermost_loop(run, file, line)
    if isinstance(innermost, ast.For):
        targets = _names(innermost.target, ast.Store)
        independent = not _carries(innermost)
    elif isinstance(innermost, COMPREHENSIONS):
        targets = set().union(*(_names(each.target, ast.Store) for each in innermost.generators))
        independent = any(isinstance(node, ast.Call) for node in ast.walk(innermost))
    else:
        return None
    if not independent or _calls_one_of(innermost, targets):
        return None
    return innermost.lineno, innermost.end_lineno or innermost.lineno


def loop_around(run: Mapping[str, Any], file: str, line: int) -> tuple[int, int] | None:
    """Return first and last line of the innermost for loop or comprehension around a line; None without one."""
    loop = _innermost_loop(run, file, line)
    if isinstance(loop, (ast.For, *COMPREHENSIONS)):
        return loop.lineno, loop.end_lineno or loop.lineno
    return None


def _innermost_loop(run: Mapping[str, Any], file: str, line: int) -> ast.stmt | ast.expr | None:
    """Return the innermost loop, comprehension or function around a line; None without one."""
    around = [
        node
        for node in ast.walk(tree_of(run, file))
        if isinstance(node, (*REPEATED, *COMPREHENSIONS))
        and _begin_of_passes(node) <= line <= (node.end_lineno or node.lineno)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def _begin_of_passes(node: ast.stmt | ast.expr) -> int:
    """Return the first line that runs in each pass: a comprehension may be on a single line."""
    return node.lineno if isinstance(node, COMPREHENSIONS) else node.lineno + 1


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Return the names that are read or assigned anywhere in a node."""
    return {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, context)
    }


def _calls_one_of(loop: ast.AST, targets: set[str]) -> bool:
    """Return whether a loop calls what it iterates over, or what it gets by the index or name that it iterates over."""
    made = [node for node in ast.walk(loop) if isinstance(node, ast.Assign)]
    targets = targets.union(
        *(_names(each, ast.Store) for each in made if _names(each.value, ast.Load) & targets)
    )
    called = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    chosen = (each.slice if isinstance(each, ast.Subscript) else each for each in called)
    return any(not isinstance(each, ast.Attribute) and _names(each, ast.Load) & targets for each in chosen)


def _carries(loop: ast.For) -> bool:
    """Return whether a pass of a loop reads a name before assigning it, other than to add to it."""
    assigned = set().union(*(_names(each, ast.Store) | _changed(each).keys() for each in loop.body))
    return _reads_first(loop.body, assigned, _names(loop.target, ast.Store))


def _changed(node: ast.AST) -> dict[str, int]:
    """Return the names whose objects a node changes (``x.append(y)``, ``x[i] = y``), and how often."""
    found: dict[str, int] = {}
    for each in ast.walk(node):
        changed = None
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in ADDS:
            changed = each.func.value
        elif isinstance(each, (ast.Subscript, ast.Attribute)) and isinstance(each.ctx, ast.Store):
            changed = each.value
        if isinstance(changed, ast.Name):
            found[changed.id] = found.get(changed.id, 0) + 1
    return found


def _read(node: ast.AST) -> set[str]:
    """Return the names that a node reads, other than to change their objects."""
    loads = [
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    ]
    changed = _changed(node)
    return {name for name in loads if loads.count(name) > changed.get(name, 0)}


def _reads_first(body: list[ast.stmt], assigned: set[str], known: set[str]) -> bool:
    """Return whether some statements read one of the names ``assigned`` in the loop that is not ``known`` by then.

    Adds the names that they assign to ``known``, unless they are in a block that may not run.
    """
    for statement in body:
        heads, blocks = _blocks(statement)
        read = set().union(*(_read(each) for each in heads))
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
            operands = (statement.value.left, statement.value.right)
            read -= {each.id for each in operands if isinstance(each, ast.Name)} & _names(
                statement, ast.Store
            )
        if read & assigned - known:
            return True
        inside = [known | set().union(*(_names(each, ast.Store) for each in heads)) for _ in blocks]
        if any(_reads_first(block, assigned, names) for block, names in zip(blocks, inside, strict=True)):
            return True
        if not blocks:
            known |= _names(statement, ast.Store)
        elif isinstance(statement, (ast.If, ast.With, ast.AsyncWith)):
            # What comes next does not run after a block that leaves the pass.
            stays = [names for block, names in zip(blocks, inside, strict=True) if not _leaves(block)]
            known |= set.intersection(*stays) if stays else set()
    return False


def _leaves(block: list[ast.stmt]) -> bool:
    """Return whether a block ends by leaving the pass."""
    return bool(block) and isinstance(block[-1], (ast.Raise, ast.Return, ast.Continue, ast.Break))


def _blocks(statement: ast.stmt) -> tuple[list[ast.AST], list[list[ast.stmt]]]:
    """Return what a statement evaluates first, and the blocks of which it then runs one or none; not for ``try``."""
    if isinstance(statement, ast.If):
        return [statement.test], [statement.body, statement.orelse]
    if isinstance(statement, ast.While):
        return [statement.test], [statement.body]
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        return [statement.iter, statement.target], [statement.body]
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return list(statement.items), [statement.body]
    return [statement], []


def writing_calls(run: Mapping[str, Any], file: str, line: int) -> tuple[str, ...]:
    """Return the calls on a line that write, e.g. ``json.dump``; empty if the file cannot be read."""
    return tuple(dict.fromkeys(_name(call.func) for call in _calls(run, file, line) if _writes(call)))


def called_names(run: Mapping[str, Any], file: str, line: int) -> frozenset[str]:
    """Return the names of what a line calls, e.g. ``json.dump``; empty if the file cannot be read."""
    return frozenset(_name(call.func) for call in _calls(run, file, line))


def _calls(run: Mapping[str, Any], file: str, line: int) -> list[ast.Call]:
    tree = tree_of(run, file)
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and covers(node, line)]


def tree_of(run: Mapping[str, Any], file: str) -> ast.Module:
    """Return the syntax tree of a file of the program, or of a notebook cell; an empty one if it is unknown."""
    cell = cell_text(run, file)
    if cell is not None:
        return _parsed(cell)
    end = run.get("end")
    wall_ns = end.get("wall_ns") if isinstance(end, dict) else None
    return _tree(str(Path(str(run.get("cwd") or "."), file)), wall_ns)


@lru_cache(maxsize=64)
def _tree(path: str, run_end_ns: int | None) -> ast.Module:
    """Return the file's syntax tree; an empty one if it cannot be read or has changed since the run."""
    try:
        found = Path(path).stat()
        changed = run_end_ns is not None and found.st_mtime_ns > run_end_ns
        if changed or not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            return _parsed("")
        return _parsed(Path(path).read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return _parsed("")


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module:
    """Return the syntax tree of a text; an empty one if it is not plain Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Invalid escapes in the user's strings do not matter here.
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


def covers(node: ast.Call, line: int) -> bool:
    """Return whether a call is on a line."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _name(function: ast.expr) -> str:
    """Return a function's name with its owner before the dot, e.g. ``json.dump``; empty for other expressions."""
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
    """Return whether a call writes, from its name or, for ``open``, from its mode."""
    name = _name(call.func)
    owner, _, function = name.rpartition(".")
    if function == "open":
        words = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        modes = [word.value for word in words if isinstance(word, ast.Constant)]
        return any(isinstance(mode, str) and mode in MODES for mode in modes)
    return function in WRITES or (function in LEVELS and owner.lower() in LOGGERS)


def dotted(function: ast.expr) -> str:
    """Return a function's full name, e.g. ``torch.linalg.svdvals``; empty if it does not consist of names only."""
    parts: list[str] = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    return ".".join([function.id, *reversed(parts)]) if isinstance(function, ast.Name) else ""


def _computes(name: str) -> bool:
    """Return whether a function with this full name computes on tensors."""
    function = name.rpartition(".")[2]
    return (
        name.startswith(TENSOR_MODULES) and not name.startswith(RECORDED_MODULES) and function not in PREPARES
    )


def _moves(name: str) -> bool:
    """Return whether a function with this name moves, deletes or syncs files."""
    owner, _, function = name.rpartition(".")
    return function in MOVES or function in MOVES_OF.get(owner, ())
