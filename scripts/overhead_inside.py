"""What the recorder costs per step, taken apart within one process.

    perfwrap run --no-report -- python scripts/overhead_inside.py 2048x256 250 6
    perfwrap run --no-report -- python scripts/overhead_inside.py 48x256 400 128

The loop of scripts/overhead_loop.py, of so many rows and so wide, runs so many rounds. In each, in random order, it
takes so many steps in each of the states that the recorder knows, and without anything of it. That they share a
process takes away what two equal processes differ by, which is more than the whole cost of longer steps; what the
monitors cost beside it is not in it. Printed are the median of the differences to the steps without, its standard
error, and its share of a step.
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
from torch.utils.data.dataloader import _BaseDataLoaderIter

try:
    from perfwrap_recorder import journal, rest
except ImportError:
    sys.exit(
        "Run it under perfwrap: perfwrap run --no-report -- python scripts/overhead_inside.py 48x256 400 128"
    )

HOOKS = sys.modules["torch.optim.optimizer"]
TABLES = HOOKS._global_optimizer_pre_hooks, HOOKS._global_optimizer_post_hooks
SETTLED_STEPS = 700


class States:
    """The states of the recorder, each of which stays until another is chosen."""

    def __init__(self) -> None:
        journal._thinning.ends_stretch = lambda *step: False  # it chooses none by itself any more
        journal.begin_phase = lambda moment: None
        self._rest()
        rest.take_out()
        self._hooks = [dict(table) for table in TABLES]
        self._counter = _BaseDataLoaderIter.__next__
        names, cells = self._counter.__code__.co_freevars, self._counter.__closure__
        self._theirs = dict(zip(names, cells, strict=True))["call"].cell_contents

    def _rest(self) -> None:
        rest.end()
        journal.summing = True
        rest.begin(get_ident(), but=journal.step_kind())
        rest.ask_again(rest.NEVER, lambda tally: rest.NEVER)

    def _put_back(self) -> None:
        if _BaseDataLoaderIter.__next__ is self._theirs:
            _BaseDataLoaderIter.__next__ = self._counter
            for table, hooks in zip(TABLES, self._hooks, strict=True):
                table.update(hooks)
        rest.end()

    def without(self) -> None:
        """Nothing of the recorder stands anywhere."""
        self.counting()
        _BaseDataLoaderIter.__next__ = self._theirs
        for table in TABLES:
            table.clear()

    def counting(self) -> None:
        """Long rests: only what counts steps and waits stands."""
        self.passing()
        rest.take_out()

    def passing(self) -> None:
        """Rests of longer steps: all probes let their calls pass."""
        self._put_back()
        self._rest()

    def detail(self) -> None:
        """Everything is recorded."""
        self._put_back()
        journal.summing = False


def main(size: str, rounds: int, steps: int) -> None:
    """Run and print."""
    training = Training(*map(int, size.split("x")))
    training.steps(SETTLED_STEPS)
    states = States()
    arms: dict[str, Callable[[], None]] = {
        "without": states.without,
        "without again": states.without,
        "counting": states.counting,
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
        # Of a median: 1.25 times that of a mean, whose deviation the quartiles tell.
        error = 1.25 * (more[3 * rounds // 4] - more[rounds // 4]) / 1.35 / rounds**0.5
        print(f"{name:>14}: {middle:+6.1f} us, +/- {error:.1f} ({middle / bare:+.2%})")
    sys.stdout.flush()
    os._exit(0)  # the recorder was meddled with: it shall not end as if nothing were


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
