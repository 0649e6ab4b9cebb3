"""Separates the phases of a training thread that only use the model (validation) from those that train it.

Without a hint from the program, a phase is recognized by what it does not do. The batches of a loader's iteration are
*evaluated* if a model runs on them and nothing is trained before the next batch; an iteration with mostly such batches
is a validation, with everything from its first event to its last. If the loader is otherwise trained on, a value must
be read from the results too: a pass without one makes features, or the statistics of a normalization.

Models that run in evaluation mode without a loader are also a validation, and so are those that run many times in
succession without gradients while no result is read (samples are drawn, a plot is computed). Not if a line does so in
most steps (a teacher, a target network), or if their results are read as arrays (a policy that acts in an environment):
these belong to the loop.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfwrap.measures.account.loop_events import (
    LOADER,
    Events,
    Flags,
    Integers,
    LoopEvents,
    has_grad,
    is_evaluation,
    is_training_mode,
)

DATA, DATA_END, LOADER_START = range(len(LOADER))
UNUSED, TRAINED, EVALUATED = range(3)
FOREVER = np.iinfo(np.int64).max
NONE = np.zeros(0, dtype=np.int64)

ARRAY_READS = ("Tensor.numpy", "Tensor.tolist")
MOVES = frozenset(
    ("Tensor.to", "Tensor.cuda", "Tensor.cpu", "Tensor.copy_", "Tensor.pin_memory")
    + ("Module.to", "Module.cuda", "Module.cpu")
)
"""Operations that move tensors; all other uses read values."""
MAX_ACTING_SHARE = 0.5
"""If the results of more than this share of the forwards without a loader are read as arrays, a policy acts in an
environment: these forwards make what is trained on, and are no validation."""
MIN_SERIES = 8
"""Forwards in succession, without gradients and with no result read between them, that are an evaluation though the
model is in training mode."""
MAX_PAUSE = 0.4
"""Maximum time, over that of the forward before it, between most forwards of such a series: a policy waits for its
environment."""
MAX_STEPS_SHARE = 0.5
"""Evaluation without a loader in more than this share of the steps belongs to the steps."""


class Phases(Struct, frozen=True):
    """Validation phases, sorted and disjoint, and which loader events are for training.

    In the order of ``LoopEvents.loader``: ``iteration`` numbers the iterations of loaders, ``use`` says what the
    batches of each event's iteration were for: TRAINED, EVALUATED or UNUSED.
    """

    start: Integers
    end: Integers
    key: Integers
    """The loader, -1 without one."""
    iteration: Integers
    use: Integers

    def contain(self, times: Integers) -> Flags:
        """Return which moments are in a phase."""
        if not self.start.size:
            return np.zeros(times.size, dtype=np.bool_)
        place = np.searchsorted(self.start, times, side="right") - 1
        return (place >= 0) & (times < self.end[np.maximum(place, 0)])


def find_phases(events: LoopEvents, counted: Integers = NONE) -> Phases:
    """Return the validation phases; none in a run without training.

    ``counted`` are the starts of the sections without detail in which training steps were counted: no phase goes on
    over one of them.
    """
    iteration = _iterations(events)
    trained = train_moments(events)
    if not trained.size:
        nothing = np.zeros(0, dtype=np.int64)
        return Phases(nothing, nothing, nothing, iteration, np.full(iteration.size, TRAINED))
    use = _uses(events, iteration, trained)
    unread = _without_results(events, iteration, use, trained)
    use[unread] = UNUSED
    lone = _lone_evaluations(events, (use == EVALUATED) & (events.loader_kind == DATA) | unread)
    return Phases(*_join(events, use, lone, counted), iteration, use)


def train_moments(events: LoopEvents) -> Integers:
    """Return when training happened: backward passes and optimizer steps."""
    return np.sort(np.concatenate([events.optimizer.start, events.backward.start]))


def _iterations(events: LoopEvents) -> Integers:
    """Number the iterations of loaders: a new one starts at each loader start, and at a batch after an end."""
    if not len(events.loader):
        return np.zeros(0, dtype=np.int64)
    order = np.lexsort((events.loader.start, events.loader.key))
    key, kind = events.loader.key[order], events.loader_kind[order]
    other = np.concatenate([[True], key[1:] != key[:-1]])
    after_end = np.concatenate([[False], kind[:-1] == DATA_END])
    numbers = np.empty(key.size, dtype=np.int64)
    numbers[order] = np.cumsum(other | (kind == LOADER_START) | after_end) - 1
    return numbers


def _uses(events: LoopEvents, iteration: Integers, trained: Integers) -> Integers:
    """Return for each loader event what the batches of its iteration were for.

    Each batch votes, by what came before the next loader event: trained, evaluated, or nothing.
    """
    loader, is_batch = events.loader, events.loader_kind == DATA
    until = np.append(loader.start[1:], FOREVER)
    evaluating = events.forward.only(is_evaluation(events.forward))
    trains = is_batch & _any_between(trained, loader.end, until)
    used = is_batch & ~trains & _any_between(events.forward.start, loader.end, until)
    idle = used & _any_between(evaluating.start, loader.end, until)
    count = int(iteration.max(initial=-1)) + 1
    votes = [np.bincount(iteration[vote], minlength=count) for vote in (trains, used, idle)]
    # Forwards in training mode without a backward pass may be gradient accumulation: they count only if no batch of the
    # iteration was ever trained on.
    evaluated = (votes[2] > votes[0]) | ((votes[0] == 0) & (votes[1] > 0))
    silent = (votes[0] == 0) & (votes[1] == 0)
    unseen = np.bincount(iteration[is_batch], minlength=count) == 0
    guess = np.where(
        unseen,
        _by_loader(events, iteration, evaluated, silent),
        _by_surroundings(events, iteration, trained),
    )
    use = np.where(silent, guess, np.where(evaluated, EVALUATED, TRAINED))
    return np.asarray(use[iteration], dtype=np.int64)


def _without_results(events: LoopEvents, iteration: Integers, use: Integers, trained: Integers) -> Flags:
    """Return which loader events evaluate a loader that is also trained on, without a value read from the results."""
    loader = events.loader
    evaluated = use == EVALUATED
    again = evaluated & np.isin(loader.key, loader.key[use == TRAINED])
    reads = _reads(events).start
    if not again.any() or not len(events.use):
        return np.zeros(len(loader), dtype=np.bool_)
    size = int(iteration.max()) + 1
    begin, end = np.full(size, FOREVER), np.full(size, -FOREVER)
    np.minimum.at(begin, iteration, loader.start)
    np.maximum.at(end, iteration, loader.end)
    end = np.minimum(_next_after(trained, end), _next_after(loader.start[~evaluated], end))
    return np.asarray(again & ~_any_between(reads, begin, end)[iteration])


def _by_loader(events: LoopEvents, iteration: Integers, evaluated: Flags, silent: Flags) -> Integers:
    """Return for each iteration what most others of its loader were for, UNUSED if unknown.

    For an iteration without detail, the batches were not recorded, but its start and end were.
    """
    first = np.unique(iteration, return_index=True)[1]
    key = events.loader.key[first]
    size = int(key.max(initial=-1)) + 1
    trained = np.bincount(key[~silent & ~evaluated], minlength=size)[key]
    used = np.bincount(key[~silent & evaluated], minlength=size)[key]
    return np.where(trained + used == 0, UNUSED, np.where(used > trained, EVALUATED, TRAINED))


def _by_surroundings(events: LoopEvents, iteration: Integers, trained: Integers) -> Integers:
    """Return for each iteration what happened between its first and its last event.

    This identifies the first loader of a zip: the second one's batch always comes before anything else.
    """
    size = int(iteration.max(initial=-1)) + 1
    begin, end = np.full(size, FOREVER), np.full(size, -FOREVER)
    np.minimum.at(begin, iteration, events.loader.start)
    np.maximum.at(end, iteration, events.loader.end)
    trains = _any_between(trained, begin, end)
    uses = _any_between(events.forward.start, begin, end)
    return np.where(trains, TRAINED, np.where(uses, EVALUATED, UNUSED))


def _lone_evaluations(events: LoopEvents, own: Flags) -> Flags:
    """Return which forwards are evaluations, not in most steps, and not after one of the loader events ``own``."""
    forward, loader = events.forward, events.loader
    lone = ~is_training_mode(forward) | _series(events)
    if len(loader):
        place = np.searchsorted(loader.start, forward.start, side="right") - 1
        last = np.maximum(place, 0)
        lone &= (place < 0) | ~own[last]
    anchors = events.optimizer if len(events.optimizer) else events.backward
    steps = anchors.only(anchors.key == np.bincount(anchors.key).argmax())

    def is_usual(chosen: Flags) -> bool:
        """Return whether most steps have any of these forwards."""
        return np.unique(np.searchsorted(steps.end, forward.start[chosen])).size > MAX_STEPS_SHARE * len(
            steps
        )

    acting = _acting(events)
    # What a policy computes beside its actions, such as the value of a last state, belongs to the same rollout.
    rollout = np.searchsorted(train_moments(events), forward.start)
    acts = np.bincount(rollout, weights=lone & acting) > MAX_ACTING_SHARE * np.bincount(rollout, weights=lone)
    lone &= ~acts[rollout]
    for key in np.unique(forward.key[lone]):
        chosen = lone & (forward.key == key)
        if acting[chosen].mean() > MAX_ACTING_SHARE:
            lone &= forward.key != key
            continue
        if is_usual(lone & (forward.key == key)):
            lone &= forward.key != key
    return np.zeros(lone.size, dtype=np.bool_) if is_usual(lone) else lone


def _reads(events: LoopEvents) -> Events:
    """Return the uses that read values."""
    is_read = np.array([name.partition(":")[0] not in MOVES for name in events.names], dtype=np.bool_)
    return events.use.only(is_read[events.use.key]) if len(events.use) else events.use


def _series(events: LoopEvents) -> Flags:
    """Return which forwards are part of a long series without gradients, with no read, batch or training in it."""
    forward, loader = events.forward, events.loader
    if len(forward) < MIN_SERIES:
        return np.zeros(len(forward), dtype=np.bool_)
    reads = _reads(events).start
    others = np.sort(np.concatenate([train_moments(events), reads, loader.start]))
    quiet = ~has_grad(forward)
    ends = np.maximum.accumulate(forward.end[:-1])
    follows = quiet[1:] & quiet[:-1] & ~_any_between(others, ends, forward.start[1:])
    number = np.concatenate([[0], np.cumsum(~follows)])
    size = np.bincount(number)
    soon = follows & (forward.start[1:] - ends <= MAX_PAUSE * (forward.end - forward.start)[:-1])
    is_series = (size >= MIN_SERIES) & (
        2 * np.bincount(number[1:], weights=soon, minlength=size.size) >= size
    )
    return np.asarray(quiet & is_series[number])


def _acting(events: LoopEvents) -> Flags:
    """Return after which forwards their results were read as arrays, before the next forward: actions of a policy."""
    forward, use = events.forward, _reads(events)
    if not len(use):
        return np.zeros(len(forward), dtype=np.bool_)
    place = np.minimum(np.searchsorted(use.start, forward.end), len(use) - 1)
    until = np.append(forward.start[1:], FOREVER)
    is_array = np.array([name.startswith(ARRAY_READS) for name in events.names], dtype=np.bool_)
    soon = (use.start[place] >= forward.end) & (use.start[place] < until)
    return np.asarray(soon & is_array[use.key[place]])


def acting_share(events: LoopEvents, phases: Phases) -> float:
    """Return the share of the loop's forwards that choose the actions of a policy; validation does not count."""
    forward = events.forward
    inside = ~phases.contain(forward.start)
    if not inside.any():
        return 0.0
    until = np.append(forward.start[1:], FOREVER)
    trained = _any_between(train_moments(events), forward.end, until)
    return float((_acting(events) & ~trained)[inside].mean())


