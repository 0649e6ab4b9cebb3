"""Writes a checkpoint from a thread: ``torch.save`` gets a copy of the state, and the training goes on.

Three functions are added to the file. A save waits for the one before it; the exit of the program waits, too. What
the function does with the file afterwards, such as ``os.replace``, goes to the same thread, in the same order. Other
lines of the file that may read what was saved wait first, as does the end of a ``with TemporaryDirectory()``. Refused:
a state that is not certain to be copied, and files whose use cannot wait. Values: none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.output.checkpoint_interval import SAVES
from perfwrap.edits.syntax.added_code import add_code
from perfwrap.edits.syntax.blocks import value_before
from perfwrap.edits.syntax.call_arguments import argument_of, called_name, find_call, is_method, unpacked
from perfwrap.edits.syntax.names import read_names, writes
from perfwrap.edits.syntax.source_tree import Change, Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines, with_lines

SAVE, MOVE, WAIT = "save_in_background", "in_background", "wait_for_saves"
CODE = '''
import atexit
import copy
import os
from concurrent.futures import ThreadPoolExecutor

_writer = ThreadPoolExecutor(1)
_writes = []


def in_background(function, *arguments, **options):
    """Call a function in the thread that writes, after what it has to do already."""
    _writes.append(_writer.submit(function, *arguments, **options))


def save_in_background(save, state, path, **options):
    """Write a copy of the state in a thread, once what was to be written before is written."""
    wait_for_saves()
    if isinstance(path, (str, os.PathLike)):
        in_background(save, copy.deepcopy(state), path, **options)
    else:
        save(state, path, **options)


def wait_for_saves():
    """Wait until everything is written; raise what failed."""
    while _writes:
        _writes.pop(0).result()


def _start_anew():
    """In a forked child, which has no such thread: what its parent writes is not the child's."""
    global _writer
    _writer = ThreadPoolExecutor(1)
    _writes.clear()


