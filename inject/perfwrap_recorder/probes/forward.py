"""Times each call of an outermost module: one that no other module's call of that thread surrounds.

Replaces ``Module.__call__``, which a module inside of another passes with two look-ups. The user could notice
that the frame of ``_wrapped_call_impl`` has another file name in tracebacks, and that a warning raised inside of a
forward with a ``stacklevel`` that reaches that frame, 3 and more, names that file, too; nothing else. No hook is
registered, and modules that override ``__call__`` themselves are left alone.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe

from perfwrap_recorder import (
    gpu_time,
    guard,
    journal,
    journal_format,
    model_parts,
    plainly,
    quiet,
    ranges,
    rest,
    seen_models,
    wrapping,
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
from perfwrap_recorder.rest import resting
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
    module = torch.nn.Module
    original = module.__call__
    # Before torch 2.1 ``__call__`` was ``_call_impl`` itself.
    is_known = vars(module).get("_wrapped_call_impl") is original
    make = _make_inlined if is_known and not ranges.find(torch) else _make_around
    is_counted = make is _make_inlined
    finish = guard.protect("forward", _finish_with(torch))
    tell = guard.protect("forward_watchers", _tell_watchers)
    wrapping.patch(torch, module, "__call__", make(finish, tell), "forward", is_counted, kind=FORWARD)
    name = original.__name__
    if vars(module).get(name) is original:
        setattr(module, name, module.__call__)  # where pickle looks for it
        rest.offer(FORWARD, module, name, module.__call__, original)
    journal.after_fork.add(_forget_other_threads)
    journal.every_interval.add(_asked.clear)
    padding_facts.install()
    journal.cover("probe/forward")


def _make_inlined(finish, tell):
    """Do what ``_wrapped_call_impl`` does, so that its frame is replaced and none added."""
    begin_gpu, end_gpu, keep_gpu = gpu_time.begin, gpu_time.end, gpu_time.keep

    def make(original, _, is_compiling):
        def wrapper(self, *arguments, **options):
            if is_compiling():
                return original(self, *arguments, **options)
            if FORWARD in resting or get_ident() in active:
                if self._compiled_call_impl is not None:
                    return self._compiled_call_impl(*arguments, **options)
                return self._call_impl(*arguments, **options)
            thread = get_ident()
            active.add(thread)
            if watchers:
                tell(self, _getframe().f_back)
            pair = begin_gpu and begin_gpu(FORWARD)
            try:
                start = now()
                if self._compiled_call_impl is not None:
                    result = self._compiled_call_impl(*arguments, **options)
                else:
                    result = self._call_impl(*arguments, **options)
                end = now()
            finally:
                active.discard(thread)
            pair = pair and end_gpu(pair)
            name = finish(_getframe().f_back, self, start, end, result, (arguments, options))
            if pair:
                keep_gpu(pair, name)
            return result

        return wrapper

    return make


def _make_around(finish, tell):
    begin_gpu, end_gpu, keep_gpu = gpu_time.begin, gpu_time.end, gpu_time.keep

    def make(original, call, is_compiling):
        def wrapper(self, *arguments, **options):
            if is_compiling():
                return original(self, *arguments, **options)
            if FORWARD in resting or get_ident() in active:
                return original(self, *arguments, **options)
            thread = get_ident()
            active.add(thread)
            if watchers:
                tell(self, _getframe().f_back)
            pair = begin_gpu and begin_gpu(FORWARD)
            try:
                start = now()
                result = call(self, *arguments, **options)
                end = now()
            finally:
                active.discard(thread)
            pair = pair and end_gpu(pair)
            name = finish(_getframe().f_back, self, start, end, result, (arguments, options))
            if pair:
                keep_gpu(pair, name)
            return result

        return wrapper

    return make


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
