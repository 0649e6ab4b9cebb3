"""Lines of the program that take longer and longer, wherever in the loop they run, by the samples of the whole run.

The time of a line is compared with that of the model's training in the same part of the loop. The line may run in each
step, every k steps, after an epoch, in a validation or while a checkpoint is written; what it calls may be a library.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_events import thread_spans
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.library_calls import FRAME, LibraryTime, is_program, library_time
from perfwrap.measures.loop.model_work import MODEL_PARTS, is_model_constant, machine_slowdown, model_step_ns
from perfwrap.measures.loop.python_gaps import WAITING_OPERATION
from perfwrap.measures.loop.slowing import last_steps
from perfwrap.measures.loop.stacks import ENOUGH, OUTSIDE, HotFunction, Sampled
from perfwrap.measures.loop.trend import GROUPS, MIN_FACTOR, MIN_OWN_FACTOR, Numbers, Trend, find_trend
from perfwrap.measures.steps.phases import Phases
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

Place = tuple[str, int, str]
"""File, line and function of a frame."""

MODEL_OPERATIONS = (*MODEL_PARTS, "zero_grad", "clip")
"""The model's training: the samples with which a line's samples are compared."""
OWN_OPERATIONS = ("save",)
"""Operations in which a line may grow, besides the program's own code: a checkpoint may contain a history."""
CLAIMED_PARTS = ("python", "checkpoint", "validation", "sync", "gc")
MAX_SHARED = 0.05
"""Samples of the model below a line, over the line's own samples, up to which the line is not one that trains."""
MIN_EXTRA_SHARE = 0.8
"""Share of the largest extra time from which the innermost line is named instead of its callers."""
MIN_SAMPLES = 24
"""Minimum number of samples of the line."""
MIN_PER_GROUP = 3
"""Minimum number of samples of the model per group, on average."""
LONG_SAMPLES = 3.0
"""Mean number of samples of one occurrence from which a group consists of whole occurrences: groups of equal time would
have one more or one less of them by chance."""
MAX_SHIFT = 0.1
"""Up to this distance from the middle of the loop, in shares of its steps, the median validation shows that validations
are evenly spread: more frequent ones are not longer ones."""
MIN_PAUSE_NS = 1_000_000
"""Garbage collections from this duration are left out: they grow with all objects, whichever line they interrupt."""
MIN_MAIN_SHARE = 0.5
"""Share of the samples of all that is not training that one line must lead to."""
MAX_LINES = 2
"""How many lines are named."""
LENGTH = pl.col("end") - pl.col("start")


class GrowingLine(Struct, frozen=True):
    """A line with its growth over the steady loop; times are means per step, also if it runs rarely."""

    line: Line
    samples: int
    library: LibraryTime | None
    first_ns: float
    last_ns: float
    share: float
    """The extra time compared with the start, over the account."""
    is_linear: bool
    claims: pl.Expr | None
    """Segments of the account in which the line runs, in the last steps; None if it is in none of them."""
    stacks: frozenset[str]


class _Samples(Struct, frozen=True):
    """The samples of the training thread in the steady loop, in order."""

    time: Numbers
    stack: tuple[str, ...]
    weight: Numbers
    is_model: Numbers
    is_own: Numbers
    in_validation: Numbers


def find_growing_lines(evidence: Evidence, trainer: Trainer) -> tuple[GrowingLine, ...]:
    """Return the lines that grow while the model's work is constant, most extra time first.

    None are returned if the model's work grows too: longer inputs are more work everywhere.
    """
    account = evidence.get(find_account, trainer)
    samples = _samples(evidence, trainer, account)
    if not samples.is_model.any() or not evidence.get(is_model_constant, trainer):
        return ()
    found: list[GrowingLine] = []
    left = _candidates(evidence, trainer, samples)
    while left and len(found) < MAX_LINES:
        trends = {
            place: trend
            for place, rows in left.items()
            if (trend := _trend(evidence, trainer, samples, rows))
        }
        if not trends:
            break
        place = _innermost(trends, left, samples)
        found.append(
            _line(account, place, left[place], trends[place], samples, model_step_ns(evidence, trainer))
        )
        taken = left[place]
        left = {other: rows for other, rows in left.items() if not (rows & taken).any()}
    return tuple(sorted(found, key=lambda line: -line.share))


