"""Finds where steps end: groups of optimizer steps, backward passes, batches or forwards.

A step ends with the last optimizer step of its group. A group closes when one of its optimizers steps again, when a
loader that already gave it a batch gives another one, or when an optimizer follows that was never used at the same time
(the next fold, the next trial). So a GAN's two optimizers on one batch are one step, and five critic steps on one batch
each are five.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from perfwrap.measures.account.loop_events import Events, Integers, LoopEvents
from perfwrap.measures.steps.phases import DATA, TRAINED, Phases

MAX_BACKWARDS_PER_BATCH = 4
"""Without an optimizer, batches define steps if there are at most this many backward passes per batch."""

MIN_BATCHES = 2

NO_SECTIONS = np.empty(0, dtype=np.int64)


class StepEnds(Struct, frozen=True):
    """``ends`` of the steps in order, the ``start`` of the first one, and what ends them, in words."""

    ends: Integers
    start: int
    anchor: str
    operations: tuple[str, ...]
    """The operations of the anchor events."""


def find_step_ends(events: LoopEvents, phases: Phases, sections: Integers = NO_SECTIONS) -> StepEnds | None:
    """Return where the steps end; None if there are none. ``sections``: starts of sections without detail."""
    batches = events.loader.only((phases.use == TRAINED) & (events.loader_kind == DATA))
    found = _anchors(events, batches)
    if found is None:
        return None
    ends = (
        _group(found.events, batches, sections) if found.repeats else _group_by_batch(found.events, batches)
    )
    start = _first_start(events, phases, found.events)
    return StepEnds(ends, start, found.name, found.operations)


def ends_of_marks(marks: Events, name: str) -> StepEnds:
    """Return where marked steps end; there is at least one."""
    return StepEnds(marks.end, int(marks.start[0]), f"step mark ({name})", ("step",))


class Anchors(Struct, frozen=True):
    """The events that end steps; ``repeats``: a repeated event closes its step, otherwise a batch does."""

    events: Events
    repeats: bool
    name: str
    operations: tuple[str, ...]


def _anchors(events: LoopEvents, batches: Events) -> Anchors | None:
    """Return the most reliable events that end steps; None if there are no steps."""
    if len(events.optimizer):
        return Anchors(events.optimizer, True, _optimizer_names(events), ("optimizer", "scaler_step"))
    if len(events.backward):
        lone = len(batches) * MAX_BACKWARDS_PER_BATCH < len(events.backward)
        name = "backward pass" if lone else "last backward pass on a batch"
        return Anchors(events.backward, lone, name, ("backward",))
    if len(batches) >= MIN_BATCHES or (len(batches) and not len(events.forward)):
        return Anchors(_batch_uses(events, batches), False, "batch", ("data",))
    if len(events.forward):
        return Anchors(events.forward, True, "forward pass", ("forward",))
    return None


def _optimizer_names(events: LoopEvents) -> str:
    """Return e.g. ``optimizer step (Adam#1, Adam#2)``."""
    keys, first = np.unique(events.optimizer.key, return_index=True)
    names = [events.names[key] for key in keys[np.argsort(first)].tolist()]
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return f"optimizer step ({shown})"


def _batch_uses(events: LoopEvents, batches: Events) -> Events:
    """Return for each batch the end of its last forward, read or copy before the next batch."""
    ends = batches.end.copy()
    until = np.append(batches.start[1:], np.iinfo(np.int64).max)
    for used in (events.forward, events.use):
        if len(used):
            place = np.maximum(np.searchsorted(used.start, until) - 1, 0)
            ends = np.where(used.start[place] >= batches.end, np.maximum(ends, used.end[place]), ends)
    return Events(np.maximum(batches.start, ends - 1), ends, batches.key, batches.value)


def _group_by_batch(anchors: Events, batches: Events) -> Integers:
    """Return where each group ends; a batch of a loader that gave the group one before closes it."""
    found: list[int] = []
    loaders: set[int] = set()
    since: set[int] = set()
    end: int | None = None
    for anchor, key, moment, _ in _in_order(anchors, batches, NO_SECTIONS):
        if anchor:
            since = set()
            end = moment
            continue
        if end is not None and key in loaders:
            found.append(end)
            loaders, end = since, None
        loaders.add(key)
        since.add(key)
    return np.array([*found, end] if end is not None else found, dtype=np.int64)


def _group(anchors: Events, batches: Events, sections: Integers) -> Integers:
    """Return where each group ends; a repeated anchor closes it, too, and so does a section without detail.

    The first group after a section may be the rest of a step: an anchor that usually begins a group closes it.
    """
    strangers = _strangers(anchors)
    found: list[int] = []
    seen: set[int] = set()
    loaders: set[int] = set()
    since: set[int] = set()
    openers: set[int] = set()
    last, end, is_rest = -1, 0, False
    for anchor, key, moment, after_section in _in_order(anchors, batches, sections):
        if after_section and last >= 0:
            closes = True
        elif anchor:
            again = key in seen or (last, key) in strangers or (is_rest and key in openers)
            closes = last >= 0 and again
        else:
            closes = last >= 0 and key in loaders
        if closes:
            found.append(end)
            seen.clear()
            # After a section it is unknown what gave the group its batch: probably what gave the one before its own.
            loaders, since, last = loaders if after_section else since, set(), -1
            is_rest = False
        is_rest = is_rest or after_section
        if anchor:
            if last < 0 and not is_rest:
                openers.add(key)
            seen.add(key)
            since = set()
            last, end = key, moment
        else:
            loaders.add(key)
            since.add(key)
    if last >= 0:
        found.append(end)
    return np.array(found, dtype=np.int64)


def _in_order(anchors: Events, batches: Events, sections: Integers) -> Iterator[tuple[bool, int, int, bool]]:
    """Return of each event whether it is an anchor, its key and end, and whether it is the first after a section."""
    starts = np.concatenate([anchors.start, batches.start])
    order = np.argsort(starts, kind="stable")
    keys = np.concatenate([anchors.key, batches.key])[order].tolist()
    ends = np.concatenate([anchors.end, batches.end])[order].tolist()
    passed = np.diff(np.searchsorted(sections, starts[order]), prepend=0) > 0
    return zip((order < len(anchors)).tolist(), keys, ends, passed.tolist(), strict=True)


def _strangers(anchors: Events) -> frozenset[tuple[int, int]]:
    """Return the pairs of consecutive anchors that were never used at the same time.

    Two that occur only once each do not count: they may be the only step of a GAN. An optimizer that is made anew
    between two steps of another, and used up before the second, was not used at the time of the first.
    """
    keys, first, count = np.unique(anchors.key, return_index=True, return_counts=True)
    last = len(anchors) - 1 - np.unique(anchors.key[::-1], return_index=True)[1]
    place = {key: number for number, key in enumerate(keys.tolist())}
    changes = np.flatnonzero(anchors.key[1:] != anchors.key[:-1])
    found = set()
    for one, other in {(int(anchors.key[at]), int(anchors.key[at + 1])) for at in changes.tolist()}:
        a, b = place[one], place[other]
        apart = last[a] < first[b] or last[b] < first[a]
        if apart and max(count[a], count[b]) > 1:
            found.add((one, other))
    news = changes[first[np.searchsorted(keys, anchors.key[changes + 1])] == changes + 1]
    for at in news.tolist():
        one, other = int(anchors.key[at]), int(anchors.key[at + 1])
        until = last[place[other]]
        if count[place[other]] > 1 and not (anchors.key[at + 1 : until + 1] == one).any():
            found.update([(one, other), (other, one)])
    return frozenset(found)


def _first_start(events: LoopEvents, phases: Phases, anchors: Events) -> int:
    """Return where the first step starts: at its loader's start, its batch or its forward, whichever is first.

    A validation before the training, or anything without these events, is not part of a step.
    """
    first_anchor = int(anchors.start[0])
    trained = events.loader.only(phases.use == TRAINED)
    forwards = events.forward.only(~phases.contain(events.forward.start))
    candidates = [first_anchor]
    for early in (trained, forwards, events.backward):
        if len(early):
            candidates.append(int(early.start[0]))
    return min(candidates)
