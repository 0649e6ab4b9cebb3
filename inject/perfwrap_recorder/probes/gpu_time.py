"""Has the wrappers of phases time what the GPU does for them, see ``perfwrap_recorder.gpu_time``.

Replaces ``CUDAGraph.capture_begin`` and ``capture_end``, only to know when nothing may be asked of CUDA; the user
could notice one more frame in tracebacks through these. Nothing where torch is built without CUDA and HIP. To be
installed before the probes whose phases are timed.

Not seen: the work of other threads and streams than those that are current when a phase begins, and what the
program launches between the phases.
"""

from __future__ import annotations

import atexit

from perfwrap_recorder import gpu_time, guard, journal, wrapping


def install(torch):
    """Watch from now on, once the program has started CUDA."""
    if not (torch.version.cuda or getattr(torch.version, "hip", None)) or gpu_time.api is not None:
        return
    gpu_time.watch(gpu_time.Api(torch))
    graph = torch.cuda.CUDAGraph
    wrapping.patch(torch, graph, "capture_begin", _make_begin)
    wrapping.patch(torch, graph, "capture_end", _make_end)
    journal.every_interval.add(guard.protect("gpu_time", gpu_time.ask_events))
    journal.after_fork.add(guard.protect("gpu_time", gpu_time.begin_in_child))
    atexit.register(guard.protect("gpu_time", gpu_time.let_go))


def _make_begin(original, _, __):
    captures = gpu_time.captures

    def wrapper(self, *arguments, **options):
        captures.add(id(self))
        gpu_time.has_captured = True
        has_begun = False
        try:
            result = original(self, *arguments, **options)
            has_begun = True
            return result
        finally:
            if not has_begun:
                captures.discard(id(self))

    return wrapper


def _make_end(original, _, __):
    captures = gpu_time.captures

    def wrapper(self, *arguments, **options):
        try:
            return original(self, *arguments, **options)
        finally:
            captures.discard(id(self))

    return wrapper
