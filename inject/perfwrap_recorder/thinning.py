"""Decides which steps a journal keeps in detail, so that a run of any length fits its budget.

The first half of the budget is for full detail. When it is used, and from then on whenever an eighth of what
is left is used, detail is halved: each such stage then covers 1.75 times as many steps as the one before.
Detail comes in blocks of neighbouring steps, since a reader may take another event for a step's end than we
do: three of a block's four steps are complete whatever it takes.
"""

from __future__ import annotations

BLOCK_STEPS = 4
"""Steps that stand in detail together."""

STAGE_SHARE = 8
"""One part in so many of what is left of the budget is what detail must last for until it is halved again."""

RARE_KEPT = 16
"""How many records of the rarer kinds stand in detail in a stretch that has no detail."""

PATIENCE = 1000
"""Ends of other steps to wait for one of the kind that counts before one of those counts instead."""


class Thinning:
    """The plan for one journal of so many slots."""

    def __init__(self, slots):
        self.slots = slots
        self.stride = 1
        """One step of so many is kept in detail."""
        self.threshold = slots // 2
        """The slot from which on detail is halved again."""
        self.stop = slots
        """The slot at which the present stretch of detail ends, though no step has."""
        self._counts = 0, None
        self._others = 0
        self._left = 0
        self._rare_left = 0

    def is_stage_over(self, slot):
        """Halve the detail where the slot asks for it, and say whether the present detail must end there.

        Full detail ends with its half of the budget, a stretch of detail only when it would take too much.
        """
        was_full = self.stride == 1
        while self.threshold <= slot and self.threshold < self.slots:
            self.stride *= 2
            self.threshold += max(1, (self.slots - self.threshold) // STAGE_SHARE)
        return slot >= self.stop or (was_full and self.stride > 1)

    def begin_detail(self, slot):
        """Plan a stretch of detail that starts at the slot."""
        self._left = BLOCK_STEPS
        self.stop = slot + max(BLOCK_STEPS, (self.slots - slot) // STAGE_SHARE)

    def begin_sums(self):
        """Plan a stretch without detail."""
        self._left = BLOCK_STEPS * (self.stride - 1)
        self._rare_left = RARE_KEPT
        self.stop = self.slots

    def keep_rare(self):
        """Say whether one more of the rarer kinds may stand in detail in this stretch without."""
        self._rare_left -= 1
        return self._rare_left >= 0

    def ends_stretch(self, what, which):
        """Count the end of a step and say whether the present stretch ends with it.

        ``what`` is OPTIMIZER, FORWARD or DATA, of which the greater number tells a step better, and ``which``
        tells apart several of that kind: only one optimizer of a GAN's two ends steps, say.
        """
        if not self._is_counted(what, which):
            return False
        self._left -= 1
        return self._left <= 0

    def _is_counted(self, what, which):
        if (what, which) == self._counts:
            self._others = 0
            return True
        self._others += 1
        if what <= self._counts[0] and self._others < PATIENCE:
            return False
        self._counts = what, which
        self._others = 0
        return True
