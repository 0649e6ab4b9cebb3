"""Times each step of each optimizer.

Registers a global pre- and post-hook with ``torch.optim.optimizer``. The user could notice the hooks in torch's
private tables. They see whatever inherits from ``Optimizer`` and calls its ``__init__``, which is where torch
wraps the class's ``step``, and so the torch optimizer inside of a class that only looks like one.

A step that raises has no post-hook, so nothing is recorded of it.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from _weakref import ref
from itertools import count

from perfwrap_recorder import (
    call_sites,
    gpu_time,
    guard,
    journal,
    journal_format,
    living,
    nvtx_window,
    plainly,
    quiet,
    ranges,
    rest,
    wrapping,
)
from perfwrap_recorder.clock import now
from perfwrap_recorder.probes import embedding_facts, thrown_gradients, torch_facts, unused_gradients
from perfwrap_recorder.rest import counting, find_tally, mine
from perfwrap_recorder.source_lines import label

MAXIMUM_OPTIMIZERS = 100
"""How many instances are told apart."""

STRANGER = (lambda: None), 0, "", None
"""Stands for an optimizer that has not stepped yet."""

awaiting = set()  # threads inside of a scaler, none of whose optimizers has stepped yet
_starts = {}  # id of an optimizer -> when its step began
_pairs = {}  # id of an optimizer -> the GPU's events of its step
_next_number = count(1).__next__
_numbers = {}  # id of an optimizer -> (weak reference to it, its number, its name, its tally)
_waiting = (
    set()
)  # numbers of those whose gradients could not be looked at yet, since somebody would have seen it


def install(torch):
    """Watch from now on."""
    hooks = sys.modules["torch.optim.optimizer"]  # torch.optim takes the name out of itself
    if any(map(wrapping.is_wrapper, hooks._global_optimizer_pre_hooks.values())):
        return
    is_compiling = wrapping.find_is_compiling(torch)
    push, pop = ranges.find(torch) or (None, None)
    pop = nvtx_window.counting(torch, pop)

    finish = guard.protect("optimizer", _finish)
    begin_gpu, end_gpu, keep_gpu = gpu_time.begin, gpu_time.end, gpu_time.keep

    # With ``*_`` for the arguments each call would make a tuple.
    def begin_step(optimizer, arguments, options):
        if is_compiling() or get_ident() in counting:
            return
        if begin_gpu:
            _pairs[id(optimizer)] = begin_gpu(journal_format.OPTIMIZER)
        _starts[id(optimizer)] = now()
        if push:
            push("optimizer")

    def end_step(optimizer, arguments, options):
        if is_compiling():
            return
        if awaiting:
            awaiting.discard(get_ident())
        if get_ident() in counting:
            known = _numbers.get(id(optimizer), STRANGER)
            if known[0]() is optimizer:
                tally = known[3]
                tally.count += 1
                if tally.count >= tally.limit:
                    rest.ask()
                return
        start, end = _starts.pop(id(optimizer), None), now()
        if start is None:
            return
        if pop:
            pop()
        pair = begin_gpu and _pairs.pop(id(optimizer), None)
        pair = pair and end_gpu(pair)
        name = finish(sys._getframe().f_back, optimizer, start, end)
        if pair:
            keep_gpu(pair, name)

    pass_step, count_step = _counters(begin_step, end_step)
    for function in (begin_step, end_step, pass_step, count_step):
        wrapping.hide(torch, function)
    journal.after_fork.add(awaiting.clear)
    begin_handle = hooks.register_optimizer_step_pre_hook(begin_step)
    end_handle = hooks.register_optimizer_step_post_hook(end_step)
    rest.offer(rest.COUNTS, hooks._global_optimizer_pre_hooks, begin_handle.id, begin_step, pass_step)
    rest.offer(rest.COUNTS, hooks._global_optimizer_post_hooks, end_handle.id, end_step, count_step)
    unused_gradients.install()
    journal.cover("probe/optimizer")


def _counters(begin_step, end_step):
    """Return what stands in the place of the two hooks where rests must cost even less: they count, and no more."""

    def pass_step(optimizer, arguments, options):
        if id(optimizer) not in mine and get_ident() not in counting:
            begin_step(optimizer, arguments, options)

    def count_step(optimizer, arguments, options):
        tally = mine.get(id(optimizer)) or _tally_here(optimizer)
        if tally is None or awaiting:
            end_step(optimizer, arguments, options)
            return
        tally.count += 1
        if tally.count >= tally.limit:
            rest.ask()

    return pass_step, count_step


def _tally_here(optimizer):
    """Return what the steps of a known optimizer count in while others rest; None in another thread."""
    known = _numbers.get(id(optimizer), STRANGER)
    if get_ident() not in counting or known[0]() is not optimizer:
        return None
    return rest.count_as(optimizer, known[3]) if journal.is_alone() else known[3]


def _finish(frame, optimizer, start, end):
    known = _numbers.get(id(optimizer), STRANGER)
    if known[0]() is not optimizer:
        known = _number(optimizer)
    name = label(known[2], frame)
    journal.span(start, end - start, 0, name, journal_format.OPTIMIZER)
    journal.end_step(journal_format.OPTIMIZER, known[1], end)
    if _waiting and known[1] in _waiting:
        _look_at_embeddings(optimizer, known)
    if thrown_gradients.left > 0:
        guard.run("thrown_gradients", thrown_gradients.stepped, sys.modules["torch"], optimizer, known[2])
    if unused_gradients.left:
        unused_gradients.left -= 1
        if not unused_gradients.left:
            _look_at_gradients()
    journal.own_work(end)
    return name


def _look_at_gradients():
    known = [
        optimizer for optimizer in (each[0]() for each in list(_numbers.values())) if optimizer is not None
    ]
    guard.run("unused_gradients", unused_gradients.look, sys.modules["torch"], known)


def _number(optimizer):
    """Return (weak reference, number, name, tally) for an optimizer that is new, and say what it is."""
    number = min(_next_number(), MAXIMUM_OPTIMIZERS + 1)
    is_one_of_many = number > MAXIMUM_OPTIMIZERS
    name = "%s#%s" % (plainly.name_of(type(optimizer)), "more" if is_one_of_many else number)
    tally = find_tally(journal_format.OPTIMIZER, name, number)
    if is_one_of_many:
        return ref(optimizer), number, name, tally
    living.note(_numbers, optimizer, MAXIMUM_OPTIMIZERS, number, name, tally)
    guard.run("optimizer_facts", _describe, optimizer, "optimizer/" + name)
    torch_facts.look()
    _waiting.add(number)
    return _numbers[id(optimizer)]


def _describe(optimizer, key):
    journal.fact(key + "/class", plainly.full_name(type(optimizer)))
    groups = thrown_gradients.groups_of(optimizer)
    if not groups:
        return
    journal.fact(key + "/parameters", len(thrown_gradients.parameters_of(optimizer)))
    for option in ("foreach", "fused", "capturable"):
        if option in groups[0] and plainly.has_type(groups[0][option], call_sites.PLAIN):
            journal.fact("%s/%s" % (key, option), groups[0][option])


def _look_at_embeddings(optimizer, known):
    torch, weights = sys.modules["torch"], thrown_gradients.parameters_of(optimizer)
    found = guard.run("embedding_facts", embedding_facts.describe, torch, weights, "optimizer/" + known[2])
    if found is not quiet.LATER:
        _waiting.discard(known[1])
