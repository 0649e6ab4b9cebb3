"""Measures how long the GPU works on each phase, without waiting for it.

Two timing events enclose a phase, on the stream that is current in its thread. Whether they were reached is asked
with ``query()`` only, when later steps have ended; nothing is synchronised, allocated or launched. The pairs are
pooled; if too many are pending, a phase is not measured and is counted as dropped.

- Active only in a process that has started the device itself; never in the child of a fork, where it does not work.
- Never while a CUDA graph is captured, in any thread: an event would become part of the graph, and a
  ``query()`` would break the capture.
- Only for steps with detail. Results that come later are written as they are, also while spans are summed.
- The first error of the API turns all of it off (``guard``).

Wrappers call ``begin`` and ``end`` around a phase, and ``keep`` when its label is known. Until there is a device
(``devices.py``) these are None, and nothing here runs.
"""

from __future__ import annotations

from collections import deque

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu.gpu_clock import GpuClock, nanoseconds
from perfwrap_recorder.journal import journal

MAX_PENDING = 256
"""Maximum number of pending pairs on one device; a GPU's own queue holds about as many phases."""

NEW_BASE_NS = 1_000_000_000
"""Elapsed times are 32-bit floats of milliseconds: up to this time they are exact to 0.1 us."""

MAX_STREAMS = 64
"""Streams of a device with a track of their own; further ones share a track."""

MAX_LEAD_US = (1 << journal_format.LEAD_BITS) - 1

api = None  # the devices.Device whose functions are used; None: no GPU, or one without timing events
captures = set()  # CUDA graphs that are being captured
has_captured = False  # whether one ever was
_devices = {}  # index of a device -> Device
_forgotten = []  # in the child of a fork: what must stay alive, since CUDA would be called to destroy it
_polling = [True]  # one token: the thread that takes it queries the events
_polled = -1  # the step at whose end events were last queried
_written = {}  # key of a fact -> its value as last written

again = begin = end = keep = reach = None
"""What wrappers call: _begin and so on, guarded; None if there is no GPU."""


class Device:
    """The pairs, streams and clock of one GPU."""

    def __init__(self, index):
        self.index = index
        self.free = []
        self.pending = deque()
        self.streams = {}  # what torch calls a stream -> (the stream, its track in the journal)
        self.clock = None
        self.base = None
        """The event from which elapsed times are counted, replaced when they grow."""
        self.base_place = 0
        """Its place on the GPU's own axis."""
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
    """Set ``begin``, ``end``, ``keep`` and ``reach``, for a device with timing events."""
    global again, api, begin, end, keep, reach
    api = found
    begin, again, end, keep, reach = (
        guard.protect("gpu_time", each) for each in (_begin, _again, _end, _keep, _reach)
    )


def _begin(kind):
    """Record an event at the beginning of a phase on the current stream; return its pair, or None."""
    if api is None or journal.summing or captures or not api.is_initialized() or api.is_capturing():
        return None
    index = api.current_device()
    device = _devices.get(index) or _add_device(index)
    if len(device.pending) >= MAX_PENDING:
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


def _again(pair):
    """Record the event at the beginning of a phase once more: what the program did since is not part of it."""
    if _devices.get(pair.device.index) is pair.device and not captures and not api.is_capturing():
        pair.begun = now()
        api.record(pair.first, pair.stream[0])


def _end(pair):
    """Record an event at the end of a phase, on the stream on which it began; return the pair, or None."""
    if (
        _devices.get(pair.device.index) is not pair.device
    ):  # the program forked during the phase, and this is the child
        _forgotten.append(pair)
        return None
    if captures or api.is_capturing():
        pair.device.free.append(pair)
        return None
    pair.ended = pair.not_before = now()
    api.record(pair.last, pair.stream[0])
    return pair


def _keep(pair, name):
    """Query a pair later, for a phase with that label; query now those that may be done."""
    global _polled
    pair.name, pair.not_after = name or 0, None
    pair.device.pending.append(pair)
    if _polled != journal.steps:
        _polled = journal.steps
        _ask_events()


def _reach(moment, index):
    """Learn that a call of the program has waited for the current stream of a device until this moment.

    The devices of torch's own builds wait when they read a value. Another may not, so its event is queried.
    """
    device = _devices.get(index)
    if device is None or captures:
        return
    for pair in list(device.pending)[-1:]:
        if pair.not_after is None and device.streams.get(api.current_stream(index)) is pair.stream:
            if not api.is_chosen:
                pair.not_after = moment
            elif api.query(pair.last):
                pair.not_after = now()


def ask_events():
    """Query the pending events, and write what was dropped and the uncertainty of the clock."""
    if api is not None and _devices and not captures and api.is_initialized() and not api.is_capturing():
        _ask_events()
    for index, device in list(_devices.items()):
        _write_fact("gpu_time/%d/dropped" % index, device.dropped)
        if device.clock is not None:
            _write_fact("gpu_time/%d/clock_resets" % index, device.clock.resets)
            _write_fact("gpu_time/%d/clock_uncertainty_ns" % index, device.clock.uncertainty)


def release():
    """Query the last time and release all events, while CUDA still works."""
    ask_events()
    for device in _devices.values():
        device.free.clear()
        device.pending.clear()
        device.base = None
    captures.add(None)  # no phase is measured any more


def begin_in_child():
    """Forget the parent's events in the child of a fork, without touching them: CUDA does not work there."""
    global _polled
    _forgotten.extend(_devices.values())
    _devices.clear()
    captures.clear()
    _written.clear()
    _polling[:] = [True]
    _polled = -1


def _add_device(index):
    if not _devices:
        journal.cover("probe/gpu_time")
    return _devices.setdefault(index, Device(index))


def _add_stream(device, key):
    known = device.streams
    if len(known) >= MAX_STREAMS:
        return api.make_stream(key), next(iter(known.values()))[1]
    track = journal.add_track("cuda/%d stream %d" % (device.index, len(known)))
    return known.setdefault(key, (api.make_stream(key), track))


def _ask_events():
    """Query the oldest events of each device until one is not done; write those that are."""
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
    """Write when the events of a pair were reached, the last one not after ``reached``, and free the pair."""
    if device.base is None:
        # A new event for the pair: its events are recorded again.
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
    """Return how far the host was ahead of the GPU, in microseconds, cut to their bits."""
    return min(max(0, behind) // 1000, MAX_LEAD_US)


def _write_fact(key, value):
    if value and _written.get(key) != value:
        _written[key] = value
        journal.fact(key, value)
