"""The window: a few steps of the program under torch's own profiler, once, where nobody minds.

It begins and ends in the thread that trains, at ends of steps, when the steps have settled. What is taken stands
in ``tools/``; when, and why not, is a record of coverage, ``torch_profiler``. The beginning, the end and the export
are PERFWRAP spans. Until its end no probe turns to sums.

To end a recording takes some 3 us for each of its events, to export it 2 us more, and they take a kilobyte each
until then; a program makes up to a million events in a second. So a window that nobody asked for lasts a third of
a second or one step, and where that one takes longer than a second, it ends at the end of a phase.

There is no window where the program profiles itself, now or before, or another tool watches the GPU, and in
children of forks. It ends early when the program begins to profile or forks, and where a step does not end.

What the program marks with ``record_function`` while a recording is under way must not end in another one: torch
would write to memory that it has let go. Before another one begins, ours or the program's, such marks are ended.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from time import sleep

from perfwrap_recorder import guard, journal, journal_format, torch_profiler
from perfwrap_recorder.clock import now

WHAT = "torch_profiler"
"""What the records of coverage are about."""

AUTO, STEADY, WORST = "auto", "steady", "worst"
"""What may be asked for; AUTO is STEADY where the program uses a GPU, and nothing elsewhere."""

WARM_UP_STEPS = 10
"""Steps at the beginning that are never taken unless they are asked for."""

SETTLED = 1.5
"""Steps have settled when none of the last ones took so many times their median."""

LAST_STEPS = 5
"""Steps that say whether they have settled."""

PATIENT_STEPS = 200
"""From so many steps on the window comes though they have not settled."""

STEPS = 3
"""How many steps are taken unless others are asked for."""

WORST_STEPS = 100
"""How many steps are taken one by one to keep the slowest."""

SHORT_NS = 300_000_000
"""A window that nobody asked for has several steps where they are done in that time."""

LONG_NS = 1_000_000_000
"""After so long it ends with the next phase, if no step has."""

LONGEST_NS = 60_000_000_000
"""No window lasts longer."""

MOST_STOP_NS = 2_000_000_000
"""What took longer to end is not exported."""

NOT_NEEDED = "no GPU is used"
"""Why there is none that nobody asked for; nothing is said of it."""

NOT_EXPORTED = "could not be exported"

MOST_TRIES = 3
PATIENCE_S, WAITS = 0.001, 1000
"""How long, and how often, a thread that begins to profile waits for the window of another to end."""

is_wanted = None  # () -> why there must be no window in this process, "" where it may come, None: not yet
_plan = None
_open = None  # the recording under way
_thread = 0  # the thread that began it
_asked_to_end = ""  # why another thread wants it to end
_forgotten = []  # in the child of a fork: what must not be let go, since that would end it
_had_recording = []  # whether there was a recording since marks were last ended
_lost = False  # a profiler of the program's has taken over in another thread


class Plan:
    """What was asked for, and how far it has come."""

    def __init__(self, asked, details=(), all_ranks=False):
        length, _, first = asked.partition("@")
        self.kind = {AUTO: STEADY, STEADY: STEADY, WORST: WORST}.get(asked, "steps")
        self.length = STEPS if self.kind == STEADY else 1 if self.kind == WORST else int(length)
        self.first = int(first) if first else WARM_UP_STEPS
        """So many steps come before the window."""
        self.details = details
        self.waits = self.kind != "steps" and not all_ranks
        """Whether the window waits for steps that have settled; several ranks must take the same ones."""
        self.rounds_left = WORST_STEPS
        self.tries_left = MOST_TRIES
        self.retry_at = 0
        self.last = [0, 0]  # how many steps had ended, and when
        self.times = []
        self.left = 0
        self.opened = self.deadline = self.since = 0
        self.steps = 0
        self.in_backward = False
        """Whether steps end inside of a backward pass."""
        self.slowest_ns, self.slowest = 0, ""
        """Of WORST: how long the slowest step took, and what was kept of it."""

    def learn(self, count, moment):
        """Take in that a step has ended."""
        if count == self.last[0] + 1 and self.last[1]:
            self.times = [*self.times[1 - LAST_STEPS :], moment - self.last[1]]
        self.last = [count, moment]

    def is_due(self, count):
        """Say whether the next step is the first to be taken."""
        if count < max(self.first, self.retry_at):
            return False
        if not self.waits or count >= PATIENT_STEPS:
            return True
        middle = sorted(self.times)[len(self.times) // 2] if self.times else 0
        return len(self.times) == LAST_STEPS and self.step_ns <= SETTLED * middle

    @property
    def step_ns(self):
        """The longest of the last steps."""
        return max(self.times, default=0)


def begin(asked, details, all_ranks, may_come):
    """Take a window when the time has come; ``may_come`` as ``is_wanted``."""
    global _plan, is_wanted
    _plan, is_wanted = Plan(asked, details, all_ranks), may_come
    journal.at_step_end = guard.protect("window", _step_ended)


def is_open():
    """Say whether a window is under way."""
    return _open is not None


def give_way():
    """End the window, and have none later: the program begins to profile itself."""
    reason = "the program profiles itself"
    if _open is None:
        _give_up(reason)
    elif _can_end():
        _end(False)
        _give_up(reason)
    elif get_ident() != _thread:
        _wait_for_end(reason)
    _end_marks()


def _can_end():
    """Say whether a recording is under way that this thread began, and that can be ended here."""
    is_ours = _open is not None and get_ident() == _thread
    if _lost and torch_profiler.is_enabled_elsewhere():
        return False
    return is_ours and torch_profiler.is_enabled() and not torch_profiler.is_in_backward()


def _end_marks():
    """End the marks that began while a recording was under way, of which there may be some."""
    if _had_recording:
        _had_recording.clear()
        torch_profiler.end_marks()


def end_before_fork():
    """End the window in a thread that is about to fork: what is under way would go on in the child."""
    if _can_end():
        _end_early("the program forked")


def forget():
    """Have no window in the child of a fork."""
    global _plan, _open, _thread
    if _open is not None:
        _forgotten.append(_open)
    _plan, _open, _thread = None, None, 0
    journal.at_step_end = None


def end_with_program():
    """End the window at the end of the program, or say that none came."""
    if _can_end():
        _plan.tries_left = 0
        _end_early("the program ended")
    elif _plan is not None and _plan.slowest:
        _finish(_plan.slowest)
    elif _plan is not None and (_plan.last[0] or _plan.in_backward):
        early = "the program ended after %d steps, before the window" % _plan.last[0]
        inside = "the program's optimizers step inside of the backward pass"
        _give_up(is_wanted() or (inside if _plan.in_backward else early))


def _step_ended(moment, is_step):
    """Take in the end of a step, or of another phase, and say whether detail must go on."""
    if torch_profiler.is_in_backward():
        if is_step and _plan is not None:
            _plan.in_backward = True
        return _is_under_way()
    if _open is not None:
        if get_ident() == _thread and (_lost or torch_profiler.is_enabled()):
            _go_on(moment, is_step)
        return True  # also at its end: sums begin with a step that is as usual
    if not is_step or _plan is None:
        return False
    count = journal.count_steps()
    _plan.learn(count, moment)
    if not journal.summing and _plan.is_due(count) and _may_begin():
        _plan.opened = _plan.opened or now()
        _start(
            _plan.length if _plan.kind != STEADY else max(1, min(STEPS, SHORT_NS // max(1, _plan.step_ns)))
        )
    return _is_under_way()


def _is_under_way():
    return _plan is not None and _plan.opened > 0


def _may_begin():
    """Say whether the window may begin; where it never may, that is said."""
    reason = is_wanted()
    if reason is None:
        return False
    if not reason and (torch_profiler.is_enabled() or torch_profiler.is_enabled_elsewhere()):
        reason = "the program profiles itself"
    if not reason and "stack" in _plan.details and (sys.getprofile() or sys.gettrace()):
        reason = "another tool traces the program's Python"
    if reason:
        _give_up(reason)
    return not reason


def _start(steps):
    """Begin a recording of so many steps, at the end of a step."""
    global _open, _thread, _asked_to_end
    _asked_to_end = ""
    began = now()
    _end_marks()
    _had_recording.append(True)
    recording = torch_profiler.Recording(_plan.details)
    recording.start()
    _open, _thread = recording, get_ident()
    _plan.left, _plan.steps = steps, 0
    _plan.since = now()
    longest = LONG_NS if _plan.kind == STEADY else LONGEST_NS
    _plan.deadline = _plan.since + min(longest, 10 * LONG_NS + 10 * steps * _plan.step_ns)
    guard.run("window_ranks", recording.tell_ranks)
    _mark_step()
    _note("window start", began)


def _mark_step():
    # Guarded by itself: whatever becomes of the marks, the recording must come to its end.
    guard.run("window_marks", _open.mark_step, journal.count_steps() + 1)


def _go_on(moment, is_step):
    """Take in the end of a step or phase inside of the window."""
    if _lost:
        _end_lost()
    elif _asked_to_end:
        _end(False)
        _give_up(_asked_to_end)
    elif is_step:
        _plan.steps += 1
        _plan.left -= 1
        if _plan.left > 0:
            _mark_step()
        elif _plan.kind == WORST:
            _end_round(moment)
        else:
            _keep(_end(True))
    if _open is not None and moment > _plan.deadline:
        _end_early("a step did not end")


def _end_round(moment):
    """End one of the rounds, and keep its step where none before was slower."""
    duration, count = moment - _plan.since, journal.count_steps()
    recording = _end(True)
    _plan.rounds_left -= 1
    if duration > _plan.slowest_ns:
        _plan.slowest_ns = duration
        # At once: a recording must not be exported after another has begun.
        _plan.slowest = "step %d: %s" % (count, _export(recording) or NOT_EXPORTED)
    recording.results = None
    # The next one not before the next step: what C++ has begun to mark around this end must not end in it.
    _plan.waits = False
    if _plan.rounds_left <= 0 or now() - _plan.opened > LONGEST_NS:
        _finish(_plan.slowest)


def _end_early(reason):
    """End the recording before it has its steps: those that it has are kept, or it is tried again."""
    # Of steps that long a part tells as much as there is room for.
    has_steps = _plan.steps > 0 or (_plan.kind == STEADY and _plan.step_ns > LONG_NS // 2)
    recording = _end(has_steps)
    if _plan.slowest:
        _finish(_plan.slowest)
    elif has_steps:
        _keep(recording)
    elif _plan.tries_left > 1:
        _plan.tries_left -= 1
        _plan.retry_at, _plan.times = journal.count_steps() + WARM_UP_STEPS, []
        _cover("taken up again later: " + reason)
        _plan.opened = 0
    else:
        _give_up(reason)


def _end(wanted):
    """End the recording that is under way, and return it."""
    global _open, _thread
    began = now()
    recording, _open, _thread = _open, None, 0
    if _lost:
        recording.take_back()
    recording.stop(wanted)
    _note("window stop", began)
    return recording


def _keep(recording):
    """Export a recording, unless that would take too long; then all is done."""
    steps, last = _plan.steps, journal.count_steps()
    which = "steps %d to %d" % (last - steps + 1, last) if steps > 1 else "step %d" % last
    if not steps:
        which = "a part of step %d" % (last + 1)
    is_too_much = recording.stop_ns > MOST_STOP_NS
    note = "not exported, it holds too much" if is_too_much else _export(recording) or NOT_EXPORTED
    recording.results = None
    _finish(which + ": " + note)


def _finish(note):
    """Say what was taken, after which nothing more is."""
    _cover(note)
    forget()


def _export(recording):
    """Write the file and return its name, relative to the run folder; "" when it cannot be written."""
    began = now()
    name = "window-%s-%d.json" % (journal.settings.host, os.getpid())
    if not recording.export(journal.settings.run_dir + "/tools", name):
        return ""
    _note("window export", began)
    return "tools/" + name


def _give_up(reason):
    """Say why there is no window, once."""
    if reason == NOT_NEEDED:
        forget()
    if _plan is not None:
        if _plan.opened:
            _cover("no window: " + reason)
        else:
            journal.put(
                now(), 1, journal.text("no window: " + reason), journal.text(WHAT), 0, journal_format.COVERAGE
            )
        forget()


def _cover(note):
    """Say from when to now steps were not what they are otherwise."""
    opened, moment = _plan.opened, now()
    journal.put(opened, moment - opened, journal.text(note), journal.text(WHAT), 0, journal_format.COVERAGE)
    journal.forgive(moment - opened)


def _note(name, began):
    journal.record(began, now() - began, 0, journal.text(name), journal_format.PERFWRAP)


def _wait_for_end(reason):
    """Have the window's own thread end it, for a while."""
    global _asked_to_end, _lost
    _asked_to_end = reason
    for _ in range(WAITS):
        if _open is None:
            return
        sleep(PATIENCE_S)
    _lost = True


def _end_lost():
    """End what another thread's profiler has taken the place of, when that one has ended."""
    if not torch_profiler.is_enabled_elsewhere():
        _end(False)
        _give_up(_asked_to_end)
