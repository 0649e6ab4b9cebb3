"""Keeps the last result of a function, and returns it again while the function would compute the same.

One function is added to the file: it compares the inputs at each call. Tensors must be the same objects, unchanged; of
a parameter of which the function uses only the shape, the shape, the type and the device count. A result with a graph
is dropped by the first backward pass through it, so that no graph is used again in the next step. The function must
be of the file and do nothing but compute; the file must not change its results in place. Values: none.
"""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.added_code import add_code
from perfwrap.edits.syntax.call_arguments import called_name
from perfwrap.edits.syntax.names import free_name, reads
from perfwrap.edits.syntax.objects import class_of, forward_of, is_script, names_of_objects
from perfwrap.edits.syntax.same_results import SameResult, check_same_result, function_of
from perfwrap.edits.syntax.shared_memory import Sharing
from perfwrap.edits.syntax.source_tree import Result, Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines

KEEP = "keep_result"
CODE = '''
import functools
import weakref

import torch


def keep_result(shapes=(), attributes=()):
    """Make a function return its last result again while its inputs are the same unchanged tensors and numbers.

    Of the inputs in ``shapes`` only shape, type and device count. A backward pass through the result drops it.
    """

    def decorate(function):
        names = function.__code__.co_varnames
        kept = []

        @functools.wraps(function)
        def call(*arguments, **options):
            if _is_traced():
                return function(*arguments, **options)
            inputs = dict(zip(names, arguments), **options)
            owner = inputs.pop("self", None)
            inputs.update(("self." + name, getattr(owner, name, kept)) for name in attributes)
            tensors = []
            try:
                key = [_settings()]
                key += [(name, _state(value, tensors, name in shapes)) for name, value in inputs.items()]
                is_known = all(map(_shows_changes, tensors))
            except (TypeError, RuntimeError):
                is_known = False
            if not is_known:
                return function(*arguments, **options)
            for old, used, result, state in kept[:]:
                if old == key and all(tensor() is not None for tensor in used) and _state(result, []) == state:
                    return result
            kept.clear()
            result = function(*arguments, **options)
            made = []
            try:
                state = _state(result, made)
            except (TypeError, RuntimeError):
                return result
            for tensor in made:
                if tensor.requires_grad:
                    tensor.register_hook(lambda gradient: kept.clear())
            kept[:] = [(key, [weakref.ref(tensor) for tensor in tensors], result, state)]
            return result

        return call

    return decorate


def _is_traced():
    """Return whether a compiler records this call: then it has no tensors to keep."""
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return torch.jit.is_tracing() or (is_compiling is not None and is_compiling())


def _settings():
    """Return what changes the results of operations besides their inputs."""
    try:
        kinds = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    except (AttributeError, TypeError):  # before PyTorch 2.4
        kinds = [(torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()), torch.is_autocast_cpu_enabled()]
    new = torch.empty(0)
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), new.dtype, new.device, kinds


def _state(value, tensors, only_shape=False):
    """Return what is different after each change of a value; raise TypeError where that is not certain."""
    if isinstance(value, torch.Tensor) and only_shape:
        return value.shape, value.dtype, value.device
    if type(value) is torch.Tensor and not value.is_inference():
        tensors.append(value)
        return id(value), value._version, value.requires_grad
    if type(value) in (tuple, torch.Size):
        return [_state(each, tensors) for each in value]
    if type(value) in (type(None), bool, int, float, str, torch.dtype, torch.device):
        return type(value), repr(value)
    raise TypeError(type(value))


def _shows_changes(tensor):
    """Return whether each change of a tensor counts: not in memory of NumPy or other processes, nor of a parameter."""
    if tensor.layout is not torch.strided or (tensor.requires_grad and tensor.is_leaf):
        return False
    return tensor.untyped_storage().resizable() and (tensor.device.type != "cpu" or not tensor.is_shared())
'''
UNSEEN = re.compile(
    r"(?<!utils)(?<!self)\.data\s*(?:[-+*/]?=(?!=)|\[|\.\w+_\()|\bcompile\b|\bjit\b|\bonnx\b|functorch|torch\.func\b|"
    r"\bvmap\b|functional_call|utils\.checkpoint|\bcheckpoint\(|checkpoint_sequential|CUDAGraph|cuda\.graph|"
    r"cuda\.[sS]tream|make_graphed|share_memory|multiprocessing|\bdlpack\b|triton|cupy|numba|ctypes|all_reduce|"
    r"autograd\.grad\b|saved_tensors_hooks|\bexec\(|globals\(\)"
)
"""What may change a tensor without a trace, or needs each call to make a graph of its own."""


