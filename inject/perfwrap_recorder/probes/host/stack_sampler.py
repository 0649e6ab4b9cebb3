"""Samples the stacks of the program's threads in a separate thread, only if requested.

It shows the lines of Python between the phases, if no other tool may read the process. Its samples are biased: it
needs the GIL, which a thread releases when it waits or enters torch, and otherwise every 5 ms.

- It samples the thread that started it and all threads with records in the journal.
- A sample is the user's innermost line and the innermost running phase, if any. Equal ones of two
  seconds share a record, which is updated in place: a kill takes nothing.
- The thread belongs to ``_thread``: ``threading`` does not know it, nothing waits for it, no trace function is
  called in it, and it takes no signals. No frame is kept. It ends, and is waited for, before Python does.
- In the child of a fork it starts again when the child's journal begins. A child that records nothing has none.

Python 3.12 and later warn about a fork while there are several threads, this one included.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock, get_ident, start_new_thread

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.clock import now
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import source_lines

PERIOD_NS = 2_000_000_000
"""Samples within this time share records."""

MIN_HZ, MAX_HZ = 0.1, 200.0

END_SECONDS = 5.0
"""Maximum time that the end of the program waits for a running sample."""

OPTIMIZER_FILE = "torch/optim/optimizer.py"
OPTIMIZER_CODE = "wrapper"
"""Torch's file and function in which every optimizer's step runs; it is not instrumented."""

_alarm = None  # a lock that is held while the thread must run
_ended = None  # a lock that the thread holds


def start(hertz):
    """Start to sample this thread and those that record something, ``hertz`` times a second."""
    global _alarm, _ended
    if _alarm is not None or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return
    # New locks for each thread: a fork may come while one is held.
    alarm, ended = allocate_lock(), allocate_lock()
    alarm.acquire()
    ended.acquire()
    _alarm, _ended = alarm, ended
    seconds = 1 / min(max(hertz, MIN_HZ), MAX_HZ)
    journal.cover("probe/sampler", "%g Hz" % (1 / seconds))
    start_new_thread(_run, (alarm, ended, seconds, get_ident()))


def stop():
    """End the thread, and wait until it has written its samples."""
    global _alarm
    if _alarm is not None:
        _alarm.release()
        _alarm = None
        _ended.acquire(True, END_SECONDS)


def forget():
    """Forget the parent's thread, in the child of a fork."""
    global _alarm, _ended
    _alarm = _ended = None


def _run(alarm, ended, seconds, starter):
    try:
        guard.run("sampler", _sample_until, alarm, seconds, starter)
    finally:
        ended.release()


def _sample_until(alarm, seconds, starter):
    """Sample until the alarm lock is released."""
    _take_no_signals()
    samples = Samples(starter)
    while not alarm.acquire(True, seconds):
        samples.take()
    samples.end_stretch()


def _take_no_signals():
    """Block all signals: threads of the program may wait for them."""
    import _signal  # Python's ``signal`` builds enums that are not needed here

    if hasattr(_signal, "pthread_sigmask"):
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())


class Samples:
    """The records of the present period."""

    def __init__(self, starter):
        self._starter = starter
        self._records = {}  # (thread, phase, line) -> [memory, offset, start, count, name, thread's index]
        self._since = now()
        self._spent = 0

    def take(self):
        """Sample each thread."""
        began = now()
        if began - self._since > PERIOD_NS:
            self.end_stretch()
        frames = sys._current_frames()
        for thread in (self._starter, *(each for each in list(journal.threads) if each != self._starter)):
            frame = frames.get(thread)
            found = None if frame is None else _phase_and_place(frame)
            if found is not None:
                self._count(began, thread, *found)
            frame = None
        frames.clear()
        self._spent += now() - began

    def end_stretch(self):
        """Write the cost of the samples, and begin new records."""
        if self._spent:
            journal.put(self._since, self._spent, 0, journal.text("sampler"), 0, journal_format.PERFWRAP)
        self._records.clear()
        self._since, self._spent = now(), 0

    def _count(self, moment, thread, phase, place):
        record = self._records.get((thread, phase, place))
        if record is None:
            index = journal.threads.get(thread)
            if index is None:
                index = journal.threads[thread] = journal.add_track(journal.thread_name(thread))
            name = journal.text(phase + source_lines.SEPARATOR + place)
            slot = journal.put(moment, 0, 1, name, index, journal_format.STACK)
            if slot >= 0:
                self._records[thread, phase, place] = [
                    journal.state[1],
                    slot << journal_format.SHIFT,
                    moment,
                    1,
                    name,
                    index,
                ]
            return
        record[3] += 1
        memory, offset, since, count, name, index = record
        journal.pack(memory, offset, since, moment - since, count, name, index, journal_format.STACK)


def _phase_and_place(frame):
    """Return the innermost phase, "" for none, and the user's innermost line; None if there is no line."""
    place = source_lines.find_place(frame)
    if not place:
        return None
    while frame is not None:
        code = frame.f_code
        phase = instrument.phases.get(id(code))
        if phase is None and code.co_name == OPTIMIZER_CODE and code.co_filename.endswith(OPTIMIZER_FILE):
            phase = "optimizer"
        if phase is not None:
            return phase, place
        frame = frame.f_back
    return "", place
