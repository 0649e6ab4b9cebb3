"""Times each step of a gradient scaler, and says whether it skipped the optimizer.

Replaces ``GradScaler.step``. The user could notice one more frame in a traceback.

The scaler's own finding is a value on the GPU, which is never asked for: a step is known as skipped when no
optimizer's hook was called inside of it. That cannot be told of a fused optimizer, where the GPU decides, nor of
one whose ``step`` is not torch's to hook before it has been seen to call one. The scale is on the GPU too; it
follows from the facts ``scaler/…`` and the skips.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe
from types import MethodType

from perfwrap_recorder import (
    call_sites,
    gpu_time,
    guard,
    journal,
    journal_format,
    living,
    plainly,
    wrapping,
)
from perfwrap_recorder.clock import now
from perfwrap_recorder.probes.optimizer import awaiting
from perfwrap_recorder.source_lines import label

SCALER_STEP = journal_format.SCALER_STEP

STEPPED, SKIPPED, UNKNOWN = 0, 1, -1

NAMES = {STEPPED: "GradScaler.step", SKIPPED: "GradScaler.step skipped", UNKNOWN: "GradScaler.step"}
"""Skipped steps have a name of their own, so that their sums stay exact where steps are thinned."""

FACTS = ("enabled", "init_scale", "growth_factor", "backoff_factor", "growth_interval")

MAXIMUM_KNOWN = 100

_seen_to_step = {}  # id of an optimizer -> (weak reference to it,)
_described = []


def install(torch):
    """Watch from now on."""
    finish = guard.protect("grad_scaler", _finish)
    for path in ("amp.grad_scaler", "cuda.amp.grad_scaler"):
        owner = torch
        for name in path.split(".") + ["GradScaler"]:
            owner = getattr(owner, name, None)
        # Only the class that has a step of its own: torch.cuda's is a subclass in newer versions.
        if "step" in vars(owner or object):
            wrapping.patch(torch, owner, "step", _make(finish), "optimizer")
    journal.cover("probe/grad_scaler")


def _make(finish):
    begin_gpu, end_gpu, keep_gpu = gpu_time.begin, gpu_time.end, gpu_time.keep

    def make(original, call, is_compiling):
        def wrapper(*arguments, **options):
            if is_compiling():
                return original(*arguments, **options)
            thread = get_ident()
            awaiting.add(thread)
            try:
                pair = begin_gpu and begin_gpu(SCALER_STEP)
                start = now()
                result = call(*arguments, **options)
                duration = now() - start
                has_stepped = thread not in awaiting
            finally:
                awaiting.discard(thread)
            pair = pair and end_gpu(pair)
            name = finish(_getframe().f_back, start, duration, has_stepped, arguments, options)
            if pair:
                keep_gpu(pair, name)
            return result

        return wrapper

    return make


def _finish(frame, start, duration, has_stepped, arguments, options):
    value = _outcome(call_sites.option(arguments, options, 1, "optimizer", None), has_stepped)
    name = label(NAMES[value], frame)
    journal.span(start, duration, value, name, SCALER_STEP)
    if not _described:
        mine = plainly.own(arguments[0])
        _described.append(mine.get("_enabled") is True)
        for key in FACTS:
            fact = mine.get("_" + key)
            if plainly.has_type(fact, plainly.PLAIN):
                journal.fact("scaler/" + key, fact)
    return name


def is_used():
    """Say whether an optimizer was stepped by a scaler that is enabled."""
    return True in _described


def _outcome(optimizer, has_stepped):
    """Return what became of the optimizer's step."""
    mine = plainly.own(optimizer)
    if mine.get("_step_supports_amp_scaling") not in (None, False):
        return UNKNOWN
    is_known = living.find(_seen_to_step, optimizer) is not None
    if has_stepped:
        if not is_known:
            living.note(_seen_to_step, optimizer, MAXIMUM_KNOWN)
        return STEPPED
    if is_known:
        return SKIPPED
    # A scheduler's wrapper in the instance calls the class's step, which torch has hooked in __init__.
    step = mine.get("step")
    step = step.__func__ if type(step) is MethodType else step
    is_replaced = "step" in mine and "_wrapped_by_lr_sched" not in plainly.own(step)
    is_hooked = plainly.own(plainly.member(type(optimizer), "step")).get("hooked") is True
    return SKIPPED if is_hooked and not is_replaced else UNKNOWN