def edit(source: Source, target: Target) -> Edited:
    """Return the source that keeps the results of the functions that the line calls; raises Refusal."""
    text = source.module.code
    code = CODE.strip("\n").partition("def ")[2].replace("\n", source.module.default_newline)
    found = UNSEEN.search(text.replace(code, ""))
    if found is not None:
        raise Refusal(f"The file uses {found[0].strip('.(')}, with which a kept result may be a wrong one.")
    has_code = code in text
    if not has_code and re.search(rf"\b(?:{KEEP}|_is_traced|_settings|_state|_shows_changes)\b", text):
        raise Refusal(f"The file has a {KEEP}, or another of the names that the edit needs.")
    call, function = _called_at(source, target.line)
    changes: Changes = {}
    if isinstance(source.parent(function.node), cst.Module):
        functions = [function, *_users(source, call)]
        for each in functions:
            _keep_function(source, each, changes)
    else:
        functions = [function]
        _keep_method(source, function, changes)
    if not has_code:
        add_code(source, min((each.node for each in functions), key=source.line), CODE, changes)
    names = " and ".join(f"{_title(source, each.node)}()" for each in functions)
    return Edited(
        source.replaced(changes),
        f"Keep the last result of {names}, called at line {source.line(call)}, and return it again while the inputs "
        "are the same and unchanged; it stays in memory.",
    )


def _title(source: Source, function: cst.FunctionDef) -> str:
    owner = source.scope(function)
    return f"{owner.name.value}.forward" if isinstance(owner, cst.ClassDef) else function.name.value


def _called_at(source: Source, line: int) -> tuple[cst.Call, SameResult]:
    """Return the first call at a line whose result can be kept, and its function; raises Refusal."""
    refusal = Refusal(f"Line {line} calls no function of this file.")
    for call in source.inside(source.module, cst.Call):
        if not source.line(call) <= line <= source.last_line(call):
            continue
        try:
            for node in _functions(source, call):
                function = check_same_result(source, node)
                if source.is_inside(call, node):
                    raise Refusal(f"{node.name.value}() calls itself.")
                _check_results(source, function, call)
                return call, function
        except Refusal as reason:
            refusal = reason
    raise refusal


def _functions(source: Source, call: cst.Call) -> list[cst.FunctionDef]:
    """Return the function that a call runs, in a list: one of the file, or ``forward`` of a class of the file."""
    if isinstance(call.func, cst.Name):
        found = function_of(source, call.func.value)
        if found:
            return found
    owner = class_of(source, called_name(call))
    return forward_of(source, owner) if owner is not None else []


def _check_results(source: Source, function: SameResult, call: cst.Call) -> None:
    """Refuse results that the file may change in place, and modules whose results others may get."""
    names = [function.node.name.value]
    owner = source.scope(function.node)
    if isinstance(owner, cst.ClassDef):
        names = names_of_objects(source, owner)
        if not is_script(source):
            raise Refusal(f"Other files may use {owner.name.value}, and change its results.")
    sharing = Sharing(source, source.module, names)
    change = sharing.change()
    if change is not None:
        raise Refusal(f"Line {source.line(change)} may change the result of line {source.line(call)}.")
    if not is_script(source) and sharing.leaves():
        raise Refusal(f"Other files may get the result of line {source.line(call)}, and change it.")


def _users(source: Source, call: cst.Call) -> list[SameResult]:
    """Return the other functions that get the result of a call, and whose results can be kept, too."""
    found: dict[str, SameResult] = {}
    calls, scope = [call], source.scope(call)
    for one in calls:
        assign = source.parent(one)
        if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
            continue
        name = dotted_name(assign.targets[0].target)
        for other in source.inside(scope, cst.Call):
            function = function_of(source, called_name(other)) if isinstance(other.func, cst.Name) else []
            is_user = name and any(reads(source, argument, name) for argument in other.args)
            if (
                not is_user
                or not function
                or other in calls
                or called_name(other) in (called_name(call), *found)
            ):
                continue
            try:
                same = check_same_result(source, function[0])
                _check_results(source, same, other)
            except Refusal:
                continue
            found[called_name(other)] = same
            calls.append(other)
    return list(found.values())


def _keep_function(source: Source, function: SameResult, changes: Changes) -> None:
    """Add a second function behind a function, which keeps its result, and let the calls of the file use that one."""
    node, name = function.node, function.node.name.value
    check_own_lines(source, node)
    kept = free_name(source, f"kept_{name}")
    for call in source.inside(source.module, cst.Call):
        if isinstance(call.func, cst.Name) and call.func.value == name:
            changes[call.func] = cst.Name(kept)
    added = source.parse(f"{kept} = {KEEP}({_options(function)})({name})")
    lines = [cst.EmptyLine(indent=False)] * 2

    def change(updated: cst.CSTNode) -> Result:
        return cst.FlattenSentinel([updated, added.with_changes(leading_lines=lines)])

    changes[node] = change


def _keep_method(source: Source, function: SameResult, changes: Changes) -> None:
    """Add a decorator to a method."""
    decorator = cst.Decorator(cst.parse_expression(f"{KEEP}({_options(function)})"))
    changes[function.node] = lambda updated: updated.with_changes(decorators=[decorator])


def _options(function: SameResult) -> str:
    given = [("shapes", function.shapes), ("attributes", function.attributes)]
    return ", ".join(f"{name}={list(values)!r}".replace("'", '"') for name, values in given if values)
