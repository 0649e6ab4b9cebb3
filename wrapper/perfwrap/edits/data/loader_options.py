"""Sets arguments of a DataLoader: in its call, or where their values are written.

Values: ``num_workers``, ``prefetch_factor``, ``persistent_workers``, ``pin_memory``, ``batch_size``,
``multiprocessing_context``, as many as wanted. The value of an argument may come from a variable, a parameter, an
option of argparse, or a literal dictionary, also an unpacked one (``**options``): then that place is edited. Where
conditions choose between dictionaries, ``Target.seen`` has the values of the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target, Value
from perfwrap.edits.syntax.call_arguments import (
    argument_of,
    find_call,
    has_value,
    literal,
    matches,
    unpacked,
    with_arguments,
)
from perfwrap.edits.syntax.source_tree import Change, Source, dotted_name
from perfwrap.edits.syntax.unpacked_options import Part, parts_of, place_of, with_items
from perfwrap.edits.syntax.value_origin import Origin, find_origin, is_literal

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
    parts = _unpacked_parts(source, call)
    _check_workers(source, call, parts, target)
    changes: dict[cst.CSTNode, Change] = {}
    added: dict[cst.CSTNode, dict[str, cst.BaseExpression]] = {}
    done = []
    # The arguments that need workers go where their number is written.
    beside: cst.CSTNode = call
    for keyword, value in sorted(target.values.items(), key=lambda pair: pair[0] != "num_workers"):
        place = _place(source, call, parts, keyword, target)
        if place is None or isinstance(place, Part):
            node = place.node if place is not None else beside if keyword in NEED_WORKERS else call
            assert node is not None
            if keyword == "num_workers":
                beside = node
            added.setdefault(node, {})[keyword] = literal(value)
            done.append(
                f"add {keyword}={value!r}" + ("" if node is call else f" at line {source.line(node)}")
            )
            continue
        try:
            origin = find_origin(source, place, NEED_WORKERS if keyword == "num_workers" else ())
        except Refusal:
            # Such as ``persistent_workers=args.workers > 0``: what belongs to the workers follows them.
            if keyword == "num_workers" or "num_workers" not in target.values:
                raise
            continue
        _check_command(target, origin)
        if keyword == "num_workers":
            beside = next((part.node for part in parts if part.node and _has(part, place)), call)
        if has_value(source, origin.node, value):
            continue
        if origin.node in changes:
            raise Refusal(f"{origin.place or keyword} is used for two arguments.")
        changes[origin.node] = literal(value)
        done.append(f"change {origin.place or keyword} from {source.code(origin.node)} to {value!r}")
    if not done:
        raise Refusal(f"The DataLoader has {written(target.values)}.")
    for node, wanted in added.items():
        changes[node] = _with_added(source, node, wanted)
    others = [str(source.line(other)) for other in _sharing(source, call) if other is not call]
    also = (
        f", and what shares its options (line {', '.join(others)})"
        if others and (changes.keys() - {call})
        else ""
    )
    sentence = f"{', '.join(done)}: the DataLoader at line {source.line(call)}{also}."
    return Edited(source.replaced(changes), sentence[0].upper() + sentence[1:])


def _with_added(source: Source, node: cst.CSTNode, wanted: dict[str, cst.BaseExpression]) -> Change:
    """Return a change that adds arguments to a call, or items to a dictionary."""
    if isinstance(node, cst.Dict):
        return lambda updated: with_items(node, updated, wanted)
    assert isinstance(node, cst.Call)
    return lambda updated: with_arguments(source, node, updated, wanted)


def written(values: Mapping[str, Value]) -> str:
    """Return arguments as they are written in a call."""
    return ", ".join(f"{key}={value!r}" for key, value in values.items())


def _unpacked_parts(source: Source, call: cst.Call) -> list[Part]:
    """Return the parts of the options that the call unpacks, none if it unpacks none."""
    given = unpacked(call)
    if not given:
        return []
    if len(given) > 1 or given[0].star != "**":
        raise Refusal("The DataLoader has several unpacked arguments.")
    return parts_of(source, given[0].value, lambda other: matches(source, other, LOADER))


def _sharing(source: Source, call: cst.Call) -> list[cst.Call]:
    """Return the DataLoaders of the file that unpack options of the same name."""
    names = {dotted_name(argument.value) for argument in unpacked(call)} - {""}
    return [
        other
        for other in source.inside(source.module, cst.Call)
        if matches(source, other, LOADER) and names & {dotted_name(found.value) for found in unpacked(other)}
    ]


def _place(
    source: Source, call: cst.Call, parts: list[Part], keyword: str, target: Target
) -> cst.Arg | Part | None:
    """Return an argument of the call or of what it unpacks, or the part to add it to; None: add it to the call."""
    given = argument_of(call, keyword, POSITIONS.get(keyword))
    if given is not None:
        return given.with_changes(keyword=cst.Name(keyword)) if given.keyword is None else given
    place = place_of(source, parts, keyword, target.seen)
    return cst.Arg(place, keyword=cst.Name(keyword)) if isinstance(place, cst.BaseExpression) else place


def _has(part: Part, place: cst.Arg) -> bool:
    return any(value is place.value for value in part.items.values())


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


def _check_workers(source: Source, call: cst.Call, parts: list[Part], target: Target) -> None:
    """Refuse what a DataLoader does not accept, and workers that would each return all items."""
    values = target.values
    need = [keyword for keyword in NEED_WORKERS if keyword in values]
    if values.get("num_workers") == 0 and need:
        raise Refusal("prefetch_factor and persistent_workers need workers.")
    if need and "num_workers" not in values:
        given = _place(source, call, parts, "num_workers", target)
        if not isinstance(given, cst.Arg) or source.code(given.value) == "0":
            raise Refusal(f"{' and '.join(values)} needs num_workers above 0.")
    if need and len(parts) > 1:
        numbers = [part.items["num_workers"] for part in parts if "num_workers" in part.items]
        if any(not is_literal(number) or source.code(number) == "0" for number in numbers):
            raise Refusal(f"Conditions decide whether there are workers, which {' and '.join(need)} needs.")
    for other in _sharing(source, call) or [call]:
        dataset = argument_of(other, "dataset", 0)
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
