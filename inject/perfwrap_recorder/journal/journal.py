"""The hot writes of the journal of this process, in the format of ``journal_format.py``.

A slot is claimed without a lock, so a fork or a signal may come at any moment. What is slow is elsewhere:
``switching.py`` switches between detail, sums and paused detail; ``lifecycle.py`` opens and closes the file. Both set
the state below, and put their functions in the place of ``end_period`` and ``find_room``.
"""

from __future__ import annotations

import sys
from _thread import get_ident, get_native_id
from itertools import count

from perfwrap_recorder import redaction, static_access
from perfwrap_recorder.clock import now, read_pair
from perfwrap_recorder.journal import paused_detail
from perfwrap_recorder.journal.texts import Texts, pieces_of
from perfwrap_recorder.journal.thinning import Thinning
from perfwrap_recorder.journal_format import (
    CLOCK,
    COMPILE,
    COVERAGE,
    DATA_END,
    FACT,
    FIRST_SLOT,
    FLOAT,
    FLOAT_BITS,
    GC,
    IMPORT,
    LAST_CLOCK_SLOT,
    LOAD,
    LOADER_START,
    LOST,
    LOST_RECORDS_SLOT,
    LOST_TEXTS_SLOT,
    MARK,
    NON_FINITE,
    OPEN,
    OPEN_SLOTS,
    PERFWRAP,
    RECORD,
    SAMPLE,
    SAVE,
    SHIFT,
    SUM,
    TEXT,
    THREAD,
)

RARE = frozenset((DATA_END, LOADER_START, SAVE, LOAD, IMPORT, COMPILE, NON_FINITE))
FULL = 2
"""The generation of a full garbage collection."""

pack = RECORD.pack_into

BEGIN = None

CLOCK_INTERVAL_NS = 10_000_000_000
OFTEN_INTERVAL_NS = 100_000_000
LONG_WORK_NS = 20_000
"""Longer work of a probe is written: otherwise it would count as the program's Python."""
LAST_THREAD = 0xFFFF
"""The index that all later threads share."""

# The state of the one journal of a process. The claim of a slot and the memory that the slot lies in are read as one
# tuple: a fork may come between any two operations (in a signal handler, say), and a slot of the parent must never be
# written into the child's memory.
state = count(FIRST_SLOT).__next__, None  # claims a slot, holds it
limit = 0  # the first slot that needs ``find_room``: no room, or a stage of thinning ends
summing = False  # whether spans are summed at present
threads = {}  # id of a thread -> index
sums = {}  # of this period: BEGIN -> its start, (kind, name, thread) -> [memory, offset, count, duration]
steps = 0  # how often a step may have ended
ended_kind = 0  # the kind of the span that ended then
due = 0  # when something is due at the end of a step
clock_due = 0  # when the next CLOCK is due
often_due = 0  # when the functions in ``often`` are due

after_fork = set()  # functions() that reset, in the child of a fork, what a probe knows about threads
when_made = []  # functions() that write who the child of a fork is, once it has a file
every_interval = set()  # functions() called at ends of steps, every ten seconds
often = set()  # functions() called at ends of steps, at most ten times a second, with less room less often
at_step_end = None  # function(moment, is_step), called at ends of steps and phases; true: detail must go on

settings = None  # the launcher's settings
is_detached = False  # whether nothing is written any more, because perfwrap was detached
lasting = {}  # (kind, name) -> (duration, words): facts and coverage, of a program that may be attached to again
open_file = None  # the JournalFile
unmade = []  # one token while the child of a fork has no file yet
plan = Thinning(0)
thread_indices = count(1).__next__
_texts = Texts()
_lost_records = 0

text_numbers = _texts.numbers


def find_room(claim, slot):
    """Return memory and slot for a record whose slot was at the limit, (None, -1) if the record is lost.

    ``lifecycle.py`` puts its function in this place.
    """
    return None, -1


def end_period(moment, was_summing):
    """End a period that has had its steps; ``switching.py`` puts its function in this place."""


