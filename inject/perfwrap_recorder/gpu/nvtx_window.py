"""One NVTX range around some steps, with which Nsight Systems starts and stops its capture.

``perfwrap run --nsys`` sets ``BEFORE:STEPS`` in the environment: the number of optimizer steps before the range, at
least one, and in it. The range begins and ends once in each process, in the thread that made the first step. With the
nvtx package it is in a domain of its own, apart from the program's ranges; torch's NVTX has no domains, so there it is
a range of the process, which is in no thread's stack.
"""

from __future__ import annotations

import os
from _thread import get_ident

from perfwrap_recorder import guard
from perfwrap_recorder.gpu import nvtx_ranges
from perfwrap_recorder.journal import journal

VARIABLE = "PERFWRAP_NVTX_WINDOW"
NAME = "perfwrap_window"


def counting(torch, pop):
    """Return ``pop`` or, if a window is wanted, a function that also counts the ends of steps."""
    before, _, steps = os.environ.get(VARIABLE, "").partition(":")
    if pop is None or not (before.isdecimal() and steps.isdecimal() and int(steps)):
        return pop
    begin, end = _find(torch)
    learn = guard.protect("nvtx_window", _Window(int(before), int(steps), begin, end).learn)

    def counted_pop():
        pop()
        learn()

    return counted_pop


def _find(torch):
    """Return begin() -> a handle, and end(handle)."""
    nvtx = nvtx_ranges.find_package()
    if nvtx is None:
        return (lambda: torch.cuda.nvtx.range_start(NAME)), torch.cuda.nvtx.range_end
    return (lambda: nvtx.push_range(NAME, domain=nvtx_ranges.DOMAIN)), (
        lambda _: nvtx.pop_range(domain=nvtx_ranges.DOMAIN)
    )


class _Window:
    """The number of ended steps, and the range while it is open."""

    def __init__(self, before, steps, begin, end):
        self.first = max(1, before)  # Only an end of a step can begin it.
        self.last = self.first + steps
        self.begin, self.end = begin, end
        self.count, self.thread, self.handle = 0, 0, None

    def learn(self):
        """Count the end of a step."""
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
