"""Has the probes of phases time what the GPU does for them, see ``perfwrap_recorder.gpu_time``.

Instruments ``CUDAGraph.capture_begin`` and ``capture_end``, only to know when nothing may be asked of CUDA. Nothing
where torch is built without CUDA and HIP. To be installed before the probes whose phases are timed.

Not seen: the work of other threads and streams than those that are current when a phase begins, and what the
program launches between the phases.
"""

from __future__ import annotations

import atexit

from perfwrap_recorder import gpu_time, guard, instrument, journal


def install(torch):
    """Watch from now on, once the program has started CUDA."""
    if not (torch.version.cuda or getattr(torch.version, "hip", None)) or gpu_time.api is not None:
        return
    gpu_time.watch(gpu_time.Api(torch))
    graph = torch.cuda.CUDAGraph
    instrument.instrument(torch, graph.capture_begin, _begin, _begun, _not_begun, ("self",))
    instrument.instrument(torch, graph.capture_end, _begin_end, _ended, _not_ended, ("self",))
    journal.every_interval.add(guard.protect("gpu_time", gpu_time.ask_events))
    journal.after_fork.add(guard.protect("gpu_time", gpu_time.begin_in_child))
    atexit.register(guard.protect("gpu_time", gpu_time.let_go))


def _begin(graph):
    gpu_time.captures.add(id(graph))
    gpu_time.has_captured = True
    return (graph,)


def _begun(state, result):
    pass


def _not_begun(state, error):
    gpu_time.captures.discard(id(state[0]))


def _begin_end(graph):
    return (graph,)


def _ended(state, result):
    gpu_time.captures.discard(id(state[0]))


_not_ended = _not_begun