def step_evaluations(events: LoopEvents, phases: Phases) -> Flags:
    """Return which forwards evaluate, in most steps, a model that is also trained; none if fewer steps have one.

    They run in evaluation mode without gradients, and a value of their results is read before anything else happens:
    those of a teacher are trained on, and those of a policy that acts are read as arrays.
    """
    forward = events.forward
    trains = is_training_mode(forward) & has_grad(forward)
    trained = train_moments(events)
    models = np.array([name.partition(":")[0] for name in events.names])[forward.key]
    until = np.minimum(np.append(forward.start[1:], FOREVER), _next_after(trained, forward.end))
    evaluates = (
        ~is_training_mode(forward)
        & ~has_grad(forward)
        & ~phases.contain(forward.start)
        & np.isin(models, models[trains])
        & _any_between(_reads(events).start, forward.end, until)
        & ~_acting(events)
    )
    anchors = events.optimizer if len(events.optimizer) else events.backward
    if not len(anchors):
        return np.zeros(len(forward), dtype=np.bool_)
    steps = anchors.only(anchors.key == np.bincount(anchors.key).argmax())
    with_one = np.unique(np.searchsorted(steps.end, forward.start[evaluates])).size
    return evaluates & (with_one > MAX_STEPS_SHARE * len(steps))