def span(start, duration, value, name, kind):
    """Write a span, or add it to its sum where spans are summed."""
    if summing:
        _add_span(start, duration, value, name, kind)
        return
    claim, memory = state
    slot = claim()
    if slot >= limit:
        memory, slot = find_room(claim, slot)
        if memory is None:
            return
    thread = threads.get(get_ident()) or add_thread()
    pack(memory, slot << SHIFT, start, duration, value, name, thread, kind)


def rare_span(start, duration, value, name, kind):
    """Write a span of a rare kind, also where spans are summed, unless there is little room."""
    if not summing or plan.keep_rare():
        record(start, duration, value, name, kind)
    else:
        _add_span(start, duration, value, name, kind)


def instant(moment, value, name, kind):
    """Write an instant whose value is a float."""
    if not summing or plan.keep_rare():
        record(moment, 0, FLOAT_BITS.unpack(FLOAT.pack(value))[0], name, kind)


def record(start, duration, value, name, kind):
    """Write one record of this thread, also where spans are summed."""
    put(start, duration, value, name, threads.get(get_ident()) or add_thread(), kind)


def own_work(since):
    """Write the work of a probe since the end of an event if it took long; shorter work is estimated later."""
    duration = now() - since
    if duration > LONG_WORK_NS:
        span(since, duration, 0, text("probes"), PERFWRAP)


def put(start, duration, value, name, thread, kind):
    """Write one record as it is, and return its slot; -1 if it was lost."""
    claim, memory = state
    slot = claim()
    if slot >= limit:
        memory, slot = find_room(claim, slot)
        if memory is None:
            return -1
    pack(memory, slot << SHIFT, start, duration, value, name, thread, kind)
    return slot


def text(value):
    """Return the id of a text; a new text is written first."""
    return text_numbers.get(value) or _add_text(value)


def fact(key, value):
    """Write a fact."""
    write_lasting(FACT, key, 0, redaction.masked(str(value)))


def mark(name, detail=""):
    """Write that something happened."""
    record(now(), 0, text(detail) if detail else 0, text(name), MARK)


def sample(entity, metric, value):
    """Write a value at this moment; the metric's suffix is its unit."""
    series = text(entity + "\x1f" + metric)
    put(now(), 0, FLOAT_BITS.unpack(FLOAT.pack(value))[0], series, 0, SAMPLE)


def cover(what, note=""):
    """Write that something is recorded from now on."""
    write_lasting(COVERAGE, what, 0, note)


def uncover(what, note):
    """Write that something is not recorded, and why."""
    write_lasting(COVERAGE, what, 1, note)


def write_lasting(kind, name, duration, words):
    """Write what holds until the end of the run; keep it if another journal may begin with it."""
    if getattr(settings, "watched", False):
        lasting[kind, name] = duration, words
    put(now(), duration, text(words) if words or kind == FACT else 0, text(name), 0, kind)


def open_call(start, name, kind):
    """Write that this thread is inside a call that may never return, until ``close_call``."""
    file = open_file
    if file is not None:
        thread = threads.get(get_ident()) or add_thread()
        pack(file.memory, OPEN_SLOTS[kind] << SHIFT, start, 0, kind, name, thread, OPEN)


def close_call(kind):
    """Write that the call has returned or raised."""
    file = open_file
    if file is not None:
        pack(file.memory, OPEN_SLOTS[kind] << SHIFT, 0, 0, 0, 0, 0, 0)


def end_step(kind, which, moment):
    """Count the possible end of a step: ``which`` optimizer, module or batch of that kind of span."""
    global steps, ended_kind
    steps += 1
    ended_kind = kind
    if paused_detail.throttled:
        paused_detail.end_throttle()
    if moment >= due:
        tick(moment)
    was_summing = summing
    is_over = plan.ends_period(kind, which)
    if at_step_end is not None and at_step_end(moment, (kind, which) == plan.counts):
        return  # these steps must be recorded in detail
    if is_over:
        end_period(moment, was_summing)


def is_alone():
    """Return whether only one thread has recorded anything so far."""
    return len(threads) < 2


def count_steps():
    """Return how many steps have ended, including those of paused detail as far as they were written."""
    return plan.ended


