"""The journal of this process: what it has to say, written in the format of ``journal_format.py``.

Slots are claimed without a lock, so a fork or a signal may come at any moment. Most of what follows is what keeps
the journal cheap and bounded: where detail costs too much, spans are summed, or the probes rest.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident, get_native_id
from itertools import count
from time import sleep

from perfwrap_recorder import handlers, plainly, redaction, rest, thinning
from perfwrap_recorder.clock import now, read_pair
from perfwrap_recorder.journal_file import JournalFile, affordable
from perfwrap_recorder.journal_format import (
    CLOCK,
    COMPILE,
    COVERAGE,
    DATA_END,
    END,
    END_SLOT,
    FACT,
    FIRST_SLOT,
    FLOAT,
    FLOAT_BITS,
    FORMAT,
    GC,
    HEADER,
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
    SILENT_SLOT,
    SUM,
    TEXT,
    THIN,
    THREAD,
)
from perfwrap_recorder.texts import JOURNAL, SILENT, Texts, pieces_of
from perfwrap_recorder.thinning import PATIENCE, Thinning

RARE = frozenset((DATA_END, LOADER_START, SAVE, LOAD, IMPORT, COMPILE, NON_FINITE))
FULL = 2
"""The generation of a full collection of garbage."""

pack = RECORD.pack_into

BEGIN = None

CLOCK_INTERVAL_NS = 10_000_000_000
OFTEN_INTERVAL_NS = 100_000_000
REST_INTERVAL_NS = 100_000_000
REST_STEPS = 128
"""So long, and so many steps, may what a rest counts stay unwritten."""
PAUSE_S, PAUSES = 0.001, 100
"""How long a thread waits, and how often, until another that turns from detail to sums has done so."""
LONG_WORK_NS = 20_000
"""From here on work of a probe's is written: otherwise it would pass for the program's Python."""
LAST_THREAD = 0xFFFF
"""The index that all threads beyond it share."""

# What follows is the state of the one journal that a process has. The claim of a slot and the memory that
# it lies in are taken as one: a fork may come between any two operations (in a signal handler, say), and a
# slot of the parent's must never be written into the child's memory.
state = count(FIRST_SLOT).__next__, None  # claims a slot, holds it
limit = 0  # the first slot that needs a closer look: no room, or a stage of thinning ends
summing = False  # whether spans are summed at present
threads = {}  # id of a thread -> index
sums = {}  # of this stretch: BEGIN -> its start, (kind, name, thread) -> [memory, offset, count, duration]
steps = 0  # how often a step may have ended
due = 0  # when there is something to do again at the end of a step
clock_due = 0  # when the next CLOCK is
often_due = 0  # when what looks often looks next

after_fork = set()  # functions() that put right, in the child of a fork, what a probe knows about threads
when_made = []  # functions() that say who a child of a fork is, once it has a file
every_interval = set()  # functions() that look at what may change while the program runs, every ten seconds
at_step_end = None  # function(moment, is_step), called at ends of steps and phases; true: detail must go on
often = (
    set()
)  # functions() that look at it at ends of steps, at most ten times a second, with less room rarer

settings = None  # what the launcher asked
has_left = False  # whether nothing is written any more because nobody watches
_told = {}  # (kind, name) -> (duration, words): facts and coverage, of a program that may be watched again
_file = None
_turns = [True]  # one token: who takes it turns from detail to sums or back
_turner = 0  # the thread that has the token
_pauses_left = PAUSES
_unmade = []  # one token while a child of a fork has no file yet: who takes it makes the file
_thinning = Thinning(0)
_pid = 0
_stepper = 0  # the thread whose step began the present sums
_looked = 0  # when a rest was last looked at
_texts = Texts()
_thread_indices = count(1).__next__
_lost_records = 0

text_numbers = _texts.numbers


def open_current(given):
    """Open the journal of this process; OSError when it cannot be had: then all below do nothing."""
    global settings
    settings = given
    settings.budget_bytes = affordable(given.budget_bytes)
    # Half of what is allowed: to pass by a probe that rests costs something, too.
    thinning.cost_share = getattr(given, "max_overhead", 2 * thinning.cost_share) / 2
    _make(given.budget_bytes)
    atexit.register(_end)


def open_again(given):
    """Begin another journal, where nobody had watched for a while, with what stands from before."""
    global summing, sums, has_left
    summing, sums = False, {}
    _turns[:] = [True]
    threads.clear()
    open_current(given)
    has_left = False
    for (kind, name), (duration, words) in list(_told.items()):
        _tell(kind, name, duration, words)


def begin_in_child():
    """Forget the parent's journal, in the child of a fork; its own is made when it first says something."""
    global state, limit, summing, sums, _file, _thread_indices
    if _file is None:
        return
    limit = 0
    state = count(FIRST_SLOT).__next__, state[1]
    summing, sums = False, {}
    rest.end()
    _turns[:] = [True]
    _file, _unmade[:] = None, [True]
    threads.clear()
    _thread_indices = count(1).__next__
    for reset in after_fork:
        reset()


