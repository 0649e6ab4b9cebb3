"""Decides which steps a journal keeps in detail, so that recording stays cheap and any run fits its budget.

Two things ask for less detail:

- *Cost.* After the first steps, and from then on every few, what the records cost is held against the time
  that the steps took. Where it is more than a four-hundredth, one step in so many stays in detail that it is
  not; for the others the probes rest, and what rests cost may leave detail half of that only. Where even one step
  in MOST_STRIDE costs more, probes are switched off, one after the other.
- *Room.* The first half of the budget is for what cost allows. When it is used, and from then on whenever an
  eighth of what is left is used, detail is halved: each such stage then covers 1.75 times as many steps as
  the one before.

Detail comes in blocks of neighbouring steps, since a reader may take another event for a step's end than we
do: three of a block's four steps are complete whatever it takes.
"""

from __future__ import annotations

BLOCK_STEPS = 4
"""Steps that stand in detail together for want of room."""

REST_BLOCK_STEPS = 16
"""Steps that stand in detail together between two rests: turns cost something too."""

FIRST_STEPS = 256
"""Steps at the beginning of which all stand in detail: short runs have no other."""

cost_share = 1 / 400
"""What records may cost, of the steps' time; the user may ask for another share."""

MOST_STRIDE = 128
"""Cost alone never asks for less detail than this."""

may_rest = True
"""Whether cost may ask for less detail."""

COLD_NS, HOT_NS, COLD_PER_STEP = 20_000, 1_500, 10
"""What a record costs: the first ones of a step find the processor's caches used up by torch, and leave torch less of
them. From steps of 0.4 and 0.9 ms with 9 records, in detail and at rest in turns: 180 to 210 us apart."""

DOUBT = 12
"""What a record costs is not known better than by this factor; nothing is switched off because of a guess."""

STAGE_SHARE = 8
"""One part in so many of what is left of the budget is what detail must last for until it is halved again."""

RARE_KEPT = 16
"""How many records of the rarer kinds stand in detail in a stretch that has no detail."""

SLOWER = 4
"""A rest ends early when its steps take so many times as long as those before it did."""

RARE_KEPT_IN_REST = 256
"""How many do where there is room, and for each four steps of a longer stretch one more."""

PASSING = 4
"""To let a call pass by a probe that rests costs one in so many of what it costs to record it: of a step with 9 records
40 of 160 us (5 ms), 20 of 110 us (0.8 ms), where functions that only count cost 10."""

BARE_REST_NS = 35_000
"""What even that costs each step, beside one that nobody watches: steps of 7 ms, whose caches torch has used up."""

PART_OF_RUN = 8
"""A long rest may be one in so many of the steps so far."""

LONGEST_NS = 10_000_000_000
"""No such rest is planned for a longer time at first."""

PATIENCE = 1000
"""Ends of other steps to wait for one of the kind that counts before one of those counts instead."""


