"""A GPU that only keeps time, in place of the device whose functions the recorder uses.

Work is queued and runs later than it is launched, stream by stream; events are reached when what was queued before
them is done; elapsed times are 32-bit floats of milliseconds on a clock that may run faster than the host's. To
wait for an event is an error.
"""

from __future__ import annotations

import struct
import time

LAUNCH_NS = 4_000
"""How long after its launch an idle GPU begins."""


class NotReady(RuntimeError):
    """An event was asked for its time before it was reached."""


class SimulatedGpu:
    """One device; ``clock`` is the host's, ``drift`` by which share its own runs faster."""

    kind = "cuda"
    is_chosen = False
    graphs = ()
    memory_stats = None

    def __init__(self, clock=time.monotonic_ns, drift=0.0, index=0):
        self.clock = clock
        self.drift = drift
        self.index = index
        self.stream = (0, index, 1)
        """The current stream, as torch's C functions name it."""
        self.free_at = {}
        self.calls = []
        """What was called of the API, in order."""
        self.initialized = True
        self.capturing = False
        self.failing = None
        """The name of a function that raises."""
        self.events = 0
        self.module = self

    def launch(self, duration):
        """Queue work on the current stream; return when it begins and ends, on the host's clock."""
        begin = max(self.clock() + LAUNCH_NS, self.free_at.get(self.stream, 0))
        self.free_at[self.stream] = begin + duration
        return begin, begin + duration

    def is_done(self):
        """Say whether nothing is left of what was queued on the current stream."""
        return self.clock() >= self.free_at.get(self.stream, 0)

    def called(self, name):
        """Note a call, and raise where it is to fail."""
        self.calls.append(name)
        if name == self.failing:
            raise RuntimeError("CUDA error: " + name)

    def make_event(self, enable_timing=False):
        assert enable_timing
        self.called("make_event")
        self.events += 1
        return Event(self)

    def record(self, event, stream):
        self.called("record")
        assert not self.capturing
        event.reached = max(self.clock() + LAUNCH_NS, self.free_at.get(stream, 0))

    def query(self, event):
        self.called("query")
        assert not self.capturing
        return self.clock() >= event.reached

    def elapsed_time(self, first, second):
        self.called("elapsed_time")
        if max(first.reached, second.reached) > self.clock():
            raise NotReady
        milliseconds = (second.reached - first.reached) * (1 + self.drift) / 1e6
        return struct.unpack("<f", struct.pack("<f", milliseconds))[0]

    def is_initialized(self):
        return self.initialized

    def is_capturing(self):
        return self.capturing

    def current_device(self):
        return self.index

    def current_stream(self, index):
        assert index == self.index
        return self.stream

    def make_stream(self, key):
        return key


class Event:
    """One event."""

    def __init__(self, gpu):
        self.gpu = gpu
        self.reached = None

    def synchronize(self):
        raise AssertionError("waits for the GPU")

    wait = synchronize


class HandClock:
    """A clock that a test moves on."""

    def __init__(self, now=10**12):
        self.now = now

    def __call__(self):
        self.now += 200  # as reading a clock takes time
        return self.now

    def pass_time(self, duration):
        """Let time pass."""
        self.now += duration