def span(start, duration, value, name, kind):
    """Write a span, or add it to its sum while steps are thinned."""
    if summing:
        _add_to_sum(start, duration, value, name, kind)
        return
    claim, memory = state
    slot = claim()
    if slot >= limit:
        memory, slot = _find_room(claim, slot)
        if memory is None:
            return
    thread = threads.get(get_ident()) or _add_thread()
    pack(memory, slot << SHIFT, start, duration, value, name, thread, kind)


def rare_span(start, duration, value, name, kind):
    """Write a span of which there are few, also while steps are thinned, unless there is little room."""
    if not summing or _thinning.keep_rare():
        record(start, duration, value, name, kind)
    else:
        _add_to_sum(start, duration, value, name, kind)


def instant(moment, value, name, kind):
    """Write an instant whose value is a float."""
    if not summing or _thinning.keep_rare():
        record(moment, 0, FLOAT_BITS.unpack(FLOAT.pack(value))[0], name, kind)


def record(start, duration, value, name, kind):
    """Write one record of this thread's, whether steps are thinned or not."""
    put(start, duration, value, name, threads.get(get_ident()) or _add_thread(), kind)


def own_work(since):
    """Write what a probe has done since an event was over, where that took long; the rest is reckoned afterwards."""
    duration = now() - since
    if duration > LONG_WORK_NS:
        span(since, duration, 0, text("probes"), PERFWRAP)


def put(start, duration, value, name, thread, kind):
    """Write one record as it is, and return its slot; -1 when it was lost."""
    claim, memory = state
    slot = claim()
    if slot >= limit:
        memory, slot = _find_room(claim, slot)
        if memory is None:
            return -1
    pack(memory, slot << SHIFT, start, duration, value, name, thread, kind)
    return slot


def text(value):
    """Return the id of a text, written when it is new."""
    return text_numbers.get(value) or _add_text(value)


def fact(key, value):
    """Say something that was learned."""
    _tell(FACT, key, 0, redaction.masked(str(value)))


def mark(name, detail=""):
    """Say that something happened."""
    record(now(), 0, text(detail) if detail else 0, text(name), MARK)


def sample(entity, metric, value):
    """Write a value at this moment; the metric's suffix is its unit."""
    series = text(entity + "\x1f" + metric)
    put(now(), 0, FLOAT_BITS.unpack(FLOAT.pack(value))[0], series, 0, SAMPLE)


def cover(what, note=""):
    """Say that something is watched from now on."""
    _tell(COVERAGE, what, 0, note)


def uncover(what, note):
    """Say that something is not watched, and why not."""
    _tell(COVERAGE, what, 1, note)


def _tell(kind, name, duration, words):
    """Write what stands for all that follows, and keep it where another journal may begin with it."""
    if getattr(settings, "watched", False):
        _told[kind, name] = duration, words
    put(now(), duration, text(words) if words or kind == FACT else 0, text(name), 0, kind)


def open_call(start, name, kind):
    """Say that this thread is inside a call that may never return, until ``close_call``."""
    file = _file
    if file is not None:
        thread = threads.get(get_ident()) or _add_thread()
        pack(file.memory, OPEN_SLOTS[kind] << SHIFT, start, 0, kind, name, thread, OPEN)


