"""Ends the process once it has made enough steady steps, and holds back what it would write meanwhile.

A step ends as the journal says, where an optimizer has stepped; in a program that has no optimizer of torch's kind,
after a backward pass. A process without either never ends itself. After the warm-up come ``trial_steps`` steps, fewer
where the median is known well enough before; the ranks of a job all make the same number.

The process leaves at the end of a step, where no collective is under way: by the KeyboardInterrupt of a Ctrl-C, raised
here rather than sent, so that a handler of the program's own cannot put it off. A rank of torchrun's leaves by
SystemExit, with status 0, since torchrun would start a failed one again. Where the steps are made by another thread
than the main one, the main one is interrupted. A program that catches this and goes on is told so again at the end of
each step.

Facts: ``trial/end`` (``enough steps``, ``precise``, ``loop ended``), ``trial/first_step`` and ``trial/last_step``, the
numbers of the measured steps, from 1; ``trial/begin_ns`` and ``trial/end_ns``, where the first began and the last
ended; ``trial/loss``, of the last backward pass, read after all; ``trial/skipped_writes``; ``trial/left_by``.

Replaces ``Optimizer.__init__``, only to learn that there is one, and what ``held_writes`` and ``backward_calls`` say.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from _thread import get_ident, interrupt_main

from perfwrap_recorder import (
    backward_calls,
    guard,
    held_writes,
    journal,
    journal_format,
    on_import,
    roles,
    step_ends,
    wrapping,
)

AUTO = "auto"
ENOUGH, PRECISE, LOOP_ENDED = "enough steps", "precise", "loop ended"

WARM_UP_STEPS = 10
"""Steps at the beginning that are never taken for steady."""
RANKS_WARM_UP_STEPS = 20
"""So many where several ranks must agree without asking each other."""
PATIENT_STEPS = 100
"""From so many steps on they count though they have not settled."""
LAST_STEPS, SETTLED = 5, 1.5
"""Steps have settled when none of the last ones took so many times their median."""

LEAST_STEPS = 20
"""With fewer steps the median is not called precise."""
NORMAL_95 = 1.96
"""The 97.5 % quantile of the normal distribution."""

_trial = None


class Trial:
    """How far the steps have come: ``learn`` takes in each end of a step."""

    def __init__(self, steps, warm_up=AUTO, precision=0.0, has_others=False):
        self.steps = steps
        self.warm_up = warm_up
        self.precision = 0.0 if has_others else precision
        self.has_others = has_others
        self.end = ""
        """How it ended: ENOUGH or PRECISE; "" while it goes on."""
        self.forget()

    def forget(self):
        """Begin anew: what ended steps so far was not what ends steps."""
        self.count = 0
        self.moments = []
        self.first = None
        """The number of the first measured step."""

    def learn(self, count, moment):
        """Take in that the step of that number has ended; return whether that is enough now."""
        if self.end:
            return True
        if count <= self.count:
            self.forget()
        self.count = count
        self.moments.append(moment)
        if self.first is None:
            if self._is_warm():
                self.first = count + 1
                self.moments = [moment]
            return False
        measured = count - self.first + 1
        if measured >= self.steps:
            self.end = ENOUGH
        elif self.precision and measured >= LEAST_STEPS and measured % LAST_STEPS == 0 and self._is_precise():
            self.end = PRECISE
        return bool(self.end)

    def _is_warm(self):
        if self.warm_up != AUTO:
            return self.count >= int(self.warm_up)
        if self.has_others:
            return self.count >= RANKS_WARM_UP_STEPS
        if self.count < WARM_UP_STEPS:
            return False
        last = sorted(differences(self.moments[-LAST_STEPS - 1 :]))
        return self.count >= PATIENT_STEPS or last[-1] <= SETTLED * last[len(last) // 2]

    def _is_precise(self):
        low, high, median = median_interval(differences(self.moments))
        return high - low <= self.precision * median


def differences(moments):
    """Return the times between neighbouring moments."""
    return [after - before for before, after in zip(moments, moments[1:])]  # noqa: B905 - Python 3.8


def median_interval(values):
    """Return the 95 % confidence interval of the median and the median itself.

    By order statistics, with the normal approximation of the binomial distribution: Conover, Practical Nonparametric
    Statistics, 3.2. It takes the values for independent.
    """
    values = sorted(values)
    half = NORMAL_95 * len(values) ** 0.5 / 2
    low = max(0, int(len(values) / 2 - half))
    high = min(len(values) - 1, int(len(values) / 2 + half))
    return values[low], values[high], values[len(values) // 2]


class Leaving:
    """What this process knows of its trial beside the steps."""

    has_optimizer = False
    skipped = 0
    told = False
    by = ""


def prepare(settings):
    """Get ready, before torch is imported."""
    global _trial
    _trial = _make(settings)
    on_import.after("torch", guard.protect("trial", _install))


def _make(settings):
    world_size = roles.find_ranks(os.environ)[2] or "1"
    return Trial(
        settings.trial_steps, settings.trial_warm_up, settings.trial_precision, world_size.strip() != "1"
    )


def _install(torch):
    backward_calls.install(torch)
    wrapping.patch(torch, torch.optim.Optimizer, "__init__", _make_init, over=True)
    if journal.settings.trial_writes != "allow":
        held_writes.hold_back(torch, _count_write)
    step_ends.watch("trial", lambda moment, is_step: _step_ended(torch, moment, is_step))
    journal.after_fork.add(_begin_in_child)
    atexit.register(guard.protect("trial", _end_with_program))


def _make_init(original, _):
    def wrapper(*arguments, **options):
        Leaving.has_optimizer = True
        return original(*arguments, **options)

    return wrapper


def _count_write(frame, name):
    Leaving.skipped += 1
    journal.fact("trial/skipped_writes", Leaving.skipped)


def _step_ended(torch, moment, is_step):
    """Take in the end of a step, and leave when that was the last; detail always goes on."""
    if not is_step or _trial is None or not _may_end(journal.step_kind()):
        return True
    _look_at_ranks(torch)
    if _trial.learn(journal.count_steps(), moment):
        if not Leaving.told:
            Leaving.told = True
            guard.run("trial_facts", _tell, _trial.end, journal.count_steps())
        _leave()
    return True


def _may_end(kind):
    """Say whether steps of that kind are training steps: batches are not, and forwards may be an evaluation's."""
    return kind == journal_format.OPTIMIZER or (kind == journal_format.BACKWARD and not Leaving.has_optimizer)


