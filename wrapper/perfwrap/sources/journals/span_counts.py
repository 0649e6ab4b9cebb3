"""Counts the spans of a journal without keeping them: for dropped records, and for the progress of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from perfwrap.journal_format import SPANS, SUM
from perfwrap.sources.journals.journal_file import Records

BATCH, START = SPANS["DATA"], SPANS["LOADER_START"]


class SpanCounts:
    """The number of spans of each kind, and the progress of each loader by its name.

    ``starts`` counts its iterations, ``batches`` the batches of the current one, ``whole`` those of the previous one;
    thinned steps count by their sums. ``name_of`` returns the name with a text's id.
    """

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self._name_of = name_of
        self.kinds: Counter[int] = Counter()
        self.starts: Counter[str] = Counter()
        self.batches: Counter[str] = Counter()
        self.whole: dict[str, int] = {}

    def and_also(self, records: Records) -> SpanCounts:
        """Return these counts with later records added."""
        more = SpanCounts(self._name_of)
        more.kinds, more.starts, more.batches = self.kinds.copy(), self.starts.copy(), self.batches.copy()
        more.whole = dict(self.whole)
        more.add(records)
        return more

    def add(self, records: Records) -> None:
        """Count records, which are roughly in order of time."""
        kinds = records["kind"] & ~np.uint16(SUM)
        weights = np.where(records["kind"] & SUM != 0, records["value"], 1)
        is_span = (kinds >= min(SPANS.values())) & (kinds <= max(SPANS.values()))
        counts = np.bincount(kinds[is_span], weights[is_span])
        self.kinds.update({kind: int(counts[kind]) for kind in np.flatnonzero(counts).tolist()})
        places = np.flatnonzero((kinds == BATCH) | (kinds == START))
        # One loader has several texts: with the line that requests batches, with the line of its start, without one.
        numbers, which = np.unique(records["name"][places], return_inverse=True)
        names = [self._name_of(number) for number in numbers.tolist()]
        for name in dict.fromkeys(names):
            own = places[np.array([name == other for other in names])[which]]
            self._add_loader(name, kinds[own] == START, weights[own])

    def _add_loader(
        self,
        name: str,
        starts: np.ndarray[tuple[int], np.dtype[np.bool_]],
        weights: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> None:
        """Count one loader's batches, from 0 at each of its starts."""
        self.starts[name] += int(weights[starts].sum())
        edges = [0, *np.flatnonzero(starts).tolist(), weights.size]
        for begin, end in zip(edges[:-1], edges[1:], strict=True):
            if begin < end and starts[begin]:
                self.whole[name], self.batches[name] = self.batches[name], 0
            self.batches[name] += int(weights[begin:end][~starts[begin:end]].sum())
