"""The journal: what a process has to say, in fixed-width records that outlive it.

This docstring is the specification of FORMAT 1.

One file per process, ``journal/<host>-<pid>-<start>-<sequence>.pwj``, little-endian, a multiple of 32
bytes long. Slot 0 is the header ``<8sIIqq``: the magic ``perfwrap``, FORMAT, pid, CLOCK_MONOTONIC and
CLOCK_REALTIME (ns) when the file was opened. Every other slot is one record ``<qqqIHH``::

    start      i64  CLOCK_MONOTONIC, ns
    duration   i64  ns, 0 for an instant
    value      i64  by kind (float64 bits for SAMPLE, NON_FINITE and QUEUE)
    name       u32  id of a text, 0 for none
    thread     u16  index given by a THREAD record; 0 is the process as a whole
    kind       u16  below; 0 marks a slot that was never finished and is skipped

``kind`` is the last field so that a record cut short by SIGKILL still reads 0. Slots are claimed with
``next(itertools.count())``, which is atomic under the GIL: there is no lock that a fork could leave held.
So the order of records is roughly that of time, no more. A few slots at the front are kept for END, the last
CLOCK and LOST records, which are written in place. The file grows by segments that are allocated for real
(``posix_fallocate``), because touching a sparse page on a full disk is SIGBUS. When a segment cannot be had
the journal goes silent and stays silent: a COVERAGE record of the text "journal" in one of those slots says why,
and CLOCK and END stand for that moment.

Texts. A TEXT record carries 24 bytes of UTF-8 in start, duration and value (zero-padded), ``name`` is the
text's id and ``thread`` the number of the piece. Pieces of one text may stand anywhere, also after its
first use; a text that did not fit its limit (4080 bytes) is cut there. When the table of texts is full, new
ones share the text ``(other)`` and a LOST record counts them.
A *label* is a text of up to five fields joined by U+001F: name, file, line, function, and, where an installed
library made the call on behalf of that line of the user's, the library's ``file:line``.
A *series* is a text of two such fields: entity (``host``, ``cpu/3``, ``process/1234``, ``gpu/0``, ``disk``,
``cgroup``) and metric, whose suffix is its unit.

Kinds 1 to 31 describe; 32 to 63 are spans; 64 and up are instants with a value. The bit 0x8000 turns a span
kind into a SUM: a stretch of thinned steps held ``value`` such spans of that name and thread, of ``duration``
ns together (inclusive of what they contain). ``start`` is that of the THIN record which began the stretch;
the stretch ends where the next THIN record begins another. A sum is written when the first of its spans ends
and then updated in place, so it survives SIGKILL too.

Cheap and bounded. Where detail would cost too much time, or when the journal's budget wears thin, stretches with
detail (some neighbouring steps) and stretches without take turns, and a THIN record begins each:

- ``value`` above 0: from ``start`` on spans stand in detail, as one step in so many does.
- ``value`` 0: spans are summed. That is for want of room: when half of the budget is used, and from then on
  whenever an eighth of what is left is used, detail is halved, and samples come half as often. So a run of any
  length fits.
- ``value`` -1: the probes rest. That is for steps so short that their records would cost more than a
  four-hundredth of them. Of the trainer's thread DATA is summed and OPTIMIZER is counted, without a line, and the
  duration of OPTIMIZER is left 0; ZERO_GRAD, SYNC, TRANSFER, GETITEM, COLLATE, IDLE, PIN, SCHEDULER, CLIP,
  COLLECTIVE, and FORWARD, BACKWARD and FETCH unless they end the steps, are not noted at all: detail alone tells of
  them. The other kinds are summed. A kill may lose a tenth of a second of it.

A call that may never return (waiting for a batch, a collective) stands, while it has not, as an OPEN record in one of
the slots at the front: that is how others see where a process hangs. When it returns, the slot is emptied again. While
probes rest there are none.

GPU spans are never summed: those of steps in detail are there, also where they were found later. Their times are
those of the GPU, on the host's clock; ``thread`` is an index whose THREAD record names a stream (``cuda/0 stream 0``)
and no thread. Above the 8 bits of the kind, value holds by how many microseconds the GPU came after the host at the
phase's beginning and, LEAD_BITS higher, at its end.

A step ends when one of the optimizers has stepped; in a program without, after a backward pass, an outermost module
call or before a batch; in a DataLoader's worker with each batch (FETCH). Sums and rests do not reach over the start
or the end of a loader's iteration, unless such turns are too many. Of the rarer kinds (DATA_END, LOADER_START, SAVE,
LOAD, IMPORT, COMPILE, NON_FINITE, and full collections of garbage) the first sixteen of a stretch without detail, or
the first 256 (in longer ones as many as a quarter of its steps) where there is room, stand there all the same;
further NON_FINITE instants are left out.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident, get_native_id
from itertools import count
from struct import Struct
from time import sleep

from perfwrap_recorder import handlers, rest, thinning
from perfwrap_recorder.clock import now, read_pair
from perfwrap_recorder.journal_file import JournalFile, affordable
from perfwrap_recorder.texts import JOURNAL, SILENT, Texts, pieces_of
from perfwrap_recorder.thinning import PATIENCE, Thinning

FORMAT = 1

# Records that describe.
TEXT, CLOCK, THREAD, FACT, MARK, SAMPLE, COVERAGE, LOST, THIN, END, OPEN = range(1, 12)
# CLOCK: start = monotonic, value = wall ns.       THREAD: thread = index, name = its name, value = native id.
# FACT: name = key, value = text id of the value.  MARK: name = what, value = text id of the detail or 0.
# SAMPLE: name = series, value = float64 bits.     COVERAGE: name = what is watched from start on, for
#   duration (0: to the journal's end; 1: it is not watched), value = text id of a note or 0.
# LOST: name = what, value = how many were lost.   THIN: value = stride, 0 for sums, -1 for a rest.
# END: an orderly end.                            OPEN: name = label of a call that goes on, value = its kind.

# Spans.
DATA = 33  # next(loader); name = label of the loader, value = batch size or -1
DATA_END = 34  # the next(loader) that ended the epoch
LOADER_START = 35  # making the loader's iterator, its workers included; value = num_workers
# (in a worker: from the start of its loop until it first asks for an order)
FORWARD = 36  # outermost module call; value = TRAINING | GRAD | INFERENCE
BACKWARD = 37
OPTIMIZER = 38  # optimizer.step(); name = label with "SGD#1" as its name, the number telling instances apart
SCALER_STEP = 39  # GradScaler.step(); where it skipped the optimizer value = 1 and the label's name ends in
# " skipped"; value = -1 where that cannot be told (a fused optimizer: the GPU decides)
ZERO_GRAD = 40
SYNC = 41  # a value comes to the host; name = label "Tensor.item", value = 1 when the tensor is on a GPU
SAVE = 42  # torch.save; value = bytes when known, else -1
LOAD = 43
GC = 44  # a collection; value = generation
PERFWRAP = 45  # the recorder's own work outside of the probes
IMPORT = 46  # the import of torch itself
TRANSFER = 47  # a tensor changes memory; name = label "Tensor.to", value = bytes or -1 << 8 | the bits below
FETCH = 48  # a worker (or, without workers, the loader) makes one batch; value = samples or -1
GETITEM = 49  # within it, all that makes samples: the calls of dataset[index]; value = how many
COLLATE = 50  # within it, the collate function; value = bytes of the tensors that it made or -1
IDLE = 51  # a worker waits for its next order
PIN = 52  # the loader's own thread copies a batch into pinned memory; value = bytes or -1
SCHEDULER = 53  # scheduler.step(), not those inside of another; name = label "StepLR.step"
CLIP = 54  # clip_grad_norm_ or clip_grad_value_; name = label with the function's name
COLLECTIVE = 55  # a call of torch.distributed's that the program makes itself; name = label "all_reduce", or
# "all_reduce async" when it only enqueues, both with " of group NAME" behind when not on all ranks; value = bytes of
# its largest argument or -1
COMPILE = 56  # torch.compile at work; name = label "compile" or "compile backward" at the first line of the function
# that is compiled, or at the line that called it; value = which compilation of that function, from 0
EMPTY_CACHE = 57  # torch.cuda.empty_cache, once CUDA is started; name = label "empty_cache"
GPU = (
    58  # a GPU's work on a phase, between two events; value = its kind | leads, see above; thread = a stream
)

# Instants with a value.
NON_FINITE = 64  # a NaN or infinity that the program read; name = label, value = float64 bits
QUEUE = 65  # name = a loader, at the start of its DATA span; how many batches were ready, and a half more
# where later batches came before the one that was next in order; in stretches with detail only
STACK = 66  # samples of a thread, from start on for duration; value = how many; name = label, as its name the phase

SUM = 0x8000
TRAINING, GRAD, INFERENCE = 1, 2, 4
TO_GPU, FROM_GPU, PINNED, NON_BLOCKING = 1, 2, 4, 8
# The first two together: between GPUs. PINNED: the host's side.
LEAD_BITS = 28

RARE = frozenset((DATA_END, LOADER_START, SAVE, LOAD, IMPORT, COMPILE, NON_FINITE))
FULL = 2
"""The generation of a full collection of garbage."""
RESTING = frozenset(
    (DATA, FORWARD, BACKWARD, OPTIMIZER, ZERO_GRAD, SYNC, TRANSFER, FETCH, GETITEM, COLLATE, IDLE, PIN)
    + (SCHEDULER, CLIP, COLLECTIVE)
)
"""The kinds that a rest is for."""
RETIRING = (
    ("zero_grad", (ZERO_GRAD,)),
    ("scheduler", (SCHEDULER,)),
    ("gradient_clipping", (CLIP,)),
    ("transfers", (TRANSFER,)),
    ("fetching", (GETITEM, COLLATE)),
    ("collectives", (COLLECTIVE,)),
    ("sync", (SYNC,)),
)
"""The probes that are switched off, in this order, where even the least detail costs more than it may, and their kinds:
those first that a diagnosis misses least. Without the others there would be no steps or no account of them."""

HEADER = Struct("<8sIIqq")
pack = Struct("<qqqIHH").pack_into
FLOAT, FLOAT_BITS = Struct("<d"), Struct("<q")
SHIFT = 5  # a slot is 32 bytes
END_SLOT, LAST_CLOCK_SLOT, LOST_RECORDS_SLOT, LOST_TEXTS_SLOT, SILENT_SLOT, FIRST_SLOT = 1, 2, 3, 4, 7, 8
OPEN_SLOTS = {DATA: 5, COLLECTIVE: 6}

BEGIN = None

CLOCK_INTERVAL_NS = 10_000_000_000
OFTEN_INTERVAL_NS = 100_000_000
REST_INTERVAL_NS = 100_000_000
REST_STEPS = 128
"""So long, and so many steps, may what a rest counts stay unwritten."""
PAUSE_S, PAUSES = 0.001, 100
"""How long a thread waits, and how often, until another that turns from detail to sums has done so."""
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
    if getattr(given, "sample_hz", 0) or getattr(given, "ptracer_pid", 0):
        rest.stay()  # the wrappers tell in stacks what is at work
    _make(given.budget_bytes)
    atexit.register(_end)


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


def instant(moment, value, name, kind):
    """Write an instant whose value is a float."""
    if not summing or _thinning.keep_rare():
        record(moment, 0, FLOAT_BITS.unpack(FLOAT.pack(value))[0], name, kind)


def record(start, duration, value, name, kind):
    """Write one record of this thread's, whether steps are thinned or not."""
    put(start, duration, value, name, threads.get(get_ident()) or _add_thread(), kind)


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
    put(now(), 0, text(str(value)), text(key), 0, FACT)