def close_call(kind):
    """Say that the call has returned, or raised."""
    file = _file
    if file is not None:
        pack(file.memory, OPEN_SLOTS[kind] << SHIFT, 0, 0, 0, 0, 0, 0)


def end_step(kind, which, moment):
    """Say that a step may have ended: ``which`` optimizer, module or batch of that kind of span."""
    global steps
    steps += 1
    if rest.relieved:
        rest.end_relief()
    if moment >= due:
        _tick(moment)
    was_summing = summing
    is_over = _thinning.ends_stretch(kind, which)
    if at_step_end is not None and at_step_end(moment, (kind, which) == _thinning.counts):
        return  # steps are taken that must stand in detail
    if is_over:
        _end_stretch(moment, was_summing)


def is_alone():
    """Say whether only one thread has recorded anything so far."""
    return len(threads) < 2


def count_steps():
    """Return how many steps have ended, those of rests included as far as they were written."""
    return _thinning.ended


def step_kind():
    """Return the kind of span that ends a step: OPTIMIZER, BACKWARD, FORWARD, DATA or FETCH; 0 before any has."""
    return _thinning.counts[0]


def forgive(duration):
    """Leave a time that has passed out of account, in detail and in a rest: steps were not as usual."""
    global _looked
    _thinning.forgive(duration)
    _looked += duration


def look_often(look):
    """Have ``look()``, which must not raise, called at ends of steps, ten times a second or, with little room, less."""
    global due, often_due
    often.add(look)
    due = often_due = 0


def begin_phase(moment):
    """Say that what comes is something else than what came: an iteration of a loader starts or has ended."""
    if summing and get_ident() == _stepper:
        _write_tallies()
        if _thinning.may_end_early():
            _turn(moment, True)
        elif _thinning.keep_rare():
            _begin_sums(moment, bool(rest.counting))


