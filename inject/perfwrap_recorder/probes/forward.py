"""Times each call of an outermost module: one that no other module's call of that thread surrounds.

Instruments ``Module.__call__``, which a module inside of another passes with two look-ups. No hook is registered, and
modules that override ``__call__`` themselves are left alone.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe

from perfwrap_recorder import (
    gpu_time,
    guard,
    instrument,
    journal,
    journal_format,
    model_parts,
    plainly,
    quiet,
    ranges,
    seen_models,
)
from perfwrap_recorder.clock import now
from perfwrap_recorder.probes import (
    live_graphs,
    model_facts,
    padding_facts,
    parallel,
    settings_facts,
    torch_facts,
)
from perfwrap_recorder.source_lines import label

WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
}
"""Classes whose name says nothing: what they wrap is named instead."""

MAXIMUM_CLASSES = 1000

FORWARD = journal_format.FORWARD
TRAINED = journal_format.TRAINING | journal_format.GRAD

active = set()  # threads inside of an outermost call
watchers = []  # functions(module, frame) to call before each outermost call, for experiments
_plain = set()  # names of classes of modules that wrap no other; not the classes: they may hold models
_described = set()  # names of those that the facts are known of, or waited for
_waiting = set()  # names of those that could not be looked at yet, since somebody would have seen it
_asked = set()  # (name, value of the span): how the model is called was asked in these ten seconds


def install(torch):
    """Watch from now on."""
    begin, end, fail = _around(
        torch,
        guard.protect("forward", _finish_with(torch)),
        guard.protect("forward_watchers", _tell_watchers),
    )
    known = {"_perfwrap_get_ident": get_ident, "_perfwrap_active": active}
    instrument.instrument(
        torch,
        torch.nn.Module.__call__,
        *(begin, end, fail, ("self", "args", "kwargs")),
        condition="_perfwrap_get_ident() not in _perfwrap_active",
        known=known,
        kind=FORWARD,
        phase="forward",
    )
    journal.after_fork.add(_forget_other_threads)
    journal.every_interval.add(_asked.clear)
    padding_facts.install()
    journal.cover("probe/forward")


def _around(torch, finish, tell):
    begin_gpu, end_gpu, keep_gpu = gpu_time.begin, gpu_time.end, gpu_time.keep
    push, pop = ranges.of_phases(torch) or (None, None)

    def begin(module, arguments, options):
        active.add(get_ident())
        if watchers:
            tell(module, _getframe(1).f_back)
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
    name_of, own = plainly.name_of, vars(torch.nn.Module)["__dict__"].__get__

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
        if (name, value) not in _asked:
            _asked.add((name, value))
            guard.run("autocast", settings_facts.look_at_autocast, torch, name, is_training)
            if name not in _described and len(_described) < MAXIMUM_CLASSES:
                _described.add(name)
                _waiting.add(name)
                torch_facts.look()
        if _waiting and name in _waiting:
            if guard.run("model_facts", model_facts.describe, torch, module, name) is not quiet.LATER:
                _waiting.discard(name)
        if name in model_facts.embedding and value & TRAINED == TRAINED and padding_facts.left["model"] > 0:
            guard.run("padding_facts", padding_facts.note, torch, "model", name, held)
        journal.own_work(end)
        return number

    return finish


def _tell_watchers(module, frame):
    for watch in watchers:
        watch(module, frame)


def _find_name(module, frame):
    """Return the class name of a module, or of what a mere wrapper wraps."""
    kind = type(module)
    if parallel.is_spread(kind):
        parallel.describe(module, frame)
    name = plainly.name_of(kind)
    inner = model_parts.part(module, WRAPPERS[name]) if name in WRAPPERS else None
    if inner is not None:
        return _find_name(inner, frame)
    if len(_plain) >= MAXIMUM_CLASSES:
        _plain.clear()
    _plain.add(name)
    return name


def _forget_other_threads():
    active.intersection_update({get_ident()})
