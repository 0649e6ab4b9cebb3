"""The timeline of one run and its measures, each computed at the first request and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar, cast

from perfwrap.timeline.model import Timeline

P = ParamSpec("P")
R = TypeVar("R")


class Evidence:
    """A timeline and the measures that were computed from it.

    A measure is a function ``(evidence, ...)`` in a file of its topic; it requests other measures from the same
    evidence:

        def find_garbage(evidence: Evidence, trainer: Trainer) -> Garbage:
            account = evidence.get(find_account, trainer)

    All figures of a trainer are of its steady loop (the account), unless the measure says otherwise; times are
    nanoseconds, shares are of the account's whole length. What was not recorded is None or empty, never 0.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._kept: dict[tuple[object, ...], object] = {}

    def get(self, measure: Callable[Concatenate[Evidence, P], R], *key: P.args, **named: P.kwargs) -> R:
        """Return ``measure(self, *key)``: the same object for every request with an equal key."""
        request = (measure, key, *named.items())
        if request not in self._kept:
            self._kept[request] = measure(self, *key, **named)
        return cast(R, self._kept[request])
