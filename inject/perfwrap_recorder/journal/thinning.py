"""Decides which steps a journal keeps in detail, so that recording stays cheap and any run fits its budget.

Two limits reduce detail:

- *Cost.* After the first steps, and then at the end of each period with detail, the cost of the records is compared
  with the time of the steps. If it is above 1/400 of it, only one step in ``cost_stride`` is recorded in detail; for
  the others detail is paused. Paused detail costs something too, which can reduce the share of detail to half. If even
  one step in MAX_STRIDE costs too much, probes are switched off one after the other.
- *Room.* The first half of the budget is used as cost allows. When it is full, and then whenever an eighth of what is
  left is full, detail is halved: each such stage covers 1.75 times as many steps as the one before.

A period is a number of neighbouring steps, with detail or without. A reader may place the end of a step at another
event than the recorder: three of the four steps of a period with detail are complete either way.
"""

from __future__ import annotations

BLOCK_STEPS = 4
"""Steps of a period with detail, if room is the limit."""

PAUSE_BLOCK_STEPS = 16
"""Steps of a period with detail between two pauses: switching costs something too."""

FIRST_STEPS = 256
"""The first steps, all recorded in detail: short runs have no others."""

cost_share = 1 / 400
"""Maximum cost of records, as a share of the steps' time; --max-overhead sets another."""

MAX_STRIDE = 128
"""Maximum of ``cost_stride``."""

may_pause = True
"""Whether cost may reduce detail."""

COLD_NS, HOT_NS, COLD_PER_STEP = 20_000, 1_500, 10
"""Cost of a record: the first records of a step miss the CPU caches, which torch has filled, and evict its data.
Measured with steps of 0.4 and 0.9 ms and 9 records, alternating detail and paused detail: 180 to 210 us difference."""

DOUBT = 12
"""The cost of a record is known only to this factor; no probe is switched off because of a rough estimate."""

STAGE_SHARE = 8
"""Detail is halved again when one part in STAGE_SHARE of the remaining budget is used."""

RARE_KEPT = 16
"""Records of rare kinds that are written in a period without detail, if room is the limit."""

SLOWER = 4
"""A pause ends early if its steps take SLOWER times as long as the steps before it."""

RARE_KEPT_IN_PAUSE = 256
"""The same if there is room; in longer periods, one for every four steps."""

PASSING = 12
"""A paused step costs 1/PASSING of a step with detail: 14 of 196 us (0.5 ms steps), 18 of 199 us (1.3 ms steps)."""

PAUSED_STEP_NS = 18_000
"""Extra cost of a paused step, compared with a step without perfwrap."""

PART_OF_RUN = 8
"""A long pause may have 1/PART_OF_RUN of the steps so far."""

MAX_PAUSE_NS = 10_000_000_000
"""A long pause is planned for at most this time."""

MAX_OTHER_ENDS = 1000
"""After this many ends of other steps, another kind of step is counted."""


