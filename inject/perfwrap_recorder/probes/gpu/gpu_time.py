"""Makes the probes of phases time the GPU's work, see ``gpu/gpu_events.py``.

Instruments ``CUDAGraph.capture_begin`` and ``capture_end``, only to know when CUDA must not be called. Does
nothing if torch is built without CUDA and HIP. Installed before the probes whose phases are timed.

Not seen: the work of other threads and streams than those that are current when a phase begins, and what the
program launches between the phases.
"""

from __future__ import annotations

import atexit

from perfwrap_recorder import guard
from perfwrap_recorder.gpu import gpu_events
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import journal


def install(torch):
    """Start recording, once the program has started CUDA."""
    if not (torch.version.cuda or getattr(torch.version, "hip", None)) or gpu_events.api is not None:
        return
    gpu_events.watch(gpu_events.Api(torch))
    graph = torch.cuda.CUDAGraph
    instrument.instrument(torch, graph.capture_begin, _begin, _begun, _not_begun, ("self",))
    instrument.instrument(torch, graph.capture_end, _begin_end, _ended, _not_ended, ("self",))
    journal.every_interval.add(guard.protect("gpu_time", gpu_events.ask_events))
    journal.after_fork.add(guard.protect("gpu_time", gpu_events.begin_in_child))
    atexit.register(guard.protect("gpu_time", gpu_events.release))


def _begin(graph):
    gpu_events.captures.add(id(graph))
    gpu_events.has_captured = True
    return (graph,)


def _begun(state, result):
    pass


def _not_begun(state, error):
    gpu_events.captures.discard(id(state[0]))


def _begin_end(graph):
    return (graph,)


def _ended(state, result):
    gpu_events.captures.discard(id(state[0]))


_not_ended = _not_begun