def find_main_line(evidence: Evidence, trainer: Trainer, since: int) -> Sampled | None:
    """Return the samples since a moment of all that is not training, and the innermost line that leads to most of them.

    No function is in it if there is no such line, or if it had as many samples before; None with too few samples.
    """
    samples = _samples(evidence, trainer, evidence.get(find_account, trainer))
    late = samples.is_own & (samples.time >= since)
    whole = int(samples.weight[late].sum())
    if whole < ENOUGH:
        return None
    found = {}
    for place, rows in _candidates(evidence, trainer, samples, ENOUGH).items():
        after, before = (int(samples.weight[rows & each].sum()) for each in (late, ~late))
        if after >= MIN_MAIN_SHARE * whole and after >= MIN_FACTOR * before:
            found[place] = (_depth(place, rows, samples), after)
    if not found:
        return Sampled(whole, (), OUTSIDE)
    place = max(found, key=lambda each: found[each])
    stacks = [(samples.stack[at], int(samples.weight[at])) for at in np.flatnonzero(late)]
    file, line, function = place
    count = found[place][1]
    hottest = HotFunction(Line(file, line, function), count, count, library_time(stacks, file, line))
    return Sampled(whole, (hottest,), OUTSIDE)


def _samples(evidence: Evidence, trainer: Trainer, account: Account) -> _Samples:
    """Return py-spy's samples without those in garbage collections."""
    stacks = evidence.timeline.stacks
    rows = stacks.filter(pl.col("track") == trainer.thread, pl.col("source") == OUTSIDE).sort("time")
    rows = rows.filter(pl.Series(account.holds(rows["time"].to_numpy()), dtype=pl.Boolean))
    pauses = thread_spans(evidence.timeline, trainer).filter(
        pl.col("category") == "gc", pl.col("duration") >= MIN_PAUSE_NS
    )
    joined = rows.join_asof(
        pauses.select(time="start", until=pl.col("start") + pl.col("duration")).sort("time"), on="time"
    )
    rows = joined.filter((pl.col("time") >= pl.col("until")).fill_null(True))
    phases: Phases = evidence.get(find_steps, trainer).phases
    in_validation = phases.contain(rows["time"].to_numpy())
    operation = rows["operation"]
    own = operation.is_null() | operation.is_in(OWN_OPERATIONS)
    return _Samples(
        time=rows["time"].to_numpy(),
        stack=tuple(rows["stack"].to_list()),
        weight=rows["weight"].to_numpy().astype(np.float64),
        is_model=operation.is_in(MODEL_OPERATIONS).fill_null(False).to_numpy() & ~in_validation,
        is_own=own.to_numpy(),
        in_validation=in_validation,
    )


def _candidates(
    evidence: Evidence, trainer: Trainer, samples: _Samples, least: int = MIN_SAMPLES
) -> dict[Place, Numbers]:
    """Return the lines of the program with enough samples below them, and which samples these are.

    Lines that lead to the model's training are left out, and lines that wait for a GPU or for other ranks.
    """
    numbers = {stack: number for number, stack in enumerate(dict.fromkeys(samples.stack))}
    number = np.array([numbers[stack] for stack in samples.stack])
    sums = [
        np.bincount(number, samples.weight * flags, len(numbers))
        for flags in (samples.is_own, samples.is_model)
    ]
    through: dict[Place, list[int]] = {}
    for stack, at in numbers.items():
        for place in _places(stack):
            through.setdefault(place, []).append(at)
    waiting = _waiting_lines(evidence, trainer)
    found = {}
    for place, stacks in through.items():
        own, model = (float(each[stacks].sum()) for each in sums)
        if own >= least and model <= MAX_SHARED * own and place[:2] not in waiting:
            found[place] = samples.is_own & np.isin(number, stacks)
    return found


def _places(stack: str) -> dict[Place, None]:
    """Return the frames of the program in a stack, from the outermost, each once."""
    frames = ((match["file"], int(match["line"]), match["function"]) for match in FRAME.finditer(stack))
    return dict.fromkeys(frame for frame in frames if is_program(frame[0]))


def _waiting_lines(evidence: Evidence, trainer: Trainer) -> set[tuple[str, int]]:
    """Return the lines whose time is that of others: of other ranks, and of a GPU."""
    waits = pl.col("operation") == WAITING_OPERATION
    if evidence.get(trains_on_gpu, trainer):
        waits |= pl.col("category").is_in(["sync", "transfer"])
    spans = thread_spans(evidence.timeline, trainer).filter(waits, pl.col("line").is_not_null())
    return set(spans.select("file", "line").unique().iter_rows())


def _trend(evidence: Evidence, trainer: Trainer, samples: _Samples, rows: Numbers) -> Trend | None:
    """Return the growth of some samples; None if there is none, or only more validations."""
    own = samples.weight * rows
    if (own * samples.in_validation).sum() > own.sum() / 2 and not _validates_evenly(evidence, trainer):
        return None
    control = samples.weight * samples.is_model
    group = _groups(own, control)
    count = int(group.max()) + 1
    if control.sum() < MIN_PER_GROUP * count:
        return None
    sums = [np.bincount(group, weights=weights, minlength=count) for weights in (own, control)]
    found = find_trend(sums[0], sums[1])
    slowdown = evidence.get(machine_slowdown, trainer)
    return found if found and found.last * slowdown >= MIN_OWN_FACTOR * found.first else None


