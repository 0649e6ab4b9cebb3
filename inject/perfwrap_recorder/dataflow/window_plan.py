"""When the dataflow windows of a process open, and what state they are in."""

from __future__ import annotations

FIRST_STEPS, MAX_WAITED_STEPS = 12, 20
"""Steps before the first window, and how many more are waited for until step times are steady."""
RANKS_FIRST_STEPS = 20
"""The same for several ranks, which must agree without communication."""
GAP_STEPS = 20
"""Steps between the windows."""
LONG_NS = 20_000_000_000
"""After this time the second window opens, though there were fewer steps than that."""
LAST_STEPS, STEADY_FACTOR = 5, 1.6
"""Steps are steady if the last one took at most STEADY_FACTOR times the median of the last LAST_STEPS."""
BARE_STEPS = 10
"""Steps before a window whose durations are written."""
MAX_TRIES = 3


class Plan:
    """The windows of this process."""

    def __init__(self):
        self.tries_left = MAX_TRIES
        self.written = 0
        self.moments = []
        """When the last steps ended, without those of windows."""
        self.next_at = FIRST_STEPS
        self.kind = 0
        """The kind of span that ends a step."""
        self.closed = 0
        self.thread = 0
        """The first thread that has run a model or an optimizer."""
        self.watched = self.mode = None
        self.why = ""
        """Why the mode, which is still on the stack, watches nothing any more."""
        self.is_over = False

    @property
    def is_open(self):
        """Whether a window is open."""
        return self.mode is not None

    def learn(self, moment):
        """Note the end of a step outside of windows."""
        self.moments = [*self.moments[-BARE_STEPS:], moment]

    def durations(self):
        """Return the durations of the last steps."""
        return [after - before for before, after in zip(self.moments, self.moments[1:])]  # noqa: B905 - Python 3.8

    def is_due(self, count, moment, has_others):
        """Return whether the next step is the first of a window; the ranks of a job all take the same steps."""
        if has_others:
            return count >= max(self.next_at, RANKS_FIRST_STEPS)
        last = self.durations()[-LAST_STEPS:]
        is_late = self.written and moment - self.closed > LONG_NS and len(last) >= 2
        if count < self.next_at and not is_late:
            return False
        if len(last) < 2:
            return False
        return (
            last[-1] <= STEADY_FACTOR * sorted(last)[len(last) // 2]
            or count >= self.next_at + MAX_WAITED_STEPS
        )
