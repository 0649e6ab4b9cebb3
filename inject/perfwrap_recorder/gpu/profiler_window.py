"""The window: records a few steps of the program with torch's own profiler, once.

It begins and ends in the training thread, at ends of steps, when step times are steady. The trace is in ``tools/``;
a record of coverage, ``torch_profiler``, says when it was recorded, or why not. The start, the stop and the export
are PERFWRAP spans. Until its end no probe switches to sums.

Stopping a recording takes about 3 us per event, exporting it 2 us more, and an event takes a kilobyte until then; a
program makes up to a million events per second. So a window that the user did not ask for lasts a third of a second
or one step; if that step takes longer than a second, it ends at the end of a phase. A window of kernels records only
what the GPU does and the calls that launch it: no operation of the host, which makes most of the events and of the time
that a window adds. It lasts 20 steps or more.

There is no window if the program profiles itself, now or before, if another tool profiles the GPU, or in children of
fork. It ends early if the program starts to profile or forks, or if a step does not end.

A ``record_function`` that the program opens during a recording must not end in another one: torch would write to
freed memory. So such marks are ended before another recording begins, ours or the program's.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from time import sleep

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu import torch_profiler
from perfwrap_recorder.journal import journal, step_ends, switching

WHAT = "torch_profiler"
"""The name of its coverage records."""

AUTO, STEADY, WORST, KERNELS = "auto", "steady", "worst", "kernels"
"""The options; AUTO is STEADY if the program uses a GPU, and nothing otherwise."""

WARM_UP_STEPS = 10
"""The first steps, which are recorded only if requested."""

STEADY_FACTOR = 1.5
"""Steps are steady if none of the last LAST_STEPS took more than STEADY_FACTOR times their median."""

LAST_STEPS = 5
"""The steps that are compared."""

MAX_WAIT_STEPS = 200
"""After this many steps the window begins even if they are not steady."""

STEPS = 3
"""Steps in a window by default."""

KERNEL_STEPS, MAX_KERNEL_STEPS = 20, 200
"""Steps in a window of kernels: at least, and at most as many as take a second."""

WORST_STEPS = 100
"""Steps that are recorded one by one to keep the slowest."""

SHORT_NS = 300_000_000
"""By default a window has several steps only if they fit into this time."""

LONG_NS = 1_000_000_000
"""After this time it ends with the next phase, if no step has ended."""

MAX_NS = 60_000_000_000
"""Maximum duration of a window."""

MAX_STOP_NS = 2_000_000_000
"""A recording that took longer to stop is not exported."""

NOT_NEEDED = "no GPU is used"
"""Why there is no window by default; this is not written."""

NO_KERNELS = "no GPU is used whose kernels this PyTorch records"
"""Why there is no window of kernels."""

NOT_EXPORTED = "could not be exported"

MAX_TRIES = 3
WAIT_S, MAX_WAITS = 0.001, 1000
"""How long, and how often, a thread that begins to profile waits for the window of another to end."""

is_wanted = None  # () -> why there must be no window in this process, "" if it may begin, None: not yet
_plan = None
_open = None  # the recording under way
_thread = 0  # the thread that began it
_asked_to_end = ""  # why another thread wants it to end
_forgotten = []  # in the child of a fork: what must stay alive, since releasing it would stop it
_had_recording = []  # whether there was a recording since marks were last ended
_lost = False  # a profiler of the program has replaced it in another thread


class Plan:
    """The requested window, and its progress."""

    def __init__(self, asked, details=(), all_ranks=False):
        length, _, first = asked.partition("@")
        self.kind = {AUTO: STEADY, STEADY: STEADY, WORST: WORST, KERNELS: KERNELS}.get(asked, "steps")
        lengths = {STEADY: STEPS, WORST: 1, KERNELS: KERNEL_STEPS}
        self.length = lengths[self.kind] if self.kind in lengths else int(length)
        self.first = int(first) if first else WARM_UP_STEPS
        """Steps before the window."""
        self.details = details
        self.waits = self.kind != "steps" and not all_ranks
        """Whether the window waits for steady steps; several ranks must record the same ones."""
        self.rounds_left = WORST_STEPS
        self.tries_left = MAX_TRIES
        self.retry_at = 0
        self.last = [0, 0]  # how many steps had ended, and when
        self.times = []
        self.left = 0
        self.opened = self.deadline = self.since = 0
        self.steps = 0
        self.is_held = False
        """Whether it was due, but had to wait; detail goes on until then."""
        self.in_backward = False
        """Whether steps end during a backward pass."""
        self.slowest_ns, self.slowest = 0, ""
        """For WORST: the time of the slowest step, and its note."""

    def learn(self, count, moment):
        """Count the end of a step."""
        if count == self.last[0] + 1 and self.last[1]:
            self.times = [*self.times[1 - LAST_STEPS :], moment - self.last[1]]
        self.last = [count, moment]

    def is_due(self, count):
        """Return whether the next step is the first to be recorded."""
        if count < max(self.first, self.retry_at):
            return False
        if not self.waits or count >= MAX_WAIT_STEPS:
            return True
        middle = sorted(self.times)[len(self.times) // 2] if self.times else 0
        return len(self.times) == LAST_STEPS and self.step_ns <= STEADY_FACTOR * middle

    @property
    def step_ns(self):
        """The longest of the last steps."""
        return max(self.times, default=0)


def begin(asked, details, all_ranks, may_come):
    """Record a window when it is due; ``may_come`` as ``is_wanted``."""
    global _plan, is_wanted
    _plan, is_wanted = Plan(asked, details, all_ranks), may_come
    step_ends.watch("window", _step_ended)


def is_open():
    """Return whether a window is open."""
    return _open is not None


def give_way():
    """End the window, and record none later: the program starts to profile itself."""
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
    """Return whether a recording is open that this thread began and that can be ended here."""
    is_ours = _open is not None and get_ident() == _thread
    if _lost and torch_profiler.is_enabled_elsewhere():
        return False
    return is_ours and torch_profiler.is_enabled() and not torch_profiler.is_in_backward()


def _end_marks():
    """End the marks that may have begun during a recording."""
    if _had_recording:
        _had_recording.clear()
        torch_profiler.end_marks()


def end_before_fork():
    """End the window in a thread that is about to fork: it would go on in the child."""
    if _can_end():
        _end_early("the program forked")


def forget():
    """Forget the window in the child of a fork, or when it is done."""
    global _plan, _open, _thread
    if _open is not None:
        _forgotten.append(_open)
    _plan, _open, _thread = None, None, 0
    step_ends.unwatch("window")


def end_with_program():
    """End the window at the end of the program, or write that there was none."""
    if _can_end():
        _plan.tries_left = 0
        _end_early("the program ended")
    elif _plan is not None and _plan.slowest:
        _finish(_plan.slowest)
    elif _plan is not None and (_plan.last[0] or _plan.in_backward):
        early = "the program ended after %d steps, before the window" % _plan.last[0]
        if _plan.is_held:
            early = "the program ended before the first step of its optimizer"
        inside = "the program's optimizers step inside the backward pass"
        _give_up(is_wanted() or (inside if _plan.in_backward else early))


def _step_ended(moment, is_step):
    """Count the end of a step, or of another phase; return whether detail must go on."""
    if torch_profiler.is_in_backward():
        if is_step and _plan is not None:
            _plan.in_backward = True
        return _is_under_way()
    if _open is not None:
        if get_ident() == _thread and (_lost or torch_profiler.is_enabled()):
            _go_on(moment, is_step)
        return True  # also at its end: sums begin with a usual step
    if not is_step or _plan is None:
        return False
    count = journal.count_steps()
    _plan.learn(count, moment)
    if not journal.summing and _plan.is_due(count) and _may_begin():
        _plan.opened = _plan.opened or now()
        _start(_count_steps())
    return _is_under_way()


def _count_steps():
    """Return how many steps to record, given how long the last ones took."""
    step_ns = max(1, _plan.step_ns)
    if _plan.kind == STEADY:
        return max(1, min(STEPS, SHORT_NS // step_ns))
    if _plan.kind == KERNELS:
        return max(KERNEL_STEPS, min(MAX_KERNEL_STEPS, LONG_NS // step_ns))
    return _plan.length


def _is_under_way():
    return _plan is not None and (_plan.opened > 0 or _plan.is_held)


def _may_begin():
    """Return whether the window may begin; if it never may, write that."""
    reason = is_wanted()
    _plan.is_held = reason is None
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
    """Begin a recording of ``steps`` steps, at the end of a step."""
    global _open, _thread, _asked_to_end
    _asked_to_end = ""
    began = now()
    _end_marks()
    _had_recording.append(True)
    recording = torch_profiler.Recording(_plan.details, _plan.kind == KERNELS)
    recording.start()
    _open, _thread = recording, get_ident()
    _plan.left, _plan.steps = steps, 0
    _plan.since = now()
    longest = LONG_NS if _plan.kind == STEADY else MAX_NS
    _plan.deadline = _plan.since + min(longest, 10 * LONG_NS + 10 * steps * _plan.step_ns)
    guard.run("window_ranks", recording.add_rank)
    _mark_step()
    _note("window start", began)


def _mark_step():
    # Guarded by itself: even if marks fail, the recording must be stopped.
    guard.run("window_marks", _open.mark_step, journal.count_steps() + 1)


def _go_on(moment, is_step):
    """Count the end of a step or phase inside the window."""
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
    """End a round, and keep its step if it is the slowest so far."""
    duration, count = moment - _plan.since, journal.count_steps()
    is_last = _plan.rounds_left <= 1 or moment - _plan.opened > MAX_NS
    recording = _end(True, is_last)
    _plan.rounds_left -= 1
    if duration > _plan.slowest_ns:
        _plan.slowest_ns = duration
        # At once: a recording must not be exported after another has begun.
        _plan.slowest = "step %d: %s" % (count, _export(recording) or NOT_EXPORTED)
    recording.results = None
    # The next one begins a step later: marks that C++ has opened around this end must not end in it.
    _plan.waits = False
    if is_last:
        _finish(_plan.slowest)


def _end_early(reason):
    """End the recording before it has all steps: keep those that it has, or try again."""
    # Of such long steps a part is enough.
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


def _end(wanted, is_last=True):
    """Stop the open recording, and return it."""
    global _open, _thread
    began = now()
    recording, _open, _thread = _open, None, 0
    if _lost:
        recording.take_back()
    recording.stop(wanted, is_last)
    _note("window stop", began)
    return recording


def _keep(recording):
    """Export a recording, unless that would take too long, and finish."""
    steps, last = _plan.steps, journal.count_steps()
    which = "steps %d to %d" % (last - steps + 1, last) if steps > 1 else "step %d" % last
    if not steps:
        which = "a part of step %d" % (last + 1)
    is_too_much = recording.stop_ns > MAX_STOP_NS
    note = "not exported, it holds too much" if is_too_much else _export(recording) or NOT_EXPORTED
    recording.results = None
    _finish(which + ": " + note)


def _finish(note):
    """Write what was recorded; nothing more is recorded."""
    _cover(note)
    forget()


def _export(recording):
    """Write the file and return its name, relative to the run folder; "" if it cannot be written."""
    began = now()
    name = "window-%s-%d.json" % (journal.settings.host, os.getpid())
    if not recording.export(journal.settings.run_dir + "/tools", name):
        return ""
    _note("window export", began)
    return "tools/" + name


def _give_up(reason):
    """Write why there is no window, once."""
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
    """Write the time during which steps were not as usual."""
    opened, moment = _plan.opened, now()
    journal.put(opened, moment - opened, journal.text(note), journal.text(WHAT), 0, journal_format.COVERAGE)
    switching.exclude(moment - opened)


def _note(name, began):
    journal.record(began, now() - began, 0, journal.text(name), journal_format.PERFWRAP)


def _wait_for_end(reason):
    """Wait until the window's own thread ends it, for a limited time."""
    global _asked_to_end, _lost
    _asked_to_end = reason
    for _ in range(MAX_WAITS):
        if _open is None:
            return
        sleep(WAIT_S)
    _lost = True


def _end_lost():
    """End a recording that another thread's profiler has replaced, when that one has ended."""
    if not torch_profiler.is_enabled_elsewhere():
        _end(False)
        _give_up(_asked_to_end)
