"""Switches between periods with detail, periods with sums and paused detail, as ``thinning.py`` plans them."""

from __future__ import annotations

from _thread import get_ident
from time import sleep

from perfwrap_recorder.clock import now
from perfwrap_recorder.journal import journal, paused_detail
from perfwrap_recorder.journal.thinning import MAX_OTHER_ENDS
from perfwrap_recorder.journal_format import THIN

PAUSE_INTERVAL_NS = 100_000_000
PAUSE_STEPS = 128
"""What is counted in paused detail is written at least that often, in time and in steps."""
WAIT_S, MAX_WAITS = 0.001, 1_000
"""How long, and how often, a thread waits for another that makes a file or switches from detail to sums."""

waits_left = MAX_WAITS
_tokens = [True]  # one token: the thread that takes it switches from detail to sums or back
_switcher = 0  # the thread that has the token
_stepper = 0  # the thread whose step began the present sums
_looked = 0  # when paused detail was last looked at


def reset():
    """Forget which thread switches: another journal begins, or this is the child of a fork."""
    _tokens[:] = [True]


def exclude(duration):
    """Do not count a time that has passed, in detail or in paused detail: steps were not as usual."""
    global _looked
    journal.plan.exclude(duration)
    _looked += duration


def begin_phase(moment):
    """Begin another period if that helps: an iteration of a loader starts or has ended, so steps may change."""
    if journal.summing and get_ident() == _stepper:
        write_tallies()
        if journal.plan.may_end_early():
            _switch(moment, True)
        elif journal.plan.keep_rare():
            _begin_sums(moment, bool(paused_detail.counting))


def end_period(moment, was_summing):
    """End a period that has had its steps; full detail may follow full detail."""
    if journal.unmade:
        return  # the steps of the parent; this child has written nothing yet
    if not was_summing:
        slot = journal.next_slot()
        journal.plan.weigh(slot, moment)
        if journal.plan.is_too_expensive():
            _retire()
        if journal.plan.stride == 1:
            journal.plan.begin_detail(slot, moment)
            return
    _switch(moment, was_summing)


def _retire():
    """Switch off the next probe of those that may be switched off."""
    probe = paused_detail.switch_off_next()
    if probe:
        journal.uncover("probe/" + probe, "switched off: it costs more than --max-overhead allows")


def _switch(moment, was_summing):
    """Switch from detail to sums or back, unless another thread does so or has done so."""
    global _switcher
    try:
        _tokens.pop()
    except IndexError:
        return
    try:
        _switcher = get_ident()
        if journal.summing == was_summing:
            _switch_alone(moment)
    finally:
        _switcher = 0
        _tokens[:] = [True]


def end_detail_now():
    """End the detail, for which there is no room left.

    The thread that has begun to do so may be suspended while others fill the journal: they wait for it.
    """
    global waits_left
    _switch(now(), False)
    while not journal.summing and _switcher != get_ident() and waits_left > 0:
        waits_left -= 1
        sleep(WAIT_S)
        _switch(now(), False)
    if journal.summing:
        waits_left = MAX_WAITS


def _switch_alone(moment):
    if journal.summing:
        write_tallies()
        paused_detail.end()
        slot = journal.put(moment, 0, journal.plan.stride, 0, 0, THIN)
        journal.plan.begin_detail(slot if slot > 0 else journal.plan.slots, moment)
        journal.summing = False
    else:
        _begin_sums(moment, journal.plan.begin_sums())
        journal.summing = True
        journal.plan.stop = journal.plan.slots  # only now: until then other threads go on writing detail
    journal.limit = 0  # the next record works it out


def _begin_sums(moment, is_pause):
    """Begin new sums; if detail is paused, probes record little, and this thread counts its steps."""
    global _stepper, _looked
    _stepper, _looked = get_ident(), moment
    journal.sums = {journal.BEGIN: moment}
    journal.put(moment, 0, -1 if is_pause else 0, 0, 0, THIN)
    if is_pause:
        paused_detail.begin(_stepper, but=journal.plan.counts[0])
        paused_detail.ask_again(moment + PAUSE_INTERVAL_NS, _limit_of)


def _limit_of(tally):
    """Return how many spans of a tally may be counted before ``look_at_pause`` is called."""
    plan = journal.plan
    if (tally.kind, tally.which) != plan.counts:
        # Steps of another optimizer, perhaps of the next training, are written as often.
        return PAUSE_STEPS if tally.kind == plan.counts[0] else MAX_OTHER_ENDS
    least = PAUSE_STEPS // 8
    most = least if plan.seems_slower else max(least, plan.steps_in(PAUSE_INTERVAL_NS))
    return min(plan.left, most, PAUSE_STEPS)


def look_at_pause():
    """Write what was counted, and end the pause if it has had its steps or lasts too long."""
    global _looked
    moment, left = now(), journal.plan.left
    if moment >= journal.due:
        journal.tick(moment)
    is_over = write_tallies()
    if journal.summing and (is_over or journal.plan.is_slower(left, moment - _looked)):
        _switch(moment, True)
    else:
        paused_detail.ask_again(moment + PAUSE_INTERVAL_NS, _limit_of)
    _looked = moment


def write_tallies():
    """Write what was counted in paused detail so far; return whether the pause has had its steps."""
    thread = journal.threads.get(_stepper) or journal.add_thread()
    ends = {}
    for tally, many, duration in paused_detail.take():
        journal.add_to_sum(journal.sums, (tally.kind, journal.text(tally.name), thread), many, duration)
        ends[tally.kind, tally.which] = many
    if journal.plan.counts in ends:
        ends = {journal.plan.counts: ends[journal.plan.counts]}
    is_over = False
    for what, many in ends.items():
        is_over = journal.plan.ends_period(*what, many) or is_over
    return is_over


journal.end_period = end_period