def step_kind():
    """Return the kind of span that ends a step: OPTIMIZER, BACKWARD, FORWARD, DATA or FETCH; 0 before any has."""
    return plan.counts[0]


def look_often(look):
    """Call ``look()`` at ends of steps, ten times a second or, with little room, less often; it must not raise."""
    global due, often_due
    often.add(look)
    due = often_due = 0


def next_slot():
    """Return the slot that the next record will get."""
    # "count(123)": any other way claims the slot or is gone in newer versions of Python.
    return int(repr(state[0].__self__)[6:-1])


def _add_span(start, duration, value, name, kind):
    if (kind in RARE or (kind == GC and value == FULL)) and plan.keep_rare():
        record(start, duration, value, name, kind)
        return
    add_to_sum(sums, (kind, name, threads.get(get_ident()) or add_thread()), 1, duration)


def add_to_sum(period, key, many, duration):
    """Add to a sum of a period; the record of the sum is updated at once."""
    total = period.get(key) or _begin_sum(period, key)
    if total:
        kind, name, thread = key
        total[2] += many
        total[3] += duration
        pack(total[0], total[1], period[BEGIN], total[3], total[2], name, thread, kind | SUM)


def _begin_sum(period, key):
    claim, memory = state
    slot = claim()
    if slot >= limit:
        memory, slot = find_room(claim, slot)
        if memory is None:
            return None
    total = period[key] = [memory, slot << SHIFT, 0, 0]
    return total


def _add_text(value):
    if not unmade and open_file is None:  # in this order: another thread may be making the file
        return 0
    number, new = _texts.add(value, plan.slots)
    if new:
        write_text(value, number)
    elif number == _texts.other:
        write_in_place(LOST_TEXTS_SLOT, now(), _texts.lost, text_numbers["texts"], LOST)
    return number


def write_text(value, number):
    """Write the records of a text."""
    for piece, numbers in enumerate(pieces_of(value)):
        put(*numbers, number, piece, TEXT)


def add_track(name, native_id=0):
    """Return an index for the field ``thread``: that of a thread, or of a stream of a GPU."""
    index = min(thread_indices(), LAST_THREAD)
    put(now(), 0, native_id, text(name), index, THREAD)
    return index


def add_thread(thread=None):
    """Return the index of a thread that has none yet: of this one, or of the one with that id."""
    is_other = thread not in (None, get_ident())
    thread = thread if is_other else get_ident()
    native_id = _known_of(thread).get("_native_id") or 0 if is_other else get_native_id()
    index = threads[thread] = add_track(thread_name(thread), native_id)
    return index


def thread_name(thread):
    """Return a thread's name, with secrets masked; ``threading.current_thread()`` would add unknown threads."""
    name = _known_of(thread).get("_name")
    return redaction.masked(name) if type(name) is str else ""


def _known_of(thread):
    known = getattr(sys.modules.get("threading"), "_active", {}).get(thread)
    return static_access.own(known)  # not by attribute: the class may be the program's


def tick(moment):
    """Call what is due every 0.1 s and every 10 s; with little room left, less is written.

    If the process is killed, the last clock says until when its sums are.
    """
    global due, clock_due, often_due
    monotonic, wall = read_pair()
    if moment >= often_due:
        often_due = moment + OFTEN_INTERVAL_NS * plan.room_stride
        write_in_place(LAST_CLOCK_SLOT, monotonic, wall, 0, CLOCK)
        for look in often:
            look()
    if moment >= clock_due:
        clock_due = moment + CLOCK_INTERVAL_NS
        if plan.room_stride == 1:
            put(monotonic, 0, wall, 0, 0, CLOCK)
        for look in every_interval:
            look()
    due = min(often_due, clock_due)


def lose_record():
    """Count a record for which there was no room."""
    global _lost_records
    _lost_records += 1
    write_in_place(LOST_RECORDS_SLOT, now(), _lost_records, text_numbers["records"], LOST)


def write_in_place(slot, moment, value, name, kind):
    """Write a record into one of the reserved slots."""
    file = open_file
    if file is not None:
        pack(file.memory, slot << SHIFT, moment, 0, value, name, 0, kind)
