"""The times of single samples, measured without a call: a list of indices records when each index is taken.

Between two of these times one ``dataset[index]`` ran. The faster the samples are, the fewer batches are measured.
The times are counted by size, in eighths of an octave, and written as one fact:
``sample_times`` = number of samples, then median, p90, p99 and maximum in ns.
"""

from __future__ import annotations

from perfwrap_recorder.clock import now
from perfwrap_recorder.journal import journal

MAX_STRIDE = 16
"""If samples are fast, one batch in this many is measured."""

RARELY_NS = 1_000_000
"""One batch in n is measured if a sample takes this time divided by n; measuring a sample costs about 1 us."""

EIGHTHS = 8
"""Size classes between one power of two and the next."""

SHARES = (0.5, 0.9, 0.99)


class Stopwatch(list):
    """A list that records when each of its elements is taken, and when the last one ends."""

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
    """The distribution of sample times."""

    def __init__(self):
        self.counts = {}
        """Size -> number of samples."""
        self.longest_ns = 0
        self._written = 0
        self._left = 0
        self._stride = MAX_STRIDE

    def is_wanted(self):
        """Return whether to measure the next batch."""
        self._left -= 1
        if self._left > 0:
            return False
        self._left = self._stride
        return True

    def weigh(self, mean_ns):
        """Use the time per sample of a batch that was not measured to choose how often to measure."""
        self._stride = min(MAX_STRIDE, 1 + RARELY_NS // max(1, mean_ns))
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

    def write_fact(self):
        """Write the fact if there are new samples."""
        count = sum(self.counts.values())
        if count > self._written:
            self._written = count
            shares = [self.share(share) for share in SHARES]
            journal.fact("sample_times", " ".join(map(str, (count, *shares, self.longest_ns))))

    def write_fact_at_times(self):
        """Write the fact if there are 10 % more samples: each fact is a new text, and their number is limited."""
        if sum(self.counts.values()) * 10 > self._written * 11:
            self.write_fact()

    def share(self, share):
        """Return this quantile of the sample times, to the precision of the size classes."""
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