def _join(
    events: LoopEvents, use: Integers, lone: Flags, counted: Integers
) -> tuple[Integers, Integers, Integers]:
    """Return starts, ends and keys of the phases.

    Adjacent validation events are one phase if no training is between them, no loader ended, and none started that is
    trained on: of an epoch without detail, only its start is known.
    """
    loader, forward, evaluated = events.loader, events.forward, use == EVALUATED
    starts = np.concatenate([loader.start[evaluated], forward.start[lone]])
    ends = np.concatenate([_batch_ends(events, evaluated)[evaluated], forward.end[lone]])
    keys = np.concatenate([loader.key[evaluated], np.full(int(lone.sum()), -1)])
    if not starts.size:
        return starts, ends, keys
    order = np.argsort(starts, kind="stable")
    starts, ends, keys = starts[order], np.maximum.accumulate(ends[order]), keys[order]
    is_other = ~evaluated & (events.loader_kind == DATA)
    batches = loader.start[is_other | (use == TRAINED) & (events.loader_kind == LOADER_START)]
    others = np.sort(np.concatenate([train_moments(events), batches, counted]))
    between = np.searchsorted(others, starts)
    kind = np.concatenate([events.loader_kind[evaluated], np.full(int(lone.sum()), DATA)])[order]
    over = np.append(False, kind[:-1] == DATA_END)
    first = np.flatnonzero((np.diff(between, prepend=-1) != 0) | over)
    last = np.append(first[1:], starts.size) - 1
    # A loader that has only started is not evaluated yet.
    used = np.add.reduceat(kind != LOADER_START, first) > 0
    return starts[first[used]], ends[last[used]], keys[first[used]]