def mark(name, detail=""):
    """Say that something happened."""
    record(now(), 0, text(detail) if detail else 0, text(name), MARK)


def sample(entity, metric, value):
    """Write a value at this moment; the metric's suffix is its unit."""
    series = text(entity + "\x1f" + metric)
    put(now(), 0, FLOAT_BITS.unpack(FLOAT.pack(value))[0], series, 0, SAMPLE)


def cover(what, note=""):
    """Say that something is watched from now on."""
    put(now(), 0, text(note) if note else 0, text(what), 0, COVERAGE)


def uncover(what, note):
    """Say that something is not watched, and why not."""
    put(now(), 1, text(note), text(what), 0, COVERAGE)


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
    if moment >= due:
        _tick(moment)
    was_summing = summing
    is_over = _thinning.ends_stretch(kind, which)
    if at_step_end is not None and at_step_end(moment, (kind, which) == _thinning.counts):
        return  # steps are taken that must stand in detail
    if is_over:
        _end_stretch(moment, was_summing)


def count_steps():
    """Return how many steps have ended, those of rests included as far as they were written."""
    return _thinning.ended


def step_kind():
    """Return the kind of span that ends a step: OPTIMIZER, BACKWARD, FORWARD, DATA or FETCH; 0 before any has."""
    return _thinning.counts[0]


def forgive(duration):
    """Leave a time that has passed out of what the cost of detail is held against: steps were not as usual."""
    _thinning.forgive(duration)


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
    for probe, kinds in RETIRING:
        if not rest.retired.issuperset(kinds):
            rest.retire(kinds)
            uncover("probe/" + probe, "switched off, since it costs more than --max-overhead allows")
            return


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
        rest.begin(_stepper, RESTING - {_thinning.counts[0]})
        if _thinning.is_bare:
            rest.take_out()
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
    """Return the name of a thread; ``threading.current_thread()`` would add threads that it does not know."""
    known = getattr(sys.modules.get("threading"), "_active", {}).get(thread)
    return str(getattr(known, "_name", ""))


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
