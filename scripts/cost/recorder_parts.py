"""Measure the parts of the recorder's cost per step, within one process.

    perfwrap run --no-report -- python scripts/cost/recorder_parts.py 2048x256 250 6
    perfwrap run --no-report -- python scripts/cost/recorder_parts.py 48x256 400 128

The arguments are ROWSxWIDTH, rounds and steps, for the loop of overhead_loop.py. Each round runs the steps in each
state of the recorder, and without the recorder, in random order. One process is used because two equal processes differ
by more than the whole cost of longer steps. The cost of the monitors is not included. Prints the median of the
differences to the steps without recorder, its standard error, and its share of a step.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
from _thread import get_ident
from collections.abc import Callable

import torch
from overhead_loop import Training

try:
    from perfwrap_recorder.instrumenting import instrument, tensor_methods
    from perfwrap_recorder.journal import journal, paused_detail, switching
except ImportError:
    sys.exit(
        "Run it under perfwrap: perfwrap run --no-report -- python scripts/cost/recorder_parts.py 48x256 400 128"
    )

WARM_UP_STEPS = 700


class States:
    """The states of the recorder; each one lasts until another is chosen."""

    def __init__(self) -> None:
        journal.plan.ends_period = lambda *step: False  # it no longer changes the state by itself
        journal.plan.keep_rare = lambda: False
        switching._switch = lambda *turn: None
        self._codes = [
            (function, theirs, ours) for function, theirs, ours in instrument._instrumented.values()
        ]
        self._methods = {name: vars(torch.Tensor)[name] for name in tensor_methods._installed}

    def without(self) -> None:
        """The recorder is uninstalled."""
        for function, theirs, _ in self._codes:
            function.__code__ = theirs
        for name in self._methods:
            if name in vars(torch.Tensor):
                delattr(torch.Tensor, name)

    def _reinstall(self) -> None:
        for function, _, ours in self._codes:
            if function.__code__ is not ours:
                function.__code__ = ours
        for name, method in self._methods.items():
            if name not in vars(torch.Tensor):
                setattr(torch.Tensor, name, method)
        paused_detail.end()

    def passing(self) -> None:
        """Detail is paused: all probes let their calls pass, and only steps and waits are counted."""
        self._reinstall()
        journal.summing = True
        paused_detail.begin(get_ident(), but=journal.step_kind())
        paused_detail.ask_again(paused_detail.NEVER, lambda tally: paused_detail.NEVER)

    def without_methods(self) -> None:
        """Detail is paused, and the methods of tensors are not watched."""
        self.passing()
        for name in self._methods:
            delattr(torch.Tensor, name)

    def detail(self) -> None:
        """Everything is recorded."""
        self._reinstall()
        journal.summing = False


def main(size: str, rounds: int, steps: int) -> None:
    """Run and print."""
    training = Training(*map(int, size.split("x")))
    training.steps(WARM_UP_STEPS)
    states = States()
    arms: dict[str, Callable[[], None]] = {
        "without": states.without,
        "without again": states.without,
        "no methods": states.without_methods,
        "passing": states.passing,
        "detail": states.detail,
    }
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name in random.sample(list(arms), len(arms)):
            arms[name]()
            training.steps(max(2, steps // 8))
            times[name].append(training.steps(steps) / steps / 1e3)
    bare = statistics.median(times["without"])
    print(f"a step without: {bare:.1f} us")
    for name in list(arms)[1:]:
        more = sorted(mine - its for mine, its in zip(times[name], times["without"], strict=True))
        middle = statistics.median(more)
        # The standard error of a median is 1.25 times that of a mean; the deviation is from the quartiles.
        error = 1.25 * (more[3 * rounds // 4] - more[rounds // 4]) / 1.35 / rounds**0.5
        print(f"{name:>14}: {middle:+6.1f} us, +/- {error:.1f} ({middle / bare:+.2%})")
    sys.stdout.flush()
    os._exit(0)  # the recorder was modified, so skip its normal end


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
