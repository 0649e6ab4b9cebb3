"""Times each step of a gradient scaler, and says whether it skipped the optimizer.

Instruments ``GradScaler.step``.

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
    gpu_time,
    guard,
    instrument,
    journal,
    journal_format,
    living,
    plainly,
    ranges,
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
            begin, end, fail = _around(torch, finish)
            instrument.instrument(
                torch, owner.step, begin, end, fail, ("self", "optimizer"), phase="optimizer"
            )
    journal.cover("probe/grad_scaler")


def _around(torch, finish):
    begin_gpu, end_gpu, keep_gpu = gpu_time.begin, gpu_time.end, gpu_time.keep
    push, pop = ranges.of_phases(torch) or (None, None)

    def begin(scaler, optimizer):
        awaiting.add(get_ident())
        pair = begin_gpu and begin_gpu(SCALER_STEP)
        if push:
            push("optimizer")
        return now(), pair, scaler, optimizer

    def end(state, result):
        start, pair, scaler, optimizer = state
        duration, thread = now() - start, get_ident()
        if pop:
            pop()
        has_stepped = thread not in awaiting
        awaiting.discard(thread)
        pair = pair and end_gpu(pair)
        name = finish(_getframe(1).f_back, start, duration, has_stepped, scaler, optimizer)
        if pair:
            keep_gpu(pair, name)

    def fail(state, error):
        if pop:
            pop()
        awaiting.discard(get_ident())

    return begin, end, fail


def _finish(frame, start, duration, has_stepped, scaler, optimizer):
    value = _outcome(optimizer, has_stepped)
    name = label(NAMES[value], frame)
    journal.span(start, duration, value, name, SCALER_STEP)
    if not _described:
        mine = plainly.own(scaler)
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
