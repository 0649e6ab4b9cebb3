"""Keeps items of a data set in memory: wraps the data set of a DataLoader in a class that is added to the file.

Only for data sets whose items never change and whose collate function copies them, as the default one does. It keeps
the first ``most_items`` items that are requested, in each worker. Refused: data sets that are known to be an
IterableDataset or to have random items, loaders without batches, a file that sets attributes of a data set, and a file
that has the class. Values: ``most_items``, e.g. 10000.
"""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.data.loader_options import LOADER, is_iterable
from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.added_code import add_code
from perfwrap.edits.syntax.call_arguments import argument_of, find_call, matches
from perfwrap.edits.syntax.names import stored_names
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes

NAME = "CachedItems"
CLASS = '''
class CachedItems:
    """Keeps the items of a data set in memory, up to a number of them: they never change."""

    def __init__(self, data, most_items):
        self.data, self.most_items, self.items = data, most_items, {}

    def __len__(self):
        return len(self.data)

    def __getattr__(self, name):
        if name in ("data", "__getitems__", "__iter__") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.data, name)

    def __getitem__(self, index):
        if index in self.items:
            return self.items[index]
        item = self.data[index]
        if len(self.items) < self.most_items:
            self.items[index] = item
        return item
'''
RANDOM = re.compile(r"(?i)random|\brand|jitter|augment|mixup|cutmix|dropout")


def edit(source: Source, target: Target) -> Edited:
    """Return the source in which the DataLoader at the line gets the data set with kept items; raises Refusal."""
    most = target.values.get("most_items")
    if not isinstance(most, int) or most < 1:
        raise Refusal("The edit needs most_items=N.")
    if NAME in source.module.code:
        raise Refusal(f"The file has {NAME}.")
    call = find_call(source, target.line, lambda call: matches(source, call, LOADER), "a DataLoader")
    dataset = argument_of(call, "dataset", 0)
    if dataset is None:
        raise Refusal(f"The DataLoader at line {target.line} has no data set of its own.")
    if is_iterable(source, dataset.value):
        raise Refusal("The data set is an IterableDataset.")
    if argument_of(call, "collate_fn", 6) is not None:
        raise Refusal("The DataLoader has a collate function, which may change the items.")
    size = argument_of(call, "batch_size", 1)
    if size is not None and source.code(size.value) == "None" and argument_of(call, "batch_sampler") is None:
        raise Refusal(
            "The DataLoader makes no batches: the loop gets the items themselves and may change them."
        )
    _check_fixed(source, dataset.value)
    _check_attributes(source, dataset.value)
    changes: Changes = {}
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    arguments = [cst.Arg(dataset.value, comma=comma), cst.Arg(cst.Integer(str(most)))]
    wrapped = cst.Call(cst.Name(NAME), arguments)
    changes[dataset.value] = wrapped
    add_code(source, call, CLASS, changes)
    return Edited(
        source.replaced(changes),
        f"Keep up to {most} items of the data set of the DataLoader at line {source.line(call)} in memory.",
    )


def _check_fixed(source: Source, dataset: cst.BaseExpression) -> None:
    """Refuse a data set of this file whose items are known to be random."""
    names = {dotted_name(call.func) for call in source.inside(source.module, cst.Call)}
    if isinstance(dataset, cst.Call):
        names = {dotted_name(dataset.func)}
    for found in source.inside(source.module, cst.ClassDef):
        methods = [each for each in source.inside(found, cst.FunctionDef) if each.name.value == "__getitem__"]
        if found.name.value in names and any(RANDOM.search(source.code(method)) for method in methods):
            raise Refusal(f"{found.name.value}.__getitem__() is random.")


def _check_attributes(source: Source, dataset: cst.BaseExpression) -> None:
    """Refuse a file that sets an attribute of the data set: it would be set of the wrapper, and items may change."""
    for name in stored_names(source, source.module):
        owner, dot, attribute = name.rpartition(".")
        if dot and (owner == dotted_name(dataset) or owner.rpartition(".")[2] == "dataset"):
            raise Refusal(f"{name} is set: the items may then be others.")
