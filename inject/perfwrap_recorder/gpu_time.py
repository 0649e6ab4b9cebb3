"""How long the GPU works on each phase, without ever waiting for it.

A phase is put between two timing events on the stream that is current in its thread. Whether they were reached
is only asked with ``query()``, when later steps have ended; nothing is synchronised, allocated or launched.
The pairs are pooled, and when too many are under way a phase goes without and is counted as dropped.

- Active only in a process that has started CUDA itself; never in the child of a fork, where CUDA is dead.
- Never while a CUDA graph is captured, in whichever thread: an event would become part of the graph, and a
  ``query()`` would break the capture. Nothing is asked then either.
- Only for steps that stand in detail. What is found later is written as it is, also while steps are thinned.
- The first error of the API turns all of it off (``guard``).

Wrappers call ``begin`` and ``end`` around a phase, and ``keep`` when its label is known. Where torch has no GPU
support these are None, and nothing of this runs.
"""

from __future__ import annotations

from collections import deque

from perfwrap_recorder import guard, journal, journal_format
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu_clock import GpuClock, nanoseconds

MAXIMUM_PENDING = 256
"""Pairs that may be under way on one device; a GPU's own queue holds about as many phases."""

NEW_BASE_NS = 1_000_000_000
"""Elapsed times are 32-bit floats of milliseconds: so long after an event they are still exact to 0.1 us."""

MAXIMUM_STREAMS = 64
"""Streams of a device that are told apart; those beyond share a track."""

MOST_LEAD_US = (1 << journal_format.LEAD_BITS) - 1

api = None  # what of torch.cuda is used, once the probe has found it; None: nothing is to be done
captures = set()  # CUDA graphs that are being captured
has_captured = False  # whether one ever was
_devices = {}  # index of a device -> Device
_forgotten = []  # in the child of a fork: what must not be let go, since CUDA would be asked to destroy it
_polling = [True]  # one token: who takes it asks the events
_polled = -1  # the step whose end was the last to ask
_said = {}  # key of a fact -> its value as last written

begin = end = keep = reach = None
"""What wrappers call: _begin and so on, made safe; None where there is no GPU to watch."""


class Api:
    """What is used of torch.cuda: everything here returns at once, and nothing here waits."""

    def __init__(self, torch):
        cuda = torch.cuda
        event = cuda.Event
        # The methods in C: Dynamo would look at those in Python, and they cost more.
        base = next((kind for kind in event.__mro__ if kind.__name__ == "_CudaEventBase"), event)
        self.make_event = event
        self.record, self.query, self.elapsed_time = base.record, base.query, base.elapsed_time
        self.is_initialized = cuda.is_initialized
        self.is_capturing = cuda.is_current_stream_capturing
        self.make_stream = cuda.Stream
        self.current_device = getattr(torch._C, "_cuda_getDevice", None) or cuda.current_device
        self.current_stream = torch._C._cuda_getCurrentStream


class Device:
    """The pairs, streams and clock of one GPU."""

    def __init__(self, index):
        self.index = index
        self.free = []
        self.pending = deque()
        self.streams = {}  # what torch calls a stream -> (the stream, its track in the journal)
        self.clock = None
        self.base = None
        """The event that elapsed times are counted from, replaced when they grow."""
        self.base_place = 0
        """Where it is on the GPU's own axis."""
        self.dropped = 0


class Pair:
    """The two events around one phase, and when the host recorded them."""

    __slots__ = (
        "begun",
        "device",
        "ended",
        "first",
        "kind",
        "last",
        "name",
        "not_after",
        "not_before",
        "stream",
    )

    def __init__(self):
        self.first = api.make_event(enable_timing=True)
        self.last = api.make_event(enable_timing=True)


def watch(found):
    """Have the wrappers that are made from now on call ``begin``, ``end`` and ``keep``, and ``reach``."""
    global api, begin, end, keep, reach
    api = found
    begin, end, keep, reach = (guard.protect("gpu_time", each) for each in (_begin, _end, _keep, _reach))


def _begin(kind):
    """Record that a phase begins on the current stream; return its pair, or None."""
    if api is None or journal.summing or captures or not api.is_initialized() or api.is_capturing():
        return None
    index = api.current_device()
    device = _devices.get(index) or _add_device(index)
    if len(device.pending) >= MAXIMUM_PENDING:
        device.dropped += 1
        _ask_events()
        return None
    key = api.current_stream(index)
    try:
        pair = device.free.pop()
    except IndexError:
        pair = Pair()
    pair.device, pair.kind = device, kind
    pair.stream = device.streams.get(key) or _add_stream(device, key)
    pair.begun = now()
    api.record(pair.first, pair.stream[0])
    return pair


