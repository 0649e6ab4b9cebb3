"""Opens, forks, ends and detaches the journal of this process, and finds room for its records."""

from __future__ import annotations

import atexit
import os
from _thread import get_ident
from itertools import count
from time import sleep

from perfwrap_recorder import signal_handlers
from perfwrap_recorder.clock import now, read_pair
from perfwrap_recorder.journal import journal, paused_detail, switching, thinning
from perfwrap_recorder.journal.journal_file import JournalFile, affordable
from perfwrap_recorder.journal.texts import JOURNAL, SILENT
from perfwrap_recorder.journal.thinning import Thinning
from perfwrap_recorder.journal_format import (
    CLOCK,
    COVERAGE,
    END,
    END_SLOT,
    FIRST_SLOT,
    FORMAT,
    HEADER,
    LAST_CLOCK_SLOT,
    SHIFT,
    SILENT_SLOT,
)

NO_SLOT = 1 << 62
"""Beyond every limit: the child of a fork claims slots from here on while it has no file."""

_making = []  # one token for the thread that makes the file of the child of a fork
_maker = 0  # the thread that has taken it
_pid = 0


def open_current(given):
    """Open the journal of this process. Raises OSError if there can be none: then nothing is written."""
    journal.settings = given
    journal.settings.budget_bytes = affordable(given.budget_bytes)
    # Half of what is allowed: a probe whose detail is paused costs something, too.
    thinning.cost_share = getattr(given, "max_overhead", 2 * thinning.cost_share) / 2
    _make(given.budget_bytes)
    atexit.register(_end)


def open_again(given):
    """Begin another journal after perfwrap was detached, with the facts and coverage from before."""
    journal.summing, journal.sums = False, {}
    switching.reset()
    journal.threads.clear()
    open_current(given)
    journal.is_detached = False
    for (kind, name), (duration, words) in list(journal.lasting.items()):
        journal.write_lasting(kind, name, duration, words)


def begin_in_child():
    """Forget the parent's journal, in the child of a fork; the child's file is made with its first record."""
    global _maker
    if journal.open_file is None:
        return
    journal.limit = 0
    journal.state = count(NO_SLOT).__next__, journal.state[1]
    journal.summing, journal.sums = False, {}
    paused_detail.end()
    switching.reset()
    journal.open_file, journal.unmade[:], _making[:], _maker = None, [True], [True], 0
    switching.waits_left = switching.MAX_WAITS
    journal.threads.clear()
    journal.thread_indices = count(1).__next__
    for reset in journal.after_fork:
        reset()


def reduce_budget(share):
    """Use at most one part in ``share`` of the budget from now on."""
    journal.plan = Thinning(_slots(journal.settings.budget_bytes // share), journal.next_slot(), now())
    journal.limit = 0  # the next record works it out


def detach():
    """Close the journal before the program has ended: it and its children write nothing from now on."""
    _end()
    journal.open_file, journal.limit, journal.is_detached = None, 0, True
    journal.unmade.clear()


def find_room(claim, slot):
    """Return memory and slot for a record whose slot was at the limit; (None, -1) if the record is lost."""
    if slot >= NO_SLOT:  # claimed before the file was made, by this thread or another
        if journal.unmade:
            _make_in_child()
        claim, memory = journal.state
        slot = claim()
        if slot < journal.limit:
            return memory, slot
    if journal.open_file is None or claim is not journal.state[0]:
        return None, -1
    if slot >= journal.plan.slots:
        journal.lose_record()
        return None, -1
    if journal.plan.is_stage_over(slot) and not journal.summing:
        switching.end_detail_now()
    try:
        while journal.open_file.allocated_bytes >> SHIFT <= slot:
            journal.open_file.grow(slot + 1 << SHIFT)
        journal.limit = _next_limit()
    except (OSError, AttributeError) as error:  # AttributeError: another thread ended the journal meanwhile
        if signal_handlers.raised(error):
            raise  # for example a TimeoutError, which is an OSError
        _end_record()
        return None, -1
    return journal.state[1], slot


def _slots(size):
    return max(FIRST_SLOT, size >> SHIFT)


def _make(budget):
    """Make the file and point the state to it."""
    global _pid
    settings = journal.settings
    file = JournalFile(settings.run_dir + "/journal", settings.host, _slots(budget) << SHIFT)
    moment, wall = read_pair()
    HEADER.pack_into(file.memory, 0, b"perfwrap", FORMAT, os.getpid(), moment, wall)
    _pid, journal.clock_due = os.getpid(), moment + journal.CLOCK_INTERVAL_NS
    journal.often_due = moment
    journal.due = moment
    journal.plan = Thinning(_slots(budget), FIRST_SLOT, moment)
    journal.open_file = file
    journal.state = count(FIRST_SLOT).__next__, file.memory
    journal.limit = _next_limit()
    journal.unmade.clear()
    for value, number in journal.text_numbers.copy().items():  # a garbage collection may add one meanwhile
        journal.write_text(value, number)


def _make_in_child():
    """Make the file of the child of a fork, or wait until another thread has made it."""
    global _maker
    try:
        _making.pop()
    except IndexError:
        while journal.unmade and _maker != get_ident() and switching.waits_left > 0:
            switching.waits_left -= 1
            sleep(switching.WAIT_S)
        return
    _maker = get_ident()
    try:
        _make(journal.settings.budget_bytes)
    except OSError:
        journal.unmade.clear()
        _end_record()
        return
    finally:
        if journal.unmade:  # a signal handler of the program raised: the next record makes it
            _making[:], _maker = [True], 0
    for say in journal.when_made:
        say()


def _end_record():
    """End the journal, and write that it ends here: otherwise the process would seem killed or idle."""
    file = journal.open_file
    if file is not None:
        opened, now_ns = HEADER.unpack_from(file.memory)[3], now()
        numbers = journal.text_numbers
        watched = opened, max(2, now_ns - opened), numbers[SILENT], numbers[JOURNAL], 0, COVERAGE
        journal.pack(file.memory, SILENT_SLOT << SHIFT, *watched)
        _close()
    journal.open_file, journal.limit = None, 0


def _next_limit():
    return min(
        journal.open_file.allocated_bytes >> SHIFT,
        journal.plan.slots,
        journal.plan.threshold,
        journal.plan.stop,
    )


def flush():
    """Write what was counted in paused detail, and pause no more: the process ends, too, and may step until then."""
    thinning.may_pause, journal.plan.cost_stride = False, 1
    if paused_detail.counting:
        switching.write_tallies()
        paused_detail.end()


def _end():
    """Close the journal, in the process that opened it and not in children of a fork."""
    if journal.open_file is not None and _pid == os.getpid():
        flush()
        _close()


def _close():
    moment, wall = read_pair()
    journal.write_in_place(LAST_CLOCK_SLOT, moment, wall, 0, CLOCK)
    journal.write_in_place(END_SLOT, moment, 0, 0, END)


journal.find_room = find_room
