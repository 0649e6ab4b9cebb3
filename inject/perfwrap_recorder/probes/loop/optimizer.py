"""Times each step of each optimizer.

Instruments two functions that torch calls inside the ``step`` of each class that inherits from ``Optimizer`` and
calls its ``__init__``: ``record_function.__enter__`` before it and ``Optimizer._optimizer_step_code`` after it. So no
hook is registered, and the torch optimizer inside a class that only looks like one is recorded, too.

A function that the program gives to ``step`` runs under ``torch.enable_grad``: what is between its ``__enter__`` and
its ``__exit__`` is the program's own, not the optimizer's.

Nothing is recorded of a step that raises. Each step is counted, also in paused detail: a new optimizer gets its number
and its tally with its first step.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from _weakref import ref
from itertools import count

from perfwrap_recorder import guard, journal_format, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu import devices, gpu_events, nvtx_ranges, nvtx_window
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import journal, paused_detail
from perfwrap_recorder.journal.paused_detail import counting, find_tally
from perfwrap_recorder.probes.loop import discarded_gradients, embedding_facts, unused_gradients
from perfwrap_recorder.probes.run import torch_facts
from perfwrap_recorder.program import call_sites, tensor_access, weak_table
from perfwrap_recorder.program.source_lines import label

MAX_OPTIMIZERS = 100
"""Maximum number of instances with a number of their own."""

STEP = "Optimizer.step#"
"""The beginning of the names of the profiler's ranges around steps."""

MAX_STARTS = 1000
"""Maximum number of begun steps: those that raise never end."""

OWN_FRAMES = ("step", "_use_grad", "decorate_context", "wrapper")
"""The functions of torch, and of an optimizer, between ``enable_grad`` and the frame that steps."""

STRANGER = (lambda: None), 0, "", None, False
"""The entry of an optimizer that has not stepped yet."""

awaiting = set()  # threads inside a scaler, none of whose optimizers has stepped yet
_starts = {}  # id of the frame of torch that steps -> when the step began, and its GPU events
_closures = {}  # id of the context around a closure -> when it began, id of the frame of torch that steps
_next_number = count(1).__next__
_numbers = {}  # id of an optimizer -> (weak reference to it, its number, its name, its tally, whether steps nest)
_waiting = set()  # numbers of those whose gradients could not be read yet without being observed


def install(torch):
    """Start recording."""
    begin_step, end_step = _around(torch)
    kind = torch.optim.Optimizer
    instrument.instrument(
        torch,
        torch.autograd.profiler.record_function.__enter__,
        *(begin_step, _pass, None, ("self",)),
        condition="not _perfwrap_counting",
        known={"_perfwrap_counting": counting},
    )
    instrument.instrument(
        torch,
        kind._optimizer_step_code,
        *(end_step, _pass, None, ("self",)),
        condition="not _perfwrap_passing_steps.get(id(self), _perfwrap_no_steps)[0]()",
        known={
            "_perfwrap_passing_steps": paused_detail.passing_steps,
            "_perfwrap_no_steps": paused_detail.NO_STEPS,
        },
    )
    _watch_closures(torch)
    journal.after_fork.add(awaiting.clear)
    unused_gradients.install()
    journal.cover("probe/optimizer")


def numbered():
    """Return the optimizers that have a number and are alive."""
    return [each for each in (known[0]() for known in list(_numbers.values())) if each is not None]


def _pass(state, result):
    """Never called: ``begin`` returns no state."""


def _around(torch):
    push, pop = nvtx_ranges.of_phases(torch) or (None, None)
    pop = nvtx_window.counting(torch, pop)
    begin_gpu = end_gpu = keep_gpu = None

    def bind():
        nonlocal begin_gpu, end_gpu, keep_gpu
        begin_gpu, end_gpu, keep_gpu = gpu_events.begin, gpu_events.end, gpu_events.keep

    devices.follow(bind)
    learn, finish = guard.protect("optimizer", _learn), guard.protect("optimizer", _finish)

    def begin_step(named):
        name = named.__dict__.get("name")
        if type(name) is not str or not name.startswith(STEP):
            return
        if len(_starts) >= MAX_STARTS:
            _starts.clear()
        pair = begin_gpu and begin_gpu(journal_format.OPTIMIZER)
        if push:
            push("optimizer")
        _starts[id(sys._getframe(1).f_back)] = now(), pair

    def end_step(optimizer):
        thread, frame = get_ident(), sys._getframe(1).f_back
        is_scaled = bool(awaiting)
        awaiting.discard(thread)
        known = _numbers.get(id(optimizer), STRANGER)
        if known[0]() is not optimizer:
            known = learn(optimizer, frame) or STRANGER
        if known[4] and _is_inside(frame, optimizer):
            start, pair = _starts.pop(id(frame), (None, None))
            if pop and start is not None:
                pop()
            return
        if thread in counting and known is not STRANGER:
            tally = known[3]
            tally.count_passed()
            tally.count += 1
            if tally.count >= tally.limit:
                paused_detail.ask()
            elif not known[4] and not is_scaled and known[1] <= MAX_OPTIMIZERS:
                tally.let_pass(optimizer, tally.limit - tally.count - 1)
            return
        start, pair = _starts.pop(id(frame), (None, None))
        if start is None:  # a pause has ended, or recording has begun, during this step
            start = now()
        elif pop:
            pop()
        pair = pair and end_gpu(pair)
        name = finish(frame, optimizer, known, start, now())
        if pair:
            keep_gpu(pair, name)

    return begin_step, end_step