def _groups(own: Numbers, control: Numbers) -> Numbers:
    """Return the group of each sample.

    Groups have equal control time. If the code runs rarely and long, they have equally many of its occurrences and the
    control time before each of them; what follows the last one is left to the last group.
    """
    is_own, is_control = own > 0, control > 0
    elapsed = np.cumsum(control)
    # A new occurrence begins at the first own sample after a control sample.
    starts = np.flatnonzero(np.diff(elapsed[is_own], prepend=-1.0) > 0)
    if own.sum() >= LONG_SAMPLES * starts.size:
        ends = np.flatnonzero(is_own)[np.append(starts[1:], is_own.sum()) - 1]
        occurrence = np.minimum(np.searchsorted(ends, np.arange(own.size)), ends.size - 1)
        return np.asarray(occurrence * min(GROUPS, starts.size) // ends.size)
    middle = elapsed - np.where(is_control, control / 2, 0)
    return np.asarray(np.minimum((middle * GROUPS / elapsed[-1]).astype(np.int64), GROUPS - 1))


def _validates_evenly(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether validations are spread evenly over the steps of the loop."""
    account, steps = evidence.get(find_account, trainer), evidence.get(find_steps, trainer)
    starts = steps.phases.start[account.holds(steps.phases.start)]
    step = np.searchsorted(steps.table["end"].to_numpy(), starts)
    middle = steps.warm_up_steps + steps.steady / 2
    return bool(starts.size) and abs(float(np.median(step)) - middle) <= MAX_SHIFT * steps.steady


def _innermost(trends: dict[Place, Trend], rows: dict[Place, Numbers], samples: _Samples) -> Place:
    """Return the innermost line with nearly all of the largest growth."""

    def extra(place: Place) -> float:
        trend = trends[place]
        return trend.last - trend.first

    most = max(trends, key=extra)
    chosen = [
        place
        for place in trends
        if extra(place) >= MIN_EXTRA_SHARE * extra(most) and (rows[place] & rows[most]).any()
    ]
    return max(chosen, key=lambda place: (_depth(place, rows[place], samples), extra(place)))


def _depth(place: Place, rows: Numbers, samples: _Samples) -> int:
    """Return how many frames of the program are above a line, at its first sample."""
    return list(_places(samples.stack[int(np.flatnonzero(rows)[0])])).index(place)


def _line(
    account: Account, place: Place, rows: Numbers, trend: Trend, samples: _Samples, model_ns: float
) -> GrowingLine:
    """Return the figures of one line."""
    file, line, function = place
    weights: dict[str, int] = {}
    for at in np.flatnonzero(rows):
        weights[samples.stack[at]] = weights.get(samples.stack[at], 0) + int(samples.weight[at])
    first_ns, last_ns = trend.first * model_ns, trend.last * model_ns
    steps = account.segments["step"].n_unique()
    share = (last_ns - first_ns) / 2 * steps / max(1, account.total_ns)
    claims = _segments(weights)
    claimed = account.share_of(claims)
    share = min(share, claimed) if claimed else share
    return GrowingLine(
        line=Line(file, line, function),
        samples=sum(weights.values()),
        library=library_time(list(weights.items()), file, line),
        first_ns=first_ns,
        last_ns=last_ns,
        share=share,
        is_linear=trend.is_linear,
        claims=claims & (pl.col("step") >= last_steps(account, claims, share * account.total_ns))
        if claimed
        else None,
        stacks=frozenset(weights),
    )


def _segments(stacks: dict[str, int]) -> pl.Expr:
    """Return which segments of the account some stacks may be in, by the lines of the program in them."""
    places = {place for stack in stacks for place in _places(stack)}
    return pl.col("part").is_in(CLAIMED_PARTS) & reduce(or_, (_is_in(place) for place in sorted(places)))


def _is_in(place: Place) -> pl.Expr:
    """Return which segments a line of the program is in: its own event, or the code between two events around it."""
    file, line, function = place
    # Some Python versions name the class, and comprehensions as functions of their own.
    outer = pl.col("function").str.replace(r"(\.<locals>\.<\w+>)+$", "")
    same = (pl.col("file") == file) & (outer.str.split(".").list.last() == function.rpartition(".")[2])
    after, until = pl.col("line"), pl.col("until_line")
    between = (
        pl.when(until.is_null())
        .then(after <= line)
        .when(after <= until)
        .then((after <= line) & (until >= line))
        .otherwise((after <= line) | (until >= line))
    )
    own_code = pl.col("operation").is_null()
    return same & ((own_code & between) | (~own_code & (after == line)))
