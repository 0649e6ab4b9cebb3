"""Sets arguments of a DataLoader: in its call, or where their values are written.

Values: ``num_workers``, ``prefetch_factor``, ``persistent_workers``, ``pin_memory``, ``batch_size``,
``multiprocessing_context``, as many as wanted. The value of an argument may come from a variable, a parameter, an
option of argparse, or a literal dictionary, also an unpacked one (``**options``): then that place is edited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from perfwrap.edits.call_arguments import (
    argument_of,
    find_call,
    has_value,
    literal,
    matches,
    unpacked,
    with_arguments,
)
from perfwrap.edits.outcome import Edited, Refusal, Target, Value
from perfwrap.edits.source_tree import Change, Source, dotted_name
from perfwrap.edits.value_origin import Origin, dictionary_of, find_origin, item_of

LOADER = re.compile(r"\w*DataLoader")
POSITIONS = {"batch_size": 1, "num_workers": 5, "pin_memory": 7}
"""https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader"""
NEED_WORKERS = ("prefetch_factor", "persistent_workers")
KNOWN = ("num_workers", "batch_size", "pin_memory", "multiprocessing_context", *NEED_WORKERS)


def edit(source: Source, target: Target) -> Edited:
    """Return the source with these arguments of the DataLoader at the line; raises Refusal."""
    if not target.values or not set(target.values) <= set(KNOWN):
        raise Refusal(f"The edit sets {', '.join(KNOWN)}.")
    call = find_call(source, target.line, lambda call: matches(source, call, LOADER), "a DataLoader")
    _check_workers(source, call, target.values)
    options = _options(source, call)
    changes: dict[cst.CSTNode, Change] = {}
    added: dict[str, cst.BaseExpression] = {}
    done = []
    for keyword, value in target.values.items():
        given = _given(call, options, keyword)
        if given is None:
            added[keyword] = literal(value)
            done.append(f"add {keyword}={value!r}")
            continue
        try:
            origin = find_origin(source, given, NEED_WORKERS if keyword == "num_workers" else ())
        except Refusal:
            # Such as ``persistent_workers=args.workers > 0``: what belongs to the workers follows them.
            if keyword == "num_workers" or "num_workers" not in target.values:
                raise
            continue
        _check_command(target, origin)
        if has_value(source, origin.node, value):
            continue
        if origin.node in changes:
            raise Refusal(f"{origin.place or keyword} is used for two arguments.")
        changes[origin.node] = literal(value)
        done.append(f"change {origin.place or keyword} from {source.code(origin.node)} to {value!r}")
    if not done:
        raise Refusal(f"The DataLoader has {written(target.values)}.")
    if added:
        if unpacked(call) and options is None:
            raise Refusal("The DataLoader has unpacked arguments that may hold the same ones.")
        changes[call] = lambda updated: with_arguments(source, call, updated, added)
    sentence = f"{', '.join(done)}: the DataLoader at line {source.line(call)}."
    return Edited(source.replaced(changes), sentence[0].upper() + sentence[1:])


def written(values: Mapping[str, Value]) -> str:
    """Return arguments as they are written in a call."""
    return ", ".join(f"{key}={value!r}" for key, value in values.items())


def _options(source: Source, call: cst.Call) -> cst.Dict | cst.Call | None:
    """Return the literal dictionary that the call unpacks, None if it unpacks none."""
    given = unpacked(call)
    if not given:
        return None
    if len(given) > 1 or given[0].star != "**":
        raise Refusal("The DataLoader has several unpacked arguments.")
    return dictionary_of(source, given[0].value)


def _given(call: cst.Call, options: cst.Dict | cst.Call | None, keyword: str) -> cst.Arg | None:
    """Return an argument of the call or of the dictionary that it unpacks."""
    given = argument_of(call, keyword, POSITIONS.get(keyword))
    if given is None and options is not None:
        inner = item_of(options, keyword)
        return cst.Arg(inner, keyword=cst.Name(keyword)) if inner is not None else None
    if given is not None and given.keyword is None:
        return given.with_changes(keyword=cst.Name(keyword))
    return given


def _check_command(target: Target, origin: Origin) -> None:
    """Refuse to change the default of an option that is on the command line, also where it is shortened."""
    for word in target.words:
        name = word.partition("=")[0]
        short = len(name) > 2 and name.startswith("--")
        for flag in origin.flags:
            if (
                name == flag
                or (short and flag.startswith(name))
                or (len(flag) == 2 and word.startswith(flag))
            ):
                raise Refusal(f"The command sets {flag}: change it there.")


def _check_workers(source: Source, call: cst.Call, values: Mapping[str, Value]) -> None:
    """Refuse what a DataLoader does not accept, and workers that would each return all items."""
    if values.get("num_workers") == 0 and set(NEED_WORKERS) & set(values):
        raise Refusal("prefetch_factor and persistent_workers need workers.")
    if set(NEED_WORKERS) & set(values) and "num_workers" not in values:
        given = _given(call, _options(source, call), "num_workers")
        if given is None or source.code(given.value) == "0":
            raise Refusal(f"{' and '.join(values)} needs num_workers above 0.")
    dataset = argument_of(call, "dataset", 0)
    if values.get("num_workers") and dataset is not None and is_iterable(source, dataset.value):
        raise Refusal("The data set is an IterableDataset: each worker would return all of its items.")


def is_iterable(source: Source, node: cst.BaseExpression) -> bool:
    """Return whether the data set is an IterableDataset of this file that does not ask which worker it is in."""
    text = source.module.code
    if "IterableDataset" not in text or "get_worker_info" in text:
        return False
    names = {dotted_name(call.func) for call in source.inside(source.module, cst.Call)}
    iterable = {
        found.name.value
        for found in source.inside(source.module, cst.ClassDef)
        if any(source.name(base.value).rpartition(".")[2] == "IterableDataset" for base in found.bases)
    }
    made = {dotted_name(call.func) for call in source.inside(node, cst.Call)}
    if isinstance(node, cst.Call) and made & iterable:
        return True
    # A name may stand for any data set of the file: without the class of this one, one that is iterable is enough.
    return not isinstance(node, cst.Call) and bool(iterable & names)
