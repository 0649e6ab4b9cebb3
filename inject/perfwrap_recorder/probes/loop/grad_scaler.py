"""Times each step of a gradient scaler, and records whether it skipped the optimizer.

Instruments ``GradScaler.step``.

The scaler's own result is a value on the GPU, which is never read: a step counts as skipped if no optimizer
stepped inside it. That is unknown for a fused optimizer, where the GPU decides, and for one whose ``step`` is not
torch's, until one step was seen. The scale is on the GPU too; it follows from the facts ``scaler/…`` and the
skips.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe
from types import MethodType

from perfwrap_recorder import guard, journal_format, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu import devices, gpu_events, nvtx_ranges
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import journal
from perfwrap_recorder.journal.paused_detail import passing_steps
from perfwrap_recorder.probes.loop.optimizer import awaiting
from perfwrap_recorder.program import weak_table
from perfwrap_recorder.program.source_lines import label

SCALER_STEP = journal_format.SCALER_STEP

STEPPED, SKIPPED, UNKNOWN = 0, 1, -1

NAMES = {STEPPED: "GradScaler.step", SKIPPED: "GradScaler.step skipped", UNKNOWN: "GradScaler.step"}
"""Skipped steps have a name of their own, so that their sums are exact."""

FACTS = ("enabled", "init_scale", "growth_factor", "backoff_factor", "growth_interval")

MAX_KNOWN = 100

_seen_to_step = {}  # id of an optimizer -> (weak reference to it,)
_described = []


def install(torch):
    """Start recording."""
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
    begin_gpu = end_gpu = keep_gpu = None

    def bind():
        nonlocal begin_gpu, end_gpu, keep_gpu
        begin_gpu, end_gpu, keep_gpu = gpu_events.begin, gpu_events.end, gpu_events.keep

    devices.follow(bind)
    push, pop = nvtx_ranges.of_phases(torch) or (None, None)

    def begin(scaler, optimizer):
        awaiting.add(get_ident())
        passing_steps.pop(id(optimizer), None)  # its next step must be seen
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
        mine = static_access.own(scaler)
        _described.append(mine.get("_enabled") is True)
        for key in FACTS:
            fact = mine.get("_" + key)
            if static_access.has_type(fact, static_access.PLAIN):
                journal.fact("scaler/" + key, fact)
    return name


def is_used():
    """Return whether an optimizer was stepped by a scaler that is enabled."""
    return True in _described


def _outcome(optimizer, has_stepped):
    """Return the result of the optimizer's step."""
    mine = static_access.own(optimizer)
    if mine.get("_step_supports_amp_scaling") not in (None, False):
        return UNKNOWN
    is_known = weak_table.find(_seen_to_step, optimizer) is not None
    if has_stepped:
        if not is_known:
            weak_table.note(_seen_to_step, optimizer, MAX_KNOWN)
        return STEPPED
    if is_known:
        return SKIPPED
    # A scheduler's wrapper in the instance calls the class's step, which torch has hooked in __init__.
    step = mine.get("step")
    step = step.__func__ if type(step) is MethodType else step
    is_replaced = "step" in mine and "_wrapped_by_lr_sched" not in static_access.own(step)
    is_hooked = static_access.own(static_access.member(type(optimizer), "step")).get("hooked") is True
    return SKIPPED if is_hooked and not is_replaced else UNKNOWN
