"""Times each call of an outermost module: one that is not called by another module in the same thread.

Modules that are called while a batch is made, such as torchvision's transforms, are part of making it.

Instruments ``Module.__call__``; for a nested module this costs two look-ups. No hook is registered, and modules that
override ``__call__`` are not recorded.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe

from perfwrap_recorder import guard, journal_format, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu import devices, gpu_events, nvtx_ranges
from perfwrap_recorder.instrumenting import instrument, making
from perfwrap_recorder.journal import journal
from perfwrap_recorder.probes.data_loading import padding_facts
from perfwrap_recorder.probes.loop import live_graphs, model_facts
from perfwrap_recorder.probes.ranks import parallel
from perfwrap_recorder.probes.run import settings_facts, torch_facts
from perfwrap_recorder.program import model_parts, seen_models, tensor_access
from perfwrap_recorder.program.source_lines import label

WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
}
"""Wrapper classes: the module that they wrap is named instead."""

MAX_CLASSES = 1000

FORWARD = journal_format.FORWARD
TRAINED = journal_format.TRAINING | journal_format.GRAD

active = set()  # threads in an outermost call
watchers = []  # functions(module, frame) to call before each outermost call, for experiments
_plain = set()  # names of classes that wrap no other module; names, since a class may keep a model alive
_described = set()  # names of classes whose facts are written or in _waiting
_waiting = set()  # names of classes that could not be inspected yet: the program would have noticed
_checked = set()  # (name, value of the span) whose settings were read in the last ten seconds


def install(torch):
    """Start recording."""
    begin, end, fail = _around(
        torch,
        guard.protect("forward", _finish_with(torch)),
        guard.protect("forward_watchers", _call_watchers),
    )
    known = {
        "_perfwrap_get_ident": get_ident,
        "_perfwrap_active": active,
        "_perfwrap_making": making.busy,
    }
    instrument.instrument(
        torch,
        torch.nn.Module.__call__,
        *(begin, end, fail, ("self", "args", "kwargs")),
        condition="_perfwrap_get_ident() not in _perfwrap_active"
        " and (not _perfwrap_making or _perfwrap_get_ident() not in _perfwrap_making)",
        known=known,
        kind=FORWARD,
        phase="forward",
    )
    journal.after_fork.add(_forget_other_threads)
    journal.every_interval.add(_checked.clear)
    padding_facts.install()
    journal.cover("probe/forward")


def _around(torch, finish, call_watchers):
    begin_gpu = end_gpu = keep_gpu = None

    def bind():
        nonlocal begin_gpu, end_gpu, keep_gpu
        begin_gpu, end_gpu, keep_gpu = gpu_events.begin, gpu_events.end, gpu_events.keep

    devices.follow(bind)
    push, pop = nvtx_ranges.of_phases(torch) or (None, None)

    def begin(module, arguments, options):
        active.add(get_ident())
        if watchers:
            call_watchers(module, _getframe(1).f_back)
        pair = begin_gpu and begin_gpu(FORWARD)
        if push:
            push("forward")
        return now(), module, arguments, options, pair

    def end(state, result):
        ended = now()
        start, module, arguments, options, pair = state
        if pop:
            pop()
        active.discard(get_ident())
        pair = pair and end_gpu(pair)
        name = finish(_getframe(1).f_back, module, start, ended, result, (arguments, options))
        if pair:
            keep_gpu(pair, name)

    def fail(state, error):
        if pop:
            pop()
        active.discard(get_ident())

    return begin, end, fail


def _finish_with(torch):
    is_grad_enabled, is_inference = torch.is_grad_enabled, torch.is_inference_mode_enabled
    name_of, own = static_access.name_of, vars(torch.nn.Module)["__dict__"].__get__

    def finish(frame, module, start, end, result, held):
        name = name_of(type(module))
        if name not in _plain:
            name = _find_name(module, frame)
        is_training = own(module).get("training")
        if is_training is not True and is_training is not False:
            is_training = model_parts.is_training(module)
        value = journal_format.TRAINING if is_training else 0
        if is_grad_enabled():
            value |= journal_format.GRAD
        if is_inference():
            value |= journal_format.INFERENCE
        number = label(name, frame)
        journal.span(start, end - start, value, number, journal_format.FORWARD)
        if live_graphs.left > 0:
            guard.run("live_graphs", live_graphs.note, "forward", number, frame, result)
        if seen_models.left > 0 and value & journal_format.GRAD:
            guard.run("seen_models", seen_models.note, torch, module, name, held, is_training)
        journal.end_step(journal_format.FORWARD, 0, end)
        if (name, value) not in _checked:
            _checked.add((name, value))
            guard.run("autocast", settings_facts.look_at_autocast, torch, name, is_training)
            if name not in _described and len(_described) < MAX_CLASSES:
                _described.add(name)
                _waiting.add(name)
                torch_facts.look()
        if _waiting and name in _waiting:
            if guard.run("model_facts", model_facts.describe, torch, module, name) is not tensor_access.LATER:
                _waiting.discard(name)
        if name in model_facts.embedding and value & TRAINED == TRAINED and padding_facts.left["model"] > 0:
            guard.run("padding_facts", padding_facts.note, torch, "model", name, held)
        journal.own_work(end)
        return number

    return finish


def _call_watchers(module, frame):
    for watch in watchers:
        watch(module, frame)


def _find_name(module, frame):
    """Return the class name of a module, or of the module that a wrapper wraps."""
    kind = type(module)
    if parallel.is_spread(kind):
        parallel.describe(module, frame)
    name = static_access.name_of(kind)
    inner = model_parts.part(module, WRAPPERS[name]) if name in WRAPPERS else None
    if inner is not None:
        return _find_name(inner, frame)
    if len(_plain) >= MAX_CLASSES:
        _plain.clear()
    _plain.add(name)
    return name


def _forget_other_threads():
    active.intersection_update({get_ident()})