class Thinning:
    """The plan for one journal with ``slots`` slots."""

    def __init__(self, slots, slot=0, moment=0):
        self.slots = slots
        self.room_stride = 1
        self.cost_stride = 1
        """One step in this many is recorded in detail, because of room and because of cost."""
        self.threshold = slots // 2
        """The slot at which detail is halved again."""
        self.stop = slots
        """The slot at which the present period with detail ends, even within a step."""
        self.counts = 0, None
        """What ends a step: OPTIMIZER, BACKWARD, FORWARD or DATA, and which of them."""
        self.ended = 0
        """How many steps have ended."""
        self._others = 0
        self._planned = FIRST_STEPS
        self.left = FIRST_STEPS
        """Steps left in the present period."""
        self._rare_left = 0
        self._begun = slot, moment
        self._cost = None
        self._is_expensive = False
        """Whether even paused detail costs more than allowed."""
        self._step_ns = 0
        self.is_long = False
        """Whether the present pause is a long one, because even switching costs too much."""
        self.seems_slower = False
        """Whether the steps of the present pause took longer than those before it when last looked at."""

    @property
    def stride(self):
        """One step in this many is recorded in detail."""
        return max(self.room_stride, self.cost_stride)

    def is_stage_over(self, slot):
        """Halve detail if the slot is beyond the threshold; return whether the present period with detail must end.

        The first period ends with its half of the budget, others only when they would use too much.
        """
        had_room = self.room_stride == 1
        while self.threshold <= slot and self.threshold < self.slots:
            self.room_stride *= 2
            self.threshold += max(1, (self.slots - self.threshold) // STAGE_SHARE)
        if had_room and self.room_stride > 1:
            self.stop = slot
        return slot >= self.stop

    def begin_detail(self, slot, moment):
        """Plan a period with detail that starts at the slot."""
        self._planned = self.left = self._block_steps()
        self._begun = slot, moment
        room = max(BLOCK_STEPS, (self.slots - slot) // STAGE_SHARE)
        self.stop = self.slots if self.room_stride == 1 else slot + room

    def _block_steps(self):
        return BLOCK_STEPS if self.cost_stride == 1 < self.room_stride else PAUSE_BLOCK_STEPS

    def begin_sums(self):
        """Plan a period without detail; return whether detail is paused rather than summed."""
        self._planned = self._block_steps() * (self.stride - 1)
        self.is_long = self.cost_stride > 1 and self._is_expensive
        if self.is_long:
            self._planned = max(self._planned, min(self.ended // PART_OF_RUN, self.steps_in(MAX_PAUSE_NS)))
        self.left = self._planned
        self._rare_left = RARE_KEPT if self.room_stride > 1 else max(RARE_KEPT_IN_PAUSE, self._planned // 4)
        self.seems_slower = False
        return self.cost_stride > 1

    def steps_in(self, time):
        """Return the number of steps in a time, from the steps last seen in detail."""
        return int(time / max(1, self._step_ns))

    def may_end_early(self):
        """Return whether a period without detail may end early, at a better place than its last step."""
        return self.room_stride == 1 and self.left * 2 <= self._planned

    def is_slower(self, left_before, elapsed):
        """Return whether the steps of a pause have become slower than those before it, since the last call.

        One long wait between steps is not enough. Where only other steps have ended, it is not known.
        """
        if self._others:
            return False
        is_slow = elapsed > SLOWER * (left_before - self.left + 1) * self._step_ns
        was_slow, self.seems_slower = self.seems_slower, is_slow
        return was_slow and is_slow

    def keep_rare(self):
        """Return whether one more record of a rare kind may be written in this period without detail."""
        self._rare_left -= 1
        return self._rare_left >= 0

    def weigh(self, slot, moment):
        """Compare the cost of the records of the period with detail, which ends here, with its time."""
        records, time = slot - self._begun[0], max(1, moment - self._begun[1])
        self._step_ns = time / self._planned
        cold = min(records, COLD_PER_STEP * self._planned)
        cost = (cold * COLD_NS + (records - cold) * HOT_NS) / time
        # One period with a long wait in it must not bring all detail back at once.
        self._cost = cost if self._cost is None else self._cost + (cost - self._cost) / 4
        self._is_expensive = self._cost > PASSING * cost_share
        allowed = cost_share
        left = 2 * allowed - PAUSED_STEP_NS / self._step_ns
        if self._is_expensive and left > 0:
            # Paused steps use part of what the user allows, but at least half of our share is left for detail.
            # If paused steps alone cost more, less detail would not help, and slow changes would be harder to see.
            allowed = min(allowed, max(allowed / 2, left))
        self.cost_stride = 1
        while may_pause and self.cost_stride * allowed < self._cost and self.cost_stride < MAX_STRIDE:
            self.cost_stride *= 2

    def is_too_expensive(self):
        """Return whether even the least detail costs too much; if so, start to measure the cost again."""
        if not may_pause or self._cost is None or self._cost <= DOUBT * MAX_STRIDE * cost_share:
            return False
        self._cost = None
        return True

    def exclude(self, duration):
        """Do not count this time of the present period with detail."""
        self._begun = self._begun[0], self._begun[1] + duration

    def ends_period(self, what, which, many=1):
        """Count the ends of ``many`` steps; return whether the present period ends with them.

        ``what`` is OPTIMIZER, BACKWARD, FORWARD or DATA; the greater number is the better sign of a step. ``which``
        distinguishes several of that kind: for example, only one of a GAN's two optimizers ends steps.
        """
        if (what, which) != self.counts:
            self._others += many
            if what <= self.counts[0] and self._others < MAX_OTHER_ENDS:
                return False
            if what > self.counts[0]:
                self.ended = 0
            self.counts = what, which
        self._others = 0
        self.ended += many
        self.left -= many
        return self.left <= 0