class Thinning:
    """The plan for one journal of so many slots."""

    def __init__(self, slots, slot=0, moment=0):
        self.slots = slots
        self.room_stride = 1
        self.cost_stride = 1
        """One step of so many is kept in detail, for want of room and because of the cost."""
        self.threshold = slots // 2
        """The slot from which on detail is halved again."""
        self.stop = slots
        """The slot at which the present stretch of detail ends, though no step has."""
        self.counts = 0, None
        """What ends a step: OPTIMIZER, BACKWARD, FORWARD or DATA, and which of them."""
        self.ended = 0
        """How many steps have ended."""
        self._others = 0
        self._planned = FIRST_STEPS
        self.left = FIRST_STEPS
        """Steps until the present stretch has had its own."""
        self._rare_left = 0
        self._begun = slot, moment
        self._cost = None
        self._is_dear = False
        """Whether even letting all calls pass costs more than it may."""
        self._step_ns = 0
        self.is_long = False
        """Whether the present rest is a long one, since even turns cost too much."""
        self.seems_slower = False
        """Whether the steps of the present rest took longer, when last looked at, than those before it."""

    @property
    def stride(self):
        """One step of so many is kept in detail."""
        return max(self.room_stride, self.cost_stride)

    def is_stage_over(self, slot):
        """Halve the detail where the slot asks for it, and say whether the present detail must end there.

        Detail that has all the room ends with its half of the budget, any other only when it would take too
        much.
        """
        had_room = self.room_stride == 1
        while self.threshold <= slot and self.threshold < self.slots:
            self.room_stride *= 2
            self.threshold += max(1, (self.slots - self.threshold) // STAGE_SHARE)
        if had_room and self.room_stride > 1:
            self.stop = slot
        return slot >= self.stop

    def begin_detail(self, slot, moment):
        """Plan a stretch of detail that starts at the slot."""
        self._planned = self.left = self._block_steps()
        self._begun = slot, moment
        room = max(BLOCK_STEPS, (self.slots - slot) // STAGE_SHARE)
        self.stop = self.slots if self.room_stride == 1 else slot + room

    def _block_steps(self):
        return BLOCK_STEPS if self.cost_stride == 1 < self.room_stride else REST_BLOCK_STEPS

    def begin_sums(self):
        """Plan a stretch without detail, and say whether the probes shall rest meanwhile."""
        self._planned = self._block_steps() * (self.stride - 1)
        self.is_long = self.cost_stride > 1 and self._is_dear
        if self.is_long:
            longest = int(LONGEST_NS / max(1, self._step_ns))
            self._planned = max(self._planned, min(self.ended // PART_OF_RUN, longest))
        self.left = self._planned
        self._rare_left = RARE_KEPT if self.room_stride > 1 else max(RARE_KEPT_IN_REST, self._planned // 4)
        self.seems_slower = False
        return self.cost_stride > 1

    def may_end_early(self):
        """Say whether a stretch without detail may end where a better place than its last step comes."""
        return self.room_stride == 1 and self.left * 2 <= self._planned

    def is_slower(self, left_before, elapsed):
        """Say whether the steps of a rest are not what they were before it, from those since it was last asked.

        One long wait between steps says nothing yet.
        """
        is_slow = elapsed > SLOWER * (left_before - self.left + 1) * self._step_ns
        was_slow, self.seems_slower = self.seems_slower, is_slow
        return was_slow and is_slow

    def keep_rare(self):
        """Say whether one more of the rarer kinds may stand in detail in this stretch without."""
        self._rare_left -= 1
        return self._rare_left >= 0

    def weigh(self, slot, moment):
        """Hold the records since the beginning of the stretch of detail, which ends here, against its time."""
        records, time = slot - self._begun[0], max(1, moment - self._begun[1])
        self._step_ns = time / self._planned
        cold = min(records, COLD_PER_STEP * self._planned)
        cost = (cold * COLD_NS + (records - cold) * HOT_NS) / time
        # One stretch with a long wait in it must not bring all detail back at once.
        self._cost = cost if self._cost is None else self._cost + (cost - self._cost) / 4
        self._is_dear = self._cost > PASSING * cost_share
        allowed = cost_share
        left = 2 * allowed - BARE_REST_NS / self._step_ns
        if self._is_dear and left > 0:
            # What rests cost is taken from both halves of what the user allows, but half of ours is left to detail.
            # Where rests alone cost more, less detail would not keep to it either, and slow changes be harder to see.
            allowed = min(allowed, max(allowed / 2, left))
        self.cost_stride = 1
        while may_rest and self.cost_stride * allowed < self._cost and self.cost_stride < MOST_STRIDE:
            self.cost_stride *= 2

    def is_too_dear(self):
        """Say whether even the least detail costs more than it may; what it costs must then be weighed anew."""
        if not may_rest or self._cost is None or self._cost <= DOUBT * MOST_STRIDE * cost_share:
            return False
        self._cost = None
        return True

    def forgive(self, duration):
        """Leave that time of the present stretch of detail out of account."""
        self._begun = self._begun[0], self._begun[1] + duration

    def ends_stretch(self, what, which, many=1):
        """Count the ends of so many steps and say whether the present stretch ends with them.

        ``what`` is OPTIMIZER, BACKWARD, FORWARD or DATA, of which the greater number tells a step better, and ``which``
        tells apart several of that kind: only one optimizer of a GAN's two ends steps, say.
        """
        if (what, which) != self.counts:
            self._others += many
            if what <= self.counts[0] and self._others < PATIENCE:
                return False
            if what > self.counts[0]:
                self.ended = 0
            self.counts = what, which
        self._others = 0
        self.ended += many
        self.left -= many
        return self.left <= 0
