"""Makes the probes of phases time the GPU's work, see ``gpu/gpu_events.py``.

Instruments ``capture_begin`` and ``capture_end`` of the device's graphs (``CUDAGraph``), only to know when the device
must not be called. Does nothing until there is a device, see ``gpu/devices.py``. Installed before the probes whose
phases are timed.

Not seen: the work of other threads and streams than those that are current when a phase begins, and what the
program launches between the phases.
"""

from __future__ import annotations

import atexit

from perfwrap_recorder import guard
from perfwrap_recorder.gpu import devices, gpu_events
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import journal


def install(torch):
    """Start recording, once the program has started its device."""
    devices.find_in_build(torch)
    devices.follow(lambda: _follow(torch))


def _follow(torch):
    """Time the work of the device, if it has timing events."""
    found = devices.current
    if found is gpu_events.api:
        return
    if found is None:
        gpu_events.api = None
        return
    journal.after_fork.add(devices.forget_in_child)
    if found.make_event is None:
        gpu_events.api = None
        journal.uncover("probe/gpu_time", "torch.%s has no events that take the time" % found.kind)
        return
    is_first = gpu_events.begin is None
    gpu_events.watch(found)
    for graph in found.graphs:
        instrument.instrument(torch, graph.capture_begin, _begin, _begun, _not_begun, ("self",))
        instrument.instrument(torch, graph.capture_end, _begin_end, _ended, _not_ended, ("self",))
    if is_first:
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
