"""One NVTX range around some steps, by which Nsight Systems begins and ends its capture.

``perfwrap run --nsys`` puts ``BEFORE:STEPS`` into the environment: how many ends of an optimizer's step come before
the range, at least one, and how many it lasts. It begins and ends once in each process, in the thread that the first
of them came from. In the nvtx package's own domain a range cannot come between the program's; torch's NVTX has none,
so there it is a range of the process, which stands in no thread's stack.
"""

from __future__ import annotations

import os
from _thread import get_ident

from perfwrap_recorder import guard, journal, ranges

VARIABLE = "PERFWRAP_NVTX_WINDOW"
NAME = "perfwrap_window"


def counting(torch, pop):
    """Return ``pop`` as it is or, where a window is wanted, one that counts the ends of steps."""
    before, _, steps = os.environ.get(VARIABLE, "").partition(":")
    if pop is None or not (before.isdigit() and steps.isdigit() and int(steps)):
        return pop
    begin, end = _find(torch)
    learn = guard.protect("nvtx_window", _Window(int(before), int(steps), begin, end).learn)

    def counted_pop():
        pop()
        learn()

    return counted_pop


def _find(torch):
    """Return begin() -> a handle, and end(handle)."""
    nvtx = ranges.find_package()
    if nvtx is None:
        return (lambda: torch.cuda.nvtx.range_start(NAME)), torch.cuda.nvtx.range_end
    return (lambda: nvtx.push_range(NAME, domain=ranges.DOMAIN)), (
        lambda _: nvtx.pop_range(domain=ranges.DOMAIN)
    )


class _Window:
    """How many steps have ended, and the range when it is open."""

    def __init__(self, before, steps, begin, end):
        self.first = max(1, before)  # Only an end of a step can begin it.
        self.last = self.first + steps
        self.begin, self.end = begin, end
        self.count, self.thread, self.handle = 0, 0, None

    def learn(self):
        """Take in that a step has ended."""
        if not self.thread:
            self.thread = get_ident()
        if self.thread != get_ident() or self.count >= self.last:
            return
        self.count += 1
        if self.count == self.first:
            self.handle = self.begin()
            journal.mark("nvtx_window", "begin")
        elif self.count == self.last:
            self.end(self.handle)
            journal.mark("nvtx_window", "end")