def _batch_ends(events: LoopEvents, evaluated: Flags) -> Integers:
    """Return, for each loader event, when the work on its batch ended.

    This is the end of the last forward, read or copy before the next loader event and before the next training.
    """
    loader = events.loader
    ends = loader.end.copy()
    until = np.minimum(
        np.concatenate([loader.start[1:], [FOREVER]]), _next_after(train_moments(events), loader.end)
    )
    until = np.minimum(until, _next_after(events.forward.only(has_grad(events.forward)).start, loader.end))
    for used in (events.forward, events.use):
        if len(used):
            place = np.searchsorted(used.start, until) - 1
            found = (place >= 0) & (used.start[np.maximum(place, 0)] >= loader.end)
            ends = np.where(found & evaluated, np.maximum(ends, used.end[np.maximum(place, 0)]), ends)
    return np.asarray(ends)


def _any_between(moments: Integers, begin: Integers, end: Integers) -> Flags:
    """Return for which intervals any of the sorted moments is inside."""
    return np.searchsorted(moments, end) > np.searchsorted(moments, begin)


def _next_after(moments: Integers, times: Integers) -> Integers:
    """Return the first of the sorted moments at or after each time, FOREVER if there is none."""
    place = np.searchsorted(moments, times)
    return np.append(moments, FOREVER)[place]
