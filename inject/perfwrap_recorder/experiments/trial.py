"""Ends the process after enough steady steps, and skips its writes meanwhile.

A step ends as in the journal: when an optimizer has stepped, or in a program without an optimizer of torch after a
backward pass. A process without either never ends itself. After the warm-up come ``trial_steps`` steps, fewer if the
median is known well enough before, more until they took ``trial_seconds``; the ranks of a job all make the same number.

The process ends at the end of a step, when no collective is running: by the KeyboardInterrupt of a Ctrl-C, raised here
rather than sent, so that a signal handler of the program cannot delay it. A rank of torchrun ends by SystemExit, with
status 0, since torchrun would restart a failed one. If another thread than the main thread makes the steps, the main
thread is interrupted. If the program catches the exception and goes on, it is raised again at the end of each step.

Facts: ``trial/end`` (``enough steps``, ``precise``, ``loop ended``), ``trial/first_step`` and ``trial/last_step``, the
numbers of the measured steps, from 1; ``trial/begin_ns`` and ``trial/end_ns``, when the first began and the last
ended; ``trial/loss``, of the last backward pass, read at the very end; ``trial/skipped_writes``; ``trial/left_by``.
``loader/1/epoch_batches``: see ``_write_epoch``.

Replaces ``Optimizer.__init__``, only to notice that there is one, and what skipped_writes.py and backward_calls.py say.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from _thread import get_ident, interrupt_main
from time import sleep

from perfwrap_recorder import guard, journal_format, on_import, roles, static_access
from perfwrap_recorder.experiments import backward_calls, skipped_writes, step_values
from perfwrap_recorder.instrumenting import wrapping
from perfwrap_recorder.journal import journal, step_ends
from perfwrap_recorder.probes.data_loading import data_loader

AUTO = "auto"
ENOUGH, PRECISE, LOOP_ENDED = "enough steps", "precise", "loop ended"

WARM_UP_STEPS = 10
"""The first steps, which never count as steady."""
RANKS_WARM_UP_STEPS = 20
"""The same for several ranks, which must agree without communication."""
MAX_WARM_UP_STEPS = 100
"""After this many steps, steps are measured even if their times are not steady."""
LAST_STEPS, STEADY_FACTOR = 5, 1.5
"""Steps are steady if none of the last LAST_STEPS took more than STEADY_FACTOR times their median."""

MOST_STEPS = 5_000
"""More steps are not made to fill ``trial_seconds``."""

MIN_STEPS = 20
"""With fewer steps the median does not count as precise."""
NORMAL_95 = 1.96
"""The 97.5 % quantile of the normal distribution."""

GLOO_ENDS_S = 0.2
"""How long a rank waits before it ends: in PyTorch 2.13 a thread of gloo that frees its last reduction while Python
exits aborts the process."""

_trial = None


class Trial:
    """The progress of the steps: ``learn`` is called at each end of a step."""

    def __init__(self, steps, warm_up=AUTO, precision=0.0, has_others=False, seconds=0.0):
        self.steps = steps
        self.warm_up = warm_up
        self.precision = precision
        self.least_ns = seconds * 1e9
        self.has_others = False
        if has_others:
            self.expect_others()
        self.end = ""
        """Why there are enough steps: ENOUGH or PRECISE; "" while there are not."""
        self.is_over = False
        """Whether they also took long enough."""
        self.forget()

    def expect_others(self):
        """Measure the same number of steps as the other ranks."""
        self.has_others = True
        self.precision = self.least_ns = 0.0

    def forget(self):
        """Start again: the events counted so far were not the ends of steps."""
        self.count = 0
        self.moments = []
        self.first = None
        """The number of the first measured step."""

    def learn(self, count, moment):
        """Count the end of the step of that number; return whether it is the last one."""
        if self.is_over:
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
        elif self.precision and measured >= MIN_STEPS and measured % LAST_STEPS == 0 and self._is_precise():
            self.end = PRECISE
        is_long = moment - self.moments[0] >= self.least_ns or measured >= MOST_STEPS
        self.is_over = bool(self.end) and is_long
        return self.is_over

    def _is_warm(self):
        if self.warm_up != AUTO:
            return self.count >= int(self.warm_up)
        if self.has_others:
            return self.count >= RANKS_WARM_UP_STEPS
        if self.count < WARM_UP_STEPS:
            return False
        last = sorted(differences(self.moments[-LAST_STEPS - 1 :]))
        return self.count >= MAX_WARM_UP_STEPS or last[-1] <= STEADY_FACTOR * last[len(last) // 2]

    def _is_precise(self):
        low, high, median = median_interval(differences(self.moments))
        return high - low <= self.precision * median


def differences(moments):
    """Return the differences between neighbouring moments."""
    return [after - before for before, after in zip(moments, moments[1:])]  # noqa: B905 - Python 3.8


def median_interval(values):
    """Return the 95 % confidence interval of the median and the median itself.

    By order statistics, with the normal approximation of the binomial distribution: Conover, Practical Nonparametric
    Statistics, 3.2. The values are assumed to be independent.
    """
    values = sorted(values)
    half = NORMAL_95 * len(values) ** 0.5 / 2
    low = max(0, int(len(values) / 2 - half))
    high = min(len(values) - 1, int(len(values) / 2 + half))
    return values[low], values[high], values[len(values) // 2]


class Ending:
    """The state of the trial of this process, besides the steps."""

    has_optimizer = False
    skipped = 0
    reports = 0
    """1 after there were enough steps, 2 after the last one."""
    by = ""


def prepare(settings):
    """Get ready, before torch is imported."""
    global _trial
    _trial = _make(settings)
    if settings.trial_values:
        guard.run("seed", step_values.prepare, int(settings.trial_values), settings.trial_perturbation)
    on_import.after("torch", guard.protect("trial", _install))


def _make(settings):
    world_size = roles.find_ranks(os.environ)[2] or "1"
    return Trial(
        settings.trial_steps,
        settings.trial_warm_up,
        settings.trial_precision,
        world_size.strip() != "1",
        settings.trial_seconds,
    )


def _install(torch):
    backward_calls.install(torch)
    wrapping.patch(torch, torch.optim.Optimizer, "__init__", _make_init, over=True)
    if journal.settings.trial_writes != "allow":
        skipped_writes.install(torch, _count_write)
    if journal.settings.trial_values:
        step_values.install(torch)
    data_loader.at_start = guard.protect("trial", _write_epoch)
    step_ends.watch("trial", lambda moment, is_step: _step_ended(torch, moment, is_step))
    journal.after_fork.add(_begin_in_child)
    atexit.register(guard.protect("trial", _end_with_program))


def _write_epoch(name, iterator):
    """Write the number of batches of an epoch; only trials ask for it, since the program's data set may be called."""
    sampler = static_access.own(iterator).get("_index_sampler")
    try:
        batches = len(sampler)
    except Exception:  # noqa: BLE001 - it has no length, or that of the data set raises
        return
    journal.fact(name + "/epoch_batches", batches)


