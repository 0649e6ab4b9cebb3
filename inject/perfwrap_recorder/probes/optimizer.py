"""Times each step of each optimizer.

Instruments two functions that torch calls inside of the ``step`` of each class that inherits from ``Optimizer`` and
calls its ``__init__``: ``record_function.__enter__`` before and ``Optimizer._optimizer_step_code`` behind it. So no
hook is registered, and the torch optimizer inside of a class that only looks like one is seen, too.

Of a step that raises nothing is recorded. Each step is counted, whichever state recording is in: an optimizer that is
new gets its number and its tally with its first step.
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
    instrument,
    journal,
    journal_format,
    living,
    nvtx_window,
    plainly,
    quiet,
    ranges,
    rest,
)
from perfwrap_recorder.clock import now
from perfwrap_recorder.probes import embedding_facts, thrown_gradients, torch_facts, unused_gradients
from perfwrap_recorder.rest import counting, find_tally
from perfwrap_recorder.source_lines import label

MAXIMUM_OPTIMIZERS = 100
"""How many instances are told apart."""

STEP = "Optimizer.step#"
"""What the names of the profiler's ranges around steps begin with."""

MAXIMUM_STARTS = 1000
"""Begun steps after which all are forgotten: of one that raises nobody tells."""

STRANGER = (lambda: None), 0, "", None, False
"""Stands for an optimizer that has not stepped yet."""

awaiting = set()  # threads inside of a scaler, none of whose optimizers has stepped yet
_starts = {}  # id of the frame of torch's that steps -> when the step began, and the GPU's events of it
_next_number = count(1).__next__
_numbers = {}  # id of an optimizer -> (weak reference to it, its number, its name, its tally, whether steps nest)
_waiting = (
    set()
)  # numbers of those whose gradients could not be looked at yet, since somebody would have seen it


def install(torch):
    """Watch from now on."""
    begin_step, end_step = _around(torch)
    kind = torch.optim.Optimizer
    instrument.instrument(
        torch, torch.autograd.profiler.record_function.__enter__, begin_step, _pass, None, ("self",)
    )
    instrument.instrument(torch, kind._optimizer_step_code, end_step, _pass, None, ("self",))
    journal.after_fork.add(awaiting.clear)
    unused_gradients.install()
    journal.cover("probe/optimizer")


def _pass(state, result):
    """Never comes: what begins returns nothing."""


def _around(torch):
    push, pop = ranges.of_phases(torch) or (None, None)
    pop = nvtx_window.counting(torch, pop)
    begin_gpu, end_gpu, keep_gpu = gpu_time.begin, gpu_time.end, gpu_time.keep
    learn, finish = guard.protect("optimizer", _learn), guard.protect("optimizer", _finish)

    def begin_step(named):
        name = named.__dict__.get("name")
        if type(name) is not str or not name.startswith(STEP) or get_ident() in counting:
            return
        if len(_starts) >= MAXIMUM_STARTS:
            _starts.clear()
        pair = begin_gpu and begin_gpu(journal_format.OPTIMIZER)
        if push:
            push("optimizer")
        _starts[id(sys._getframe(1).f_back)] = now(), pair

    def end_step(optimizer):
        thread = get_ident()
        if awaiting:
            awaiting.discard(thread)
        known = _numbers.get(id(optimizer), STRANGER)
        if known[0]() is not optimizer:
            known = learn(optimizer) or STRANGER
        frame = sys._getframe(1).f_back
        if known[4] and _is_inside(frame, optimizer):
            start, pair = _starts.pop(id(frame), (None, None))
            if pop and start is not None:
                pop()
            return
        if thread in counting and known is not STRANGER:
            tally = known[3]
            tally.count += 1
            if tally.count >= tally.limit:
                rest.ask()
            return
        start, pair = _starts.pop(id(frame), (None, None))
        if start is None:  # a rest has ended, or recording has begun, in the midst of this step
            start = now()
        elif pop:
            pop()
        pair = pair and end_gpu(pair)
        name = finish(frame, optimizer, known, start, now())
        if pair:
            keep_gpu(pair, name)

    return begin_step, end_step


def _is_inside(frame, optimizer):
    """Say whether a step is a part of another one of the same optimizer: a class's that calls ``super().step()``."""
    code, outer = frame.f_code, frame.f_back
    while outer is not None:
        if outer.f_code is code:
            arguments = outer.f_locals.get("args")
            return type(arguments) is tuple and bool(arguments) and arguments[0] is optimizer
        outer = outer.f_back
    return False


def _finish(frame, optimizer, known, start, end):
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


def _learn(optimizer):
    """Return (weak reference, number, name, tally) for an optimizer that is new, and say what it is."""
    number = min(_next_number(), MAXIMUM_OPTIMIZERS + 1)
    is_one_of_many = number > MAXIMUM_OPTIMIZERS
    name = "%s#%s" % (plainly.name_of(type(optimizer)), "more" if is_one_of_many else number)
    # Optimizer has a step of its own, which only raises.
    nests = sum("step" in plainly.members_of(kind) for kind in plainly.mro_of(type(optimizer))) > 2
    tally = find_tally(journal_format.OPTIMIZER, name, number)
    if is_one_of_many:
        return ref(optimizer), number, name, tally, nests
    living.note(_numbers, optimizer, MAXIMUM_OPTIMIZERS, number, name, tally, nests)
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