atexit.register(wait_for_saves)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
'''
SHARDED = re.compile(r"FullyShardedDataParallel|\bFSDP\b|fully_shard|DTensor|deepspeed")
WRAPPED = re.compile(r"DistributedDataParallel|\bDDP\b|DataParallel")
"""Models whose tensors can be copied, but not the models themselves."""
PLAIN = re.compile(r"\w*(?:epoch|step|iter\w*|best\w*|loss\w*|acc\w*|lr|args|config|cfg|arch|seed|metrics)")
"""Variables that hold no model."""
MODULES = ("shutil", "glob", "subprocess", "zipfile", "tarfile", "filecmp")
"""Modules whose functions may use a file that was saved."""
FUNCTIONS = (
    *("os.replace", "os.rename", "os.renames", "os.remove", "os.unlink", "os.rmdir", "os.removedirs"),
    *("os.listdir", "os.scandir", "os.walk", "os.stat", "os.link", "os.symlink", "os.system", "os.popen"),
    *(
        "os.path.getsize",
        "os.path.getmtime",
        "os.path.exists",
        "os.path.isfile",
        "os.path.islink",
        "os.chdir",
    ),
    *("torch.load", "safetensors.torch.load_file", "torch.distributed.barrier", "os._exit", "os.execv"),
)
METHODS = (
    *(
        "unlink",
        "rename",
        "stat",
        "exists",
        "is_file",
        "glob",
        "rglob",
        "iterdir",
        "symlink_to",
        "hardlink_to",
    ),
    *("read_bytes", "barrier", "wait_for_everyone", "load_from_checkpoint", "cleanup", "kill"),
    *("log_artifact", "log_artifacts", "upload_file", "upload_folder", "upload_blob", "push_to_hub"),
)
MOVES = (
    *("os.replace", "os.rename", "os.remove", "os.unlink", "shutil.copy", "shutil.copy2", "shutil.copyfile"),
    *("shutil.move", "shutil.rmtree"),
)
"""What the thread can do instead, in its turn."""
MOVE_METHODS = ("unlink", "rename", "replace")
"""The same of a path."""
OPENING = ("BytesIO", "open", "fdopen", "NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile")
PATH = re.compile(r"(?i)path|file|ckpt|checkpoint|dir|folder|save|out")
"""Names of paths, of which a part of a program may read the file."""
HARMLESS = (
    "print",
    "info",
    "debug",
    "warning",
    "log",
    "write",
    "makedirs",
    "mkdir",
    "append",
    "range",
    "len",
    "str",
)
"""Functions that use a path without the file, or cannot use one."""
PURE = ("join", "format", "str", "Path", "with_suffix", "with_name", "dirname", "basename")
"""Functions that only make a name of a file."""
MOST_WAITS = 4


def edit(source: Source, target: Target) -> Edited:
    """Return the source that saves from a thread at the line; raises Refusal."""
    call = find_call(source, target.line, lambda call: source.name(call.func) in SAVES[:2], "torch.save")
    statement = source.statement(call)
    if not isinstance(source.parent(call), cst.Expr) or not isinstance(statement, cst.SimpleStatementLine):
        raise Refusal(f"Line {target.line} does more than save.")
    if len(call.args) < 2 or any(argument.keyword or argument.star for argument in call.args[:2]):
        raise Refusal(f"The save at line {target.line} names its state or its file as a keyword.")
    if any(argument.keyword is None for argument in call.args[2:]):
        raise Refusal(f"The save at line {target.line} has more arguments without a keyword than two.")
    text = source.module.code
    has_code = CODE.strip("\n").partition("def ")[2].replace("\n", source.module.default_newline) in text
    if not has_code and re.search(rf"\b(?:{SAVE}|{MOVE}|{WAIT}|_writer|_writes|_start_anew)\b", text):
        raise Refusal(f"The file has a {SAVE}, or another of the names that the edit needs.")
    _check_file(source, call)
    _check_state(source, call)
    changes: Changes = {call: _called_by(SAVE)}
    moved, waits = _others(source, call, changes)
    if not has_code:
        add_code(source, call, CODE, changes)
    also = f" The thread then runs the calls at {_lines(moved)}." if moved else ""
    also += f" The program waits for the file at {_lines(waits)}." if waits else ""
    return Edited(
        source.replaced(changes),
        f"Write a copy of what line {source.line(call)} saves from a thread.{also}",
    )


def _lines(numbers: list[int]) -> str:
    """Return e.g. ``lines 3, 8``."""
    return f"line{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _check_file(source: Source, call: cst.Call) -> None:
    """Refuse what is known to be no path: an open file, or a buffer in memory, which is used at once."""
    path = call.args[1].value
    scope = source.scope(call)
    opened = [
        item.asname.name
        for item in source.inside(scope, cst.WithItem)
        if item.asname is not None and "TemporaryDirectory" not in source.code(item.item)
    ]
    made = [
        target.target
        for found in source.inside(scope, cst.Assign)
        if isinstance(found.value, cst.Call) and called_name(found.value) in OPENING
        for target in found.targets
    ]
    names = {dotted_name(name) for name in (*opened, *made)} & read_names(source, path)
    if names:
        raise Refusal(
            f"Line {source.line(call)} saves into {sorted(names)[0]}, which is not the path of a file."
        )


def _check_state(source: Source, call: cst.Call) -> None:
    """Refuse states that ``copy.deepcopy`` may not copy."""
    text = source.module.code
    if re.search(r"cuda\.stream\(", text):
        raise Refusal("The file uses streams of its own: the copy may be read before it is made.")
    sharded = SHARDED.search(text)
    if sharded is not None:
        raise Refusal(f"The file uses {sharded[0]}, whose state is in parts.")
    wrapped = WRAPPED.search(text)
    if wrapped is not None and not _is_plain(source, call.args[0].value):
        raise Refusal(f"The file uses {wrapped[0]}, and what is saved may be a model that cannot be copied.")


def _is_plain(source: Source, state: cst.BaseExpression) -> bool:
    """Return whether a state certainly has no models in it, only their tensors and plain values."""
    if isinstance(state, cst.Call):
        return is_method(state, "state_dict")
    if isinstance(state, cst.Dict):
        return all(
            isinstance(element, cst.DictElement) and _is_plain(source, element.value)
            for element in state.elements
        )
    if isinstance(state, cst.Name):
        before = value_before(source, state) or _argument(source, state)
        if before is not None:
            return _is_plain(source, before)
    if isinstance(state, cst.Name | cst.Attribute):
        return PLAIN.fullmatch(dotted_name(state).rpartition(".")[2]) is not None
    return isinstance(state, cst.BaseNumber | cst.BaseString | cst.BinaryOperation)


def _argument(source: Source, name: cst.Name) -> cst.BaseExpression | None:
    """Return what the only call of a function gives for its parameter; None if that is not certain."""
    function = source.scope(name)
    if not isinstance(function, cst.FunctionDef) or writes(source, function, name.value):
        return None
    names = [param.name.value for param in function.params.params]
    calls = [
        call
        for call in source.inside(source.module, cst.Call)
        if called_name(call) == function.name.value and not unpacked(call)
    ]
    if len(calls) != 1 or name.value not in names:
        return None
    shift = int(isinstance(calls[0].func, cst.Attribute) and names[0] == "self")
    found = argument_of(calls[0], name.value, names.index(name.value) - shift)
    return found.value if found is not None else None


def _called_by(name: str) -> Change:
    """Return a change that makes a call one of ``name`` with the function as the first argument."""

    def change(updated: cst.CSTNode) -> cst.Call:
        assert isinstance(updated, cst.Call)
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        function = cst.Arg(updated.func, comma=comma if updated.args else cst.MaybeSentinel.DEFAULT)
        return updated.with_changes(func=cst.Name(name), args=[function, *updated.args])

    return change


def _others(source: Source, call: cst.Call, changes: Changes) -> tuple[list[int], list[int]]:
    """Add the changes of other lines that use files; return the lines that the thread does, and those that wait."""
    runs = _runs(source, call)
    moved: list[int] = []
    waiting: dict[cst.BaseStatement, None] = {}
    for other in dict.fromkeys([*_file_calls(source), *_users_of_path(source, call)]):
        if _is_before(source, other, runs):
            continue
        statement = source.statement(other)
        if source.scope(other) is source.scope(call) and _is_move(source, other):
            changes[other] = _called_by(MOVE)
            moved.append(source.line(other))
        elif not any(
            source.is_inside(statement, outer) for outer in waiting if _waits_for(source, outer, call)
        ):
            waiting[statement] = None
    ends = _ends_of_folders(source, runs)
    if len(waiting) + len(ends) > MOST_WAITS:
        lines = ", ".join(str(source.line(found)) for found in (*waiting, *ends))
        raise Refusal(f"Lines {lines} may use the file that is saved: too many to wait.")
    for statement in waiting:
        if isinstance(statement, cst.While):
            raise Refusal(f"The loop at line {source.line(statement)} may wait for the file that is saved.")
        changes[statement] = with_lines(source, statement, [f"{WAIT}()\n"], [])
    for statement in ends:
        if statement in changes:
            raise Refusal(
                f"Line {source.line(statement)} may use the file that is saved, at the end of its folder."
            )
        changes[statement] = with_lines(source, statement, [], [f"{WAIT}()\n"])
    return moved, sorted(
        [*(source.line(found) for found in waiting), *(source.last_line(found) for found in ends)]
    )


def _waits_for(source: Source, outer: cst.BaseStatement, call: cst.Call) -> bool:
    """Return whether what waits before a statement has waited for all of it: nothing is saved inside of it."""
    return not isinstance(outer, cst.For | cst.While) and not source.is_inside(call, outer)


def _runs(source: Source, call: cst.Call) -> dict[cst.CSTNode, list[cst.CSTNode]]:
    """Return by function where it saves: by the call itself or by calls, by their names, that lead to it."""
    found: dict[cst.CSTNode, list[cst.CSTNode]] = {}
    names: set[str] = set()
    wanted: list[cst.CSTNode] = [call]
    while wanted:
        node = wanted.pop()
        scope = source.scope(node)
        found.setdefault(scope, []).append(node)
        if isinstance(scope, cst.FunctionDef) and scope.name.value not in names:
            names.add(scope.name.value)
            wanted += [
                other
                for other in source.inside(source.module, cst.Call)
                if called_name(other) == scope.name.value
            ]
    return found


def _is_before(source: Source, node: cst.CSTNode, runs: dict[cst.CSTNode, list[cst.CSTNode]]) -> bool:
    """Return whether a node certainly runs before anything is saved."""
    places = runs.get(source.scope(node), [])
    return bool(places) and all(
        source.line(node) < source.line(place)
        and not any(
            source.is_inside(node, loop)
            for loop in source.around(place, cst.For, cst.While)
            if source.scope(loop) is source.scope(place)
        )
        for place in places
    )


def _file_calls(source: Source) -> Iterator[cst.Call]:
    """Return the calls that may use a file that was saved; those of data sets read data."""
    for call in source.inside(source.module, cst.Call):
        name = source.name(call.func)
        if (
            name in FUNCTIONS
            or name.partition(".")[0] in MODULES
            or is_method(call, *METHODS)
            or (name == "open" and _reads(source, call))
            or (is_method(call, "replace") and len(call.args) == 1)
        ) and not any(_is_data_set(source, found) for found in source.around(call, cst.ClassDef)):
            yield call


def _users_of_path(source: Source, call: cst.Call) -> Iterator[cst.Call]:
    """Return the other calls of the function that get a part of the path: they may read the file."""
    names = {name for name in read_names(source, call.args[1].value) if PATH.search(name)}
    for other in source.inside(source.scope(call), cst.Call):
        name = called_name(other)
        if (
            other is not call
            and not source.is_inside(call, other)
            and not source.is_inside(other, call)
            and name not in HARMLESS
            and not source.name(other.func).startswith("os.path.")
            and any(
                names & read_names(source, argument.value)
                for argument in other.args
                if isinstance(
                    argument.value, cst.Name | cst.Attribute | cst.BinaryOperation | cst.FormattedString
                )
            )
        ):
            yield other


def _reads(source: Source, call: cst.Call) -> bool:
    """Return whether ``open`` reads, as far as its mode is known."""
    modes = [
        argument.value
        for index, argument in enumerate(call.args)
        if (argument.keyword is None and index == 1)
        or (argument.keyword is not None and argument.keyword.value == "mode")
    ]
    return not modes or source.code(modes[0]).lstrip("bt\"'")[:1] not in ("w", "a", "x")


def _is_data_set(source: Source, found: cst.ClassDef) -> bool:
    methods = {each.name.value for each in source.inside(found, cst.FunctionDef)}
    return "__getitem__" in methods


def _is_move(source: Source, call: cst.Call) -> bool:
    """Return whether a call is a statement of its own whose arguments only name files."""
    is_known = source.name(call.func) in MOVES or (
        is_method(call, *MOVE_METHODS) and isinstance(call.func, cst.Attribute)
    )
    if not is_known or not isinstance(source.parent(call), cst.Expr):
        return False
    if any(source.inside(call, cst.Await, cst.NamedExpr, cst.Lambda, cst.Subscript)):
        return False
    return all(other is call or called_name(other) in PURE for other in source.inside(call, cst.Call))


def _ends_of_folders(source: Source, runs: dict[cst.CSTNode, list[cst.CSTNode]]) -> list[cst.BaseStatement]:
    """Return the last statements of the blocks at whose end a temporary folder is removed; raises Refusal."""
    found = []
    for block in source.inside(source.module, cst.With):
        if not any("TemporaryDirectory" in source.code(item.item) for item in block.items):
            continue
        if _is_before(source, block.body.body[-1], runs):
            continue
        returns = any(source.scope(each) is source.scope(block) for each in source.inside(block, cst.Return))
        last = block.body.body[-1]
        if returns or not isinstance(last, cst.BaseStatement):
            raise Refusal(
                f"The folder of line {source.line(block)} may be removed before the file is written."
            )
        check_own_lines(source, last)
        found.append(last)
    return found