def _make_init(original, _):
    def wrapper(*arguments, **options):
        Ending.has_optimizer = True
        return original(*arguments, **options)

    return wrapper


def _count_write(frame, name):
    Ending.skipped += 1
    journal.fact("trial/skipped_writes", Ending.skipped)


def _step_ended(torch, moment, is_step):
    """Count the end of a step, and end the process after the last one; detail always goes on."""
    if not is_step or _trial is None or not _may_end(journal.step_kind()):
        return True
    if journal.settings.trial_values:
        guard.run("trial_values", step_values.note, torch, journal.count_steps())
    _look_at_ranks(torch)
    is_last = _trial.learn(journal.count_steps(), moment)
    if _trial.end and not _must_wait():
        if Ending.reports < 1 + is_last:
            Ending.reports = 1 + is_last
            guard.run("trial_facts", _report, _trial.end, journal.count_steps())
        if is_last:
            _end_process()
    return True


def _may_end(kind):
    """Return whether steps of that kind are training steps: not batches, nor forwards, which may be evaluation."""
    return kind == journal_format.OPTIMIZER or (kind == journal_format.BACKWARD and not Ending.has_optimizer)


def _must_wait():
    """Return whether dataflow windows are still to come; ranks all end after the same step."""
    if _trial.has_others:
        return False
    windows = sys.modules.get("perfwrap_recorder.dataflow.operation_windows")
    return windows is not None and not windows.is_over()


def _look_at_ranks(torch):
    """Notice other ranks that no environment variable shows: they were spawned."""
    distributed = torch.distributed
    if not _trial.has_others and distributed.is_available() and distributed.is_initialized():
        if distributed.get_world_size() > 1:
            _trial.expect_others()


def _report(end, last):
    journal.fact("trial/end", end)
    if _trial.first is not None and _trial.count >= _trial.first:
        journal.fact("trial/first_step", _trial.first)
        journal.fact("trial/last_step", last)
        journal.fact("trial/begin_ns", _trial.moments[0])
        journal.fact("trial/end_ns", _trial.moments[-1])
    journal.fact("trial/skipped_writes", Ending.skipped)
    changes = sys.modules.get("perfwrap_recorder.experiments.change")
    if changes:
        changes.report_results()
    guard.run("trial_loss", _report_loss)


def _report_loss():
    loss = backward_calls.read_loss()
    if loss is not None:
        journal.fact("trial/loss", repr(loss))


def _end_process():
    """End the program from this thread, at the end of a step."""
    if _trial is not None and _trial.has_others:
        sleep(GLOO_ENDS_S)
    if get_ident() != threading.main_thread().ident:
        if Ending.by:  # the main thread waits for this one
            raise SystemExit
        _report_way("interrupt_main")
        interrupt_main()
    elif "TORCHELASTIC_RUN_ID" in os.environ:
        _report_way("SystemExit")
        raise SystemExit(0)
    else:
        _report_way("KeyboardInterrupt")
        raise KeyboardInterrupt


def _report_way(way):
    if Ending.by != way:
        Ending.by = way
        journal.fact("trial/left_by", way)


def _end_with_program():
    if _trial is not None and Ending.reports < 2 and _trial.count:
        _report(_trial.end or LOOP_ENDED, _trial.count)


def _begin_in_child():
    """Start again in the child of a fork, unless it is a loader's worker, which makes no steps."""
    global _trial
    is_worker = roles.find_forked_role(roles.Role("main")).name == "worker"
    _trial = None if is_worker else _make(journal.settings)
    Ending.skipped, Ending.reports, Ending.by = 0, 0, ""
