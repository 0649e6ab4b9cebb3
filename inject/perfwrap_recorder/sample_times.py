"""The times of single samples, noted without a call: a list of indices sees when each of them is taken.

Between two takings one ``dataset[index]`` ran. Each batch is watched where a sample takes long, one in sixteen
where samples are fast. The times are counted by size, in eighths of an octave, and told as one fact:
``sample_times`` = how many, then median, p90, p99 and the longest in ns.
"""

from __future__ import annotations

from perfwrap_recorder import journal
from perfwrap_recorder.clock import now

SLOW_NS = 50_000
"""A sample that takes as long can bear to be watched each time: that costs some 0.2 us."""

STRIDE = 16
"""One batch of so many is watched where samples are faster."""

EIGHTHS = 8
"""Sizes told apart between one power of two and the next."""

SHARES = (0.5, 0.9, 0.99)


class Stopwatch(list):
    """A list that notes when each of its elements is taken, and when they are found to have ended."""

    __slots__ = ("moments",)

    def __init__(self, elements):
        list.__init__(self, elements)
        self.moments = ()

    def __iter__(self):
        """Yield the elements."""
        self.moments = moments = []
        note = moments.append
        for element in list.__iter__(self):
            note(now())
            yield element
        note(now())


class SampleTimes:
    """How many samples took how long."""

    def __init__(self):
        self.counts = {}
        """Size -> how many."""
        self.longest_ns = 0
        self._told = 0
        self._left = 0
        self._stride = STRIDE

    def is_wanted(self):
        """Say whether the next batch is to be watched."""
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self._stride
        return True

    def weigh(self, mean_ns):
        """Note what a sample of a batch took that was not watched."""
        self._stride = 1 if mean_ns >= SLOW_NS else STRIDE
        self._left = min(self._left, self._stride)

    def add(self, moments):
        """Count the times between the moments."""
        counts, last = self.counts, moments[0] if moments else 0
        for moment in moments[1:]:
            duration = moment - last
            last = moment
            size = size_of(duration)
            counts[size] = counts.get(size, 0) + 1
            if duration > self.longest_ns:
                self.longest_ns = duration
        if len(moments) > 1:
            self.weigh((moments[-1] - moments[0]) // (len(moments) - 1))

    def tell(self):
        """Write the fact when there are more samples than were told of."""
        count = sum(self.counts.values())
        if count > self._told:
            self._told = count
            shares = [self.share(share) for share in SHARES]
            journal.fact("sample_times", " ".join(map(str, (count, *shares, self.longest_ns))))

    def tell_at_times(self):
        """Write the fact when there are a tenth more: each is a new text, and there is an end to those."""
        if sum(self.counts.values()) * 10 > self._told * 11:
            self.tell()

    def share(self, share):
        """Return the time that this share of the samples does not exceed, as near as sizes tell it."""
        left = share * sum(self.counts.values())
        for size in sorted(self.counts):
            left -= self.counts[size]
            if left <= 0:
                return min(self.longest_ns, middle_of(size))
        return self.longest_ns

    def clear(self):
        """Forget all."""
        self.__init__()


def size_of(duration):
    """Return the size class of a time: its power of two and the next three bits."""
    octave = max(duration, EIGHTHS).bit_length() - 1
    return octave * EIGHTHS + (max(duration, EIGHTHS) >> (octave - 3) & 7)


def middle_of(size):
    """Return the middle of a size class."""
    octave, eighth = divmod(size, EIGHTHS)
    return ((EIGHTHS + eighth) * 2 + 1 << octave) // (2 * EIGHTHS)