def _end(pair):
    """Record that the phase of a pair ends, on the stream on which it began; return the pair, or None."""
    if _devices.get(pair.device.index) is not pair.device:  # the phase has forked, and this is the child
        _forgotten.append(pair)
        return None
    if captures or api.is_capturing():
        pair.device.free.append(pair)
        return None
    pair.ended = pair.not_before = now()
    api.record(pair.last, pair.stream[0])
    return pair


def _keep(pair, name):
    """Have a pair that has ended asked later, for a phase with that label, and ask those that may be done."""
    global _polled
    pair.name, pair.not_after = name or 0, None
    pair.device.pending.append(pair)
    if _polled != journal.steps:
        _polled = journal.steps
        _ask_events()


def _reach(moment, index):
    """Take in that a call of the user's has waited for the current stream of a device and returned then."""
    device = _devices.get(index)
    if device is None or captures:
        return
    for pair in list(device.pending)[-1:]:
        if pair.not_after is None and device.streams.get(api.current_stream(index)) is pair.stream:
            pair.not_after = moment


def ask_events():
    """Ask the events that are under way, and say what was dropped and how sure the clock is."""
    if api is not None and _devices and not captures and api.is_initialized() and not api.is_capturing():
        _ask_events()
    for index, device in list(_devices.items()):
        _say("gpu_time/%d/dropped" % index, device.dropped)
        if device.clock is not None:
            _say("gpu_time/%d/clock_resets" % index, device.clock.resets)
            _say("gpu_time/%d/clock_uncertainty_ns" % index, device.clock.uncertainty)


def let_go():
    """Ask for the last time and let go of all events, while CUDA is still there."""
    ask_events()
    for device in _devices.values():
        device.free.clear()
        device.pending.clear()
        device.base = None
    captures.add(None)  # nothing begins any more


def begin_in_child():
    """Forget the parent's events in the child of a fork, without touching them: CUDA is dead there."""
    global _polled
    _forgotten.extend(_devices.values())
    _devices.clear()
    captures.clear()
    _said.clear()
    _polling[:] = [True]
    _polled = -1


def _add_device(index):
    if not _devices:
        journal.cover("probe/gpu_time")
    return _devices.setdefault(index, Device(index))


def _add_stream(device, key):
    known = device.streams
    if len(known) >= MAXIMUM_STREAMS:
        return _make_stream(key), next(iter(known.values()))[1]
    track = journal.add_track("cuda/%d stream %d" % (device.index, len(known)))
    return known.setdefault(key, (_make_stream(key), track))


def _make_stream(key):
    number, index, kind = key
    return api.make_stream(stream_id=number, device_index=index, device_type=kind)


def _ask_events():
    """Ask the oldest events of each device, until one is not done; write those that are."""
    try:
        _polling.pop()
    except IndexError:
        return
    try:
        for device in list(_devices.values()):
            _ask_device(device)
    finally:
        _polling[:] = [True]


def _ask_device(device):
    pending = device.pending
    while pending:
        pair = pending[0]
        asked = now()
        if not api.query(pair.last):
            pair.not_before = asked
            return
        pending.popleft()
        _resolve(device, pair, now() if pair.not_after is None else pair.not_after)


def _resolve(device, pair, reached):
    """Write when the events of a pair were reached, the last one not after that moment, and free the pair."""
    if device.base is None:
        # A base of its own: the events of a pair are recorded again.
        device.base, pair.first = pair.first, api.make_event(enable_timing=True)
        device.clock = GpuClock(0, pair.begun, reached)
        first = 0
    else:
        first = device.base_place + nanoseconds(api.elapsed_time(device.base, pair.first))
    last = device.base_place + nanoseconds(api.elapsed_time(device.base, pair.last))
    clock = device.clock
    clock.learn(first, pair.begun, reached)
    clock.learn(last, pair.not_before, reached)
    start, end_moment = clock.moment(first), clock.moment(last)
    value = pair.kind
    value |= _lead(start - pair.begun) << 8
    value |= _lead(end_moment - pair.ended) << (8 + journal_format.LEAD_BITS)
    journal.put(start, max(0, last - first), value, pair.name, pair.stream[1], journal_format.GPU)
    if last - device.base_place > NEW_BASE_NS:
        device.base, pair.last, device.base_place = pair.last, device.base, last
    device.free.append(pair)


def _lead(behind):
    """Return how far the host was ahead of the GPU, in microseconds that fit their bits."""
    return min(max(0, behind) // 1000, MOST_LEAD_US)


def _say(key, value):
    if value and _said.get(key) != value:
        _said[key] = value
        journal.fact(key, value)
