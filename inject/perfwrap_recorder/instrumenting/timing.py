"""Times instrumented functions: the time between the two calls of the recorder in them."""

from __future__ import annotations

from sys import _getframe

from perfwrap_recorder import guard
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu import devices, gpu_events, nvtx_ranges
from perfwrap_recorder.instrumenting import instrument


def time_calls(
    torch,
    function,
    probe,
    finish,
    values=(),
    kind=None,
    gpu_kind=None,
    range_name="",
    before=None,
    phase="",
    **more,
):
    """Call ``finish(frame, start, duration, values)`` after each call of a function of torch that returns.

    The frame is the caller's; ``values`` are those of the parameters of these names when the call began. ``kind`` is
    the kind of the spans, if it can be paused; ``gpu_kind`` if the time on a GPU is measured too: ``finish`` then
    returns the label. ``range_name`` is the name of an NVTX range, if those are wanted; ``before()`` is called first.
    ``more`` are further arguments of ``instrument``.
    """
    finish = guard.protect(probe, finish)
    begin_gpu = end_gpu = keep_gpu = None

    def bind():
        nonlocal begin_gpu, end_gpu, keep_gpu
        begin_gpu, end_gpu, keep_gpu = gpu_events.begin, gpu_events.end, gpu_events.keep

    if gpu_kind is not None:
        devices.follow(bind)
    push, pop = (nvtx_ranges.of_phases(torch) if range_name else None) or (None, None)

    def begin(*found):
        if before:
            before()
        pair = begin_gpu and begin_gpu(gpu_kind)
        if push:
            push(range_name)
        return now(), pair, found

    def end(state, result):
        start, pair, found = state
        duration = now() - start
        if pop:
            pop()
        pair = pair and end_gpu(pair)
        name = finish(_getframe(1).f_back, start, duration, found)
        if pair:
            keep_gpu(pair, name)

    def fail(state, error):
        pop()

    return instrument.instrument(
        torch,
        function,
        begin,
        end,
        fail if pop else None,
        values,
        kind=kind,
        phase=phase or range_name,
        **more,
    )