def reduce_budget(share):
    """Keep to one part in ``share`` of the budget from now on."""
    global _thinning, limit
    _thinning = Thinning(_slots(settings.budget_bytes // share), _next_slot(), now())
    limit = 0  # whoever comes next works it out


def leave():
    """Say goodbye before the program has ended: nothing is written from now on, nor by what it forks."""
    global _file, limit, has_left
    _end()
    _file, limit, has_left = None, 0, True
    _unmade.clear()


def _slots(size):
    return max(FIRST_SLOT, size >> SHIFT)


def _make(budget):
    """Make the file and have the state point to it."""
    global state, limit, due, clock_due, often_due, _file, _thinning, _pid
    file = JournalFile(settings.run_dir + "/journal", settings.host, _slots(budget) << SHIFT)
    moment, wall = read_pair()
    HEADER.pack_into(file.memory, 0, b"perfwrap", FORMAT, os.getpid(), moment, wall)
    _pid, clock_due = os.getpid(), moment + CLOCK_INTERVAL_NS
    often_due = moment
    due = moment if often else clock_due
    _thinning = Thinning(_slots(budget), FIRST_SLOT, moment)
    _file = file
    state = count(FIRST_SLOT).__next__, file.memory
    limit = _next_limit()
    for value, number in text_numbers.copy().items():  # a collection of garbage may add one meanwhile
        _write_text(value, number)


def _make_in_child():
    """Make the file of a forked child; what another thread says meanwhile is lost."""
    try:
        _unmade.pop()
    except IndexError:
        return
    try:
        _make(settings.budget_bytes)
    except OSError:
        _fall_silent()
        return
    for say in when_made:
        say()


def _fall_silent():
    """Write nothing any more, but that nothing follows: it would read as a process that was killed, or was idle."""
    global limit, _file
    file = _file
    if file is not None:
        opened, now_ns = HEADER.unpack_from(file.memory)[3], now()
        watched = opened, max(2, now_ns - opened), text_numbers[SILENT], text_numbers[JOURNAL], 0, COVERAGE
        pack(file.memory, SILENT_SLOT << SHIFT, *watched)
        _say_goodbye()
    _file, limit = None, 0


def _next_slot():
    """Return the slot that the next record will get."""
    return int(
        repr(state[0].__self__)[6:-1]
    )  # "count(123)": all else claims it, or is gone in newer versions


def _next_limit():
    return min(_file.allocated_bytes >> SHIFT, _thinning.slots, _thinning.threshold, _thinning.stop)


def _find_room(claim, slot):
    """Return memory and slot for a record whose slot was at the limit; (None, -1) when the record is lost."""
    global limit
    if _unmade:
        _make_in_child()
        claim, memory = state
        slot = claim()
    if _file is None or claim is not state[0]:
        return None, -1
    if slot >= _thinning.slots:
        _lose_record()
        return None, -1
    if _thinning.is_stage_over(slot) and not summing:
        _turn_now()
    try:
        while _file.allocated_bytes >> SHIFT <= slot:
            _file.grow(slot + 1 << SHIFT)
        limit = _next_limit()
    except (OSError, AttributeError) as error:  # AttributeError: another thread fell silent meanwhile
        if handlers.raised(error):
            raise  # a TimeoutError, say, which is an OSError, too
        _fall_silent()
        return None, -1
    return state[1], slot


def _end_stretch(moment, was_summing):
    """End a stretch that has had its steps; what follows full detail may be the same again."""
    if not was_summing:
        slot = _next_slot()
        _thinning.weigh(slot, moment)
        if _thinning.is_too_dear():
            _retire()
        if _thinning.stride == 1:
            _thinning.begin_detail(slot, moment)
            return
    _turn(moment, was_summing)


def _retire():
    """Switch off the next probe that still notes something."""
    probe = rest.retire_next()
    if probe:
        uncover("probe/" + probe, "switched off, since it costs more than --max-overhead allows")


def _turn(moment, was_summing):
    """End a stretch with detail or one without, and begin the other, unless another thread does or has done so."""
    global _turner
    try:
        _turns.pop()
    except IndexError:
        return
    try:
        _turner = get_ident()
        if summing == was_summing:
            _turn_alone(moment)
    finally:
        _turner = 0
        _turns[:] = [True]


def _turn_now():
    """End the detail, for which there is no room any more.

    A thread that has begun to do so may be kept from going on for long, while others fill the journal: they wait.
    """
    global _pauses_left
    _turn(now(), False)
    while not summing and _turner != get_ident() and _pauses_left > 0:
        _pauses_left -= 1
        sleep(PAUSE_S)
        _turn(now(), False)
    if summing:
        _pauses_left = PAUSES


def _turn_alone(moment):
    global summing, limit
    if summing:
        _write_tallies()
        rest.end()
        slot = put(moment, 0, _thinning.stride, 0, 0, THIN)
        _thinning.begin_detail(slot if slot > 0 else _thinning.slots, moment)
        summing = False
    else:
        _begin_sums(moment, _thinning.begin_sums())
        summing = True
        _thinning.stop = _thinning.slots  # not before: until then the other threads go on with the detail
    limit = 0  # whoever comes next works it out


def _begin_sums(moment, is_rest):
    """Begin new sums; in a rest the probes leave most to the detail, and this thread counts its steps."""
    global sums, _stepper, _looked
    _stepper, _looked = get_ident(), moment
    sums = {BEGIN: moment}
    put(moment, 0, -1 if is_rest else 0, 0, 0, THIN)
    if is_rest:
        rest.begin(_stepper, but=_thinning.counts[0])
        rest.ask_again(moment + REST_INTERVAL_NS, _limit_of)


def _limit_of(tally):
    """Return how many spans of a tally may be counted before the journal wants to be asked."""
    if (tally.kind, tally.which) != _thinning.counts:
        return PATIENCE
    return min(_thinning.left, REST_STEPS // 8 if _thinning.seems_slower else REST_STEPS)


def look_at_rest():
    """Write what was counted, and end the rest where it has had its steps or lasts too long."""
    global _looked
    moment, left = now(), _thinning.left
    if moment >= due:
        _tick(moment)
    is_over = _write_tallies()
    if summing and (is_over or _thinning.is_slower(left, moment - _looked)):
        _turn(moment, True)
    else:
        rest.ask_again(moment + REST_INTERVAL_NS, _limit_of)
    _looked = moment


def _write_tallies():
    """Write what a rest has counted so far; say whether it has had its steps."""
    thread = threads.get(_stepper) or _add_thread()
    ends = {}
    for tally, many, duration in rest.take():
        _add(sums, (tally.kind, text(tally.name), thread), many, duration)
        ends[tally.kind, tally.which] = many
    if _thinning.counts in ends:
        ends = {_thinning.counts: ends[_thinning.counts]}
    is_over = False
    for what, many in ends.items():
        is_over = _thinning.ends_stretch(*what, many) or is_over
    return is_over


def _add_to_sum(start, duration, value, name, kind):
    if (kind in RARE or (kind == GC and value == FULL)) and _thinning.keep_rare():
        record(start, duration, value, name, kind)
        return
    _add(sums, (kind, name, threads.get(get_ident()) or _add_thread()), 1, duration)


def _add(stretch, key, many, duration):
    """Add to a sum of a stretch, which is written at once."""
    total = stretch.get(key) or _begin_sum(stretch, key)
    if total:
        kind, name, thread = key
        total[2] += many
        total[3] += duration
        pack(total[0], total[1], stretch[BEGIN], total[3], total[2], name, thread, kind | SUM)


def _begin_sum(stretch, key):
    claim, memory = state
    slot = claim()
    if slot >= limit:
        memory, slot = _find_room(claim, slot)
        if memory is None:
            return None
    total = stretch[key] = [memory, slot << SHIFT, 0, 0]
    return total


def _add_text(value):
    if _file is None and not _unmade:
        return 0
    number, new = _texts.add(value, _thinning.slots)
    if new:
        _write_text(value, number)
    elif number == _texts.other:
        _write_in_place(LOST_TEXTS_SLOT, now(), _texts.lost, text_numbers["texts"], LOST)
    return number


def _write_text(value, number):
    for piece, numbers in enumerate(pieces_of(value)):
        put(*numbers, number, piece, TEXT)


def add_track(name, native_id=0):
    """Return an index for the field ``thread``: that of a thread, or of a stream of a GPU."""
    index = min(_thread_indices(), LAST_THREAD)
    put(now(), 0, native_id, text(name), index, THREAD)
    return index


def _add_thread():
    thread = get_ident()
    index = threads[thread] = add_track(thread_name(thread), get_native_id())
    return index


def thread_name(thread):
    """Return a thread's name, its secrets masked; ``threading.current_thread()`` would add threads it does not know."""
    known = getattr(sys.modules.get("threading"), "_active", {}).get(thread)
    name = plainly.own(known).get("_name")  # not asked of the thread, whose class may be the program's
    return redaction.masked(name) if type(name) is str else ""


def _tick(moment):
    """Do what is to be done ten times a second, and what every ten seconds; with little room left less is written."""
    global due, clock_due, often_due
    if moment >= often_due:
        often_due = moment + OFTEN_INTERVAL_NS * _thinning.room_stride
        for look in often:
            look()
    if moment >= clock_due:
        clock_due = moment + CLOCK_INTERVAL_NS
        monotonic, wall = read_pair()
        if _thinning.room_stride == 1:
            put(monotonic, 0, wall, 0, 0, CLOCK)
        else:
            _write_in_place(LAST_CLOCK_SLOT, monotonic, wall, 0, CLOCK)
        for look in every_interval:
            look()
    due = min(often_due, clock_due) if often else clock_due


def _lose_record():
    global _lost_records
    _lost_records += 1
    _write_in_place(LOST_RECORDS_SLOT, now(), _lost_records, text_numbers["records"], LOST)


def _write_in_place(slot, moment, value, name, kind):
    """Write a record into one of the slots that are kept for it."""
    file = _file
    if file is not None:
        pack(file.memory, slot << SHIFT, moment, 0, value, name, 0, kind)


def _end():
    """Say goodbye, in the process that opened the journal and not in what it forked."""
    if _file is not None and _pid == os.getpid():
        if rest.counting:
            _write_tallies()
        _say_goodbye()


def _say_goodbye():
    moment, wall = read_pair()
    _write_in_place(LAST_CLOCK_SLOT, moment, wall, 0, CLOCK)
    _write_in_place(END_SLOT, moment, 0, 0, END)


current = sys.modules[__name__]
"""The journal as an object, for those who hold it as one."""