def _look_at_ranks(torch):
    """Learn that there are other ranks where no variable says so: they were spawned."""
    distributed = torch.distributed
    if not _trial.has_others and distributed.is_available() and distributed.is_initialized():
        _trial.has_others = distributed.get_world_size() > 1
        _trial.precision = 0.0 if _trial.has_others else _trial.precision


def _tell(end, last):
    journal.fact("trial/end", end)
    if _trial.first is not None and _trial.count >= _trial.first:
        journal.fact("trial/first_step", _trial.first)
        journal.fact("trial/last_step", last)
        journal.fact("trial/begin_ns", _trial.moments[0])
        journal.fact("trial/end_ns", _trial.moments[-1])
    journal.fact("trial/skipped_writes", Leaving.skipped)
    changes = sys.modules.get("perfwrap_recorder.change")
    if changes:
        changes.settle()
    guard.run("trial_loss", _tell_loss)


def _tell_loss():
    loss = backward_calls.read_loss()
    if loss is not None:
        journal.fact("trial/loss", repr(loss))


def _leave():
    """Leave the program from this thread, at the end of a step."""
    if get_ident() != threading.main_thread().ident:
        if Leaving.by:  # the main thread waits for this one
            raise SystemExit
        _say_way("interrupt_main")
        interrupt_main()
    elif "TORCHELASTIC_RUN_ID" in os.environ:
        _say_way("SystemExit")
        raise SystemExit(0)
    else:
        _say_way("KeyboardInterrupt")
        raise KeyboardInterrupt


def _say_way(way):
    if Leaving.by != way:
        Leaving.by = way
        journal.fact("trial/left_by", way)


def _end_with_program():
    if _trial is not None and not Leaving.told and _trial.count:
        _tell(LOOP_ENDED, _trial.count)


def _begin_in_child():
    """Begin anew in the child of a fork, unless it is a loader's worker: that makes no steps."""
    global _trial
    is_worker = roles.find_forked_role(roles.Role("main")).name == "worker"
    _trial = None if is_worker else _make(journal.settings)
    Leaving.skipped, Leaving.told, Leaving.by = 0, False, ""