def _watch_closures(torch):
    """Time the functions that the program gives to ``step``."""
    begin_closure, end_closure = (
        guard.protect("optimizer", _begin_closure),
        guard.protect("optimizer", _end_closure),
    )

    def begin(context):
        begin_closure(context, sys._getframe(1).f_back)

    for method, call, pending in (
        (torch.enable_grad.__enter__, begin, _starts),
        (torch.enable_grad.__exit__, end_closure, _closures),
    ):
        name = "_perfwrap_steps" if pending is _starts else "_perfwrap_closures"
        instrument.instrument(
            torch,
            method,
            *(call, _pass, None, ("self",)),
            condition=name,
            known={name: pending},
            kind=journal_format.CLOSURE,
        )


def _begin_closure(context, frame):
    while frame is not None and frame.f_code.co_name in OWN_FRAMES:
        if id(frame) in _starts:
            if len(_closures) >= MAX_STARTS:
                _closures.clear()
            _closures[id(context)] = now(), id(frame)
            return
        frame = frame.f_back


def _end_closure(context):
    start, step = _closures.pop(id(context), (None, None))
    if start is not None:
        journal.span(start, now() - start, 0, journal.text("closure"), journal_format.CLOSURE)
        pair = _starts.get(step, (None, None))[1]
        if pair:
            gpu_events.again(pair)


def _is_inside(frame, optimizer):
    """Return whether a step is a part of another one of the same optimizer: a class's that calls ``super().step()``."""
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
    if discarded_gradients.left > 0:
        guard.run(
            "discarded_gradients", discarded_gradients.stepped, sys.modules["torch"], optimizer, known[2]
        )
    if unused_gradients.left:
        unused_gradients.left -= 1
        if not unused_gradients.left:
            _look_at_gradients()
    journal.own_work(end)
    return name


def _look_at_gradients():
    guard.run("unused_gradients", unused_gradients.look, sys.modules["torch"], numbered())


def _learn(optimizer, frame):
    """Return (weak reference, number, name, tally, whether steps nest) for a new optimizer, and write its facts."""
    number = min(_next_number(), MAX_OPTIMIZERS + 1)
    is_one_of_many = number > MAX_OPTIMIZERS
    name = "%s#%s" % (static_access.name_of(type(optimizer)), "more" if is_one_of_many else number)
    # Optimizer itself has a step, which only raises. A program may put one of its own into a class, around torch's.
    owners = sum("step" in static_access.members_of(kind) for kind in static_access.mro_of(type(optimizer)))
    nests = owners > 2 or _is_inside(frame, optimizer)
    tally = find_tally(journal_format.OPTIMIZER, name, number)
    if is_one_of_many:
        return ref(optimizer), number, name, tally, nests
    weak_table.note(_numbers, optimizer, MAX_OPTIMIZERS, number, name, tally, nests)
    guard.run("optimizer_facts", _describe, optimizer, "optimizer/" + name)
    torch_facts.look()
    _waiting.add(number)
    unused_gradients.begin_again()
    return _numbers[id(optimizer)]


def _describe(optimizer, key):
    journal.fact(key + "/class", static_access.full_name(type(optimizer)))
    groups = discarded_gradients.groups_of(optimizer)
    if not groups:
        return
    journal.fact(key + "/parameters", len(discarded_gradients.parameters_of(optimizer)))
    for option in ("foreach", "fused", "capturable"):
        if option in groups[0] and static_access.has_type(groups[0][option], call_sites.PLAIN):
            journal.fact("%s/%s" % (key, option), groups[0][option])


def _look_at_embeddings(optimizer, known):
    torch, weights = sys.modules["torch"], discarded_gradients.parameters_of(optimizer)
    found = guard.run("embedding_facts", embedding_facts.describe, torch, weights, "optimizer/" + known[2])
    if found is not tensor_access.LATER:
        _waiting.discard(known[1])
