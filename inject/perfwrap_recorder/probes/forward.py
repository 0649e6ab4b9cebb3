"""Times each call of an outermost module: one that no other module's call of that thread surrounds.

Replaces ``Module.__call__``, which a module inside of another passes with two look-ups. The user could notice
that the frame of ``_wrapped_call_impl`` has another file name in tracebacks, and nothing else: no hook is
registered, and modules that override ``__call__`` themselves are left alone.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe

from perfwrap_recorder import guard, journal, ranges, wrapping
from perfwrap_recorder.clock import now
from perfwrap_recorder.probes import parallel, torch_facts
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

FORWARD = journal.FORWARD

active = set()  # threads inside of an outermost call
_names = {}  # class of a module -> its name, or the attribute that holds what it wraps
_described = set()  # names of those that the facts are known of


def install(torch):
    """Watch from now on."""
    module = torch.nn.Module
    # Before torch 2.1 ``__call__`` was ``_call_impl`` itself.
    is_known = vars(module).get("_wrapped_call_impl") is module.__call__
    make = _make_inlined if is_known and not ranges.find(torch) else _make_around
    is_counted = make is _make_inlined
    finish = guard.protect("forward", _finish_with(torch))
    wrapping.patch(torch, module, "__call__", make(finish), "forward", is_counted)
    if is_known:
        module._wrapped_call_impl = module.__call__
    journal.after_fork.add(_forget_other_threads)
    journal.cover("probe/forward")


def _make_inlined(finish):
    """Do what ``_wrapped_call_impl`` does, so that its frame is replaced and none added."""

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
            try:
                start = now()
                if self._compiled_call_impl is not None:
                    result = self._compiled_call_impl(*arguments, **options)
                else:
                    result = self._call_impl(*arguments, **options)
                end = now()
            finally:
                active.discard(thread)
            finish(_getframe(1), self, start, end)
            return result

        return wrapper

    return make


def _make_around(finish):
    def make(original, call, is_compiling):
        def wrapper(self, *arguments, **options):
            if is_compiling():
                return original(self, *arguments, **options)
            if FORWARD in resting or get_ident() in active:
                return original(self, *arguments, **options)
            thread = get_ident()
            active.add(thread)
            try:
                start = now()
                result = call(self, *arguments, **options)
                end = now()
            finally:
                active.discard(thread)
            finish(_getframe(1), self, start, end)
            return result

        return wrapper

    return make


def _finish_with(torch):
    is_grad_enabled, is_inference = torch.is_grad_enabled, torch.is_inference_mode_enabled

    def finish(frame, module, start, end):
        name = _names.get(type(module)) or _find_name(module, frame)
        value = journal.TRAINING if getattr(module, "training", False) else 0
        if is_grad_enabled():
            value |= journal.GRAD
        if is_inference():
            value |= journal.INFERENCE
        journal.span(start, end - start, value, label(name, frame), journal.FORWARD)
        journal.end_step(journal.FORWARD, 0, end)
        if name not in _described:
            _described.add(name)
            guard.run("model_facts", _describe, torch, module, name)
            torch_facts.look()

    return finish


def _find_name(module, frame):
    """Return the class name of a module, or of what a mere wrapper wraps."""
    kind = type(module)
    if parallel.is_spread(kind):
        parallel.describe(module, frame)
    inner = getattr(module, WRAPPERS.get(kind.__name__, ""), None)
    if inner is not None:
        return _find_name(inner, frame)
    if len(_names) >= MAXIMUM_CLASSES:
        _names.clear()
    _names[kind] = kind.__name__
    return kind.__name__


def _describe(torch, module, name):
    """Say what a model is; a module without parameters (a loss function) is none."""
    start = now()
    # A mode or subclass of the program's must not see these questions.
    with torch._C.DisableTorchFunction():
        parameters = list(module.parameters())
        if not parameters:
            return
        kind = type(module)
        key = "model/" + name
        journal.fact(key + "/class", "%s.%s" % (kind.__module__, kind.__qualname__))
        journal.fact(key + "/parameters", sum(parameter.numel() for parameter in parameters))
        journal.fact(key + "/device", parameters[0].device)
        journal.fact(key + "/dtype", parameters[0].dtype)
    journal.record(start, now() - start, 0, journal.text("model facts"), journal.PERFWRAP)


def _forget_other_threads():
    active.intersection_update({get_ident()})
