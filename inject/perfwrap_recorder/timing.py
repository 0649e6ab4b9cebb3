"""Times instrumented functions: what stands between the two calls of the recorder inside of them."""

from __future__ import annotations

from sys import _getframe

from perfwrap_recorder import gpu_time, guard, instrument, ranges
from perfwrap_recorder.clock import now


def time_calls(
    torch, function, probe, finish, values=(), kind=None, gpu_kind=None, range_name="", before=None, phase=""
):
    """Call ``finish(frame, start, duration, values)`` after each call of a function of torch's that returns.

    The frame is the caller's, ``values`` those of the parameters of these names, when the call began. ``kind`` is that
    of the spans, for those that may rest, and ``gpu_kind`` for those whose time on a GPU is of interest too: ``finish``
    then returns their label. ``range_name`` is that of an NVTX range, where such are wanted; ``before()`` is called
    first.
    """
    finish = guard.protect(probe, finish)
    begin_gpu, end_gpu, keep_gpu = gpu_time.begin, gpu_time.end, gpu_time.keep
    if gpu_kind is None:
        begin_gpu = None
    push, pop = (ranges.of_phases(torch) if range_name else None) or (None, None)

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
        torch, function, begin, end, fail if pop else None, values, kind=kind, phase=phase or range_name
    )
