"""Whether an edited program computes the same: the losses and parameters of its first steps against the original's.

All runs are seeded alike. What counts as rounding is measured: the program itself with another number of threads, and
with parameters changed by a millionth at the start. Where an edit moves random transforms into workers, the numbers are
others, and the bound is the program itself with another seed from its first batch on, but only if the original draws
random numbers for its items.

A deviation may grow from step to step, so each step is compared with the largest of the bound so far. In chaotic
programs, such as those with Adam, rounding grows from the moment when it turns the direction of a first parameter. That
moment differs from run to run: from the second step on, the bound is that of LEAD steps later. Losses, the typical
deviation of parameters, and that of all together have a bound each: a changed loss or learning rate moves all
parameters at once, rounding only some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

Equality = Literal["identical", "rounding", "other random numbers", "changes the training", "unknown"]

Items = Literal["fixed", "random", ""]

KEPT: tuple[Equality, ...] = ("identical", "rounding", "other random numbers")
"""What is kept without ``--allow-numerics``."""

WORDS: dict[Equality, str] = {
    "identical": "the same bits",
    "rounding": "equal up to rounding",
    "other random numbers": "other random numbers",
    "changes the training": "changes the training",
    "unknown": "not comparable",
}

MIN_STEPS = 5
"""Steps that both runs must have."""
FLOOR = 1e-6
"""A relative deviation that is rounding in any program in single precision."""
UNORDERED = 1e-3
"""Up to this relative deviation, a second run with equal seeds differs by rounding: some operations on GPUs add up in
any order. A program that differs by more is not determined by its seeds."""
MARGIN = 4.0
"""A deviation may be this many times the measured bound, which is of a few runs."""
LEAD = 4
"""Steps that rounding may begin to grow earlier than in the runs of the bound."""
PREFIX, SEPARATOR = "values/", "\x1f"
ITEMS, DRAWS = "values/items", "values/draws"

Deviations = tuple[float, float, float]
"""The relative deviations of a step: of the loss, the typical one of parameters, and that of all of them together."""
NONE: Deviations = (0.0, 0.0, 0.0)


class StepValues(Struct, frozen=True):
    """The values after one step; None for what could not be read."""

    loss: float | None
    checksum: str
    norm: float | None
    products: tuple[float, ...]
    """The parameters' products with fixed vectors, each with other elements; empty if they could not be read."""


def read(timeline: Timeline | None) -> list[StepValues]:
    """Return the values of the steps of a run, from its first step on; they end where a step has none.

    Of several ranks or other processes that train, they are those of the main trainer.
    """
    known = _facts(timeline)
    found: list[StepValues] = []
    while (text := known.get(f"{PREFIX}{len(found) + 1}")) is not None:
        loss, checksum, norm, products = text.split(SEPARATOR)
        if not loss and not checksum:
            break
        numbers = tuple(float(word) for word in products.split())
        found.append(StepValues(_number(loss), checksum, _number(norm), numbers))
    return found


def items_of(timeline: Timeline | None) -> Items:
    """Return whether the program itself drew random numbers for the batches that it fetched; "" without any.

    Workers that return other items than ``fixed`` ones break the data set, e.g. by sharing the position in an open
    file. ``random`` items must not be kept.
    """
    said = _facts(timeline).get(ITEMS)
    return "fixed" if said == "fixed" else "random" if said == "random" else ""


def draws_of(timeline: Timeline | None) -> int:
    """Return how many random numbers persistent workers saved the program, which the comparison drew in its place."""
    return int(_facts(timeline).get(DRAWS) or 0)


def _facts(timeline: Timeline | None) -> dict[str, str]:
    """Return the facts of the main trainer's process."""
    main = Evidence(timeline).get(find_main_trainer) if timeline is not None else None
    return facts_of(timeline, main.process) if timeline is not None and main is not None else {}


def compare(
    original: Sequence[StepValues], edited: Sequence[StepValues], *bounds: Sequence[StepValues]
) -> tuple[bool | None, float]:
    """Return whether the edited run stays within the widest bound, and its largest relative deviation.

    None if there are too few steps to compare. ``bounds`` are the original under other conditions.
    """
    apart = deviations(original, edited)
    if len(apart) < MIN_STEPS:
        return None, math.nan
    curves = [deviations(original, bound) for bound in bounds]
    is_within = True
    for place, step in enumerate(apart):
        until = place + 1 + (LEAD if place else 0)
        known = [NONE, *(one for curve in curves for one in curve[:until] if max(one) < math.inf)]
        allowed = [max(FLOOR, MARGIN * max(each)) for each in zip(*known, strict=True)]
        is_within = is_within and all(one <= most for one, most in zip(step, allowed, strict=True))
    return is_within, max(map(max, apart))


def is_repeatable(original: Sequence[StepValues], again: Sequence[StepValues]) -> bool:
    """Return whether the program computes the same once more, up to what unordered sums on a GPU change."""
    apart = deviations(original, again)
    return len(apart) >= MIN_STEPS and all(max(step) <= UNORDERED for step in apart)


def is_identical(original: Sequence[StepValues], edited: Sequence[StepValues]) -> bool:
    """Return whether all common steps, at least MIN_STEPS, have the same bits."""
    pairs = list(zip(original, edited, strict=False))
    return len(pairs) >= MIN_STEPS and all(
        _text(one.loss) == _text(other.loss) and one.checksum == other.checksum for one, other in pairs
    )


def deviations(original: Sequence[StepValues], other: Sequence[StepValues]) -> list[Deviations]:
    """Return the relative deviations of the common steps; infinity where only one of two values is a number."""
    return [_deviation(one, two) for one, two in zip(original, other, strict=False)]


def _deviation(original: StepValues, other: StepValues) -> Deviations:
    loss, norm = _relative(original.loss, other.loss), _relative(original.norm, other.norm)
    if len(original.products) != len(other.products):
        return loss, math.inf, math.inf
    apart = sorted(_difference(one, two) for one, two in zip(original.products, other.products, strict=True))
    # The products of a vector with that many fixed vectors: their squares add up to about half of its own.
    scale = abs(original.norm or 0.0) / math.sqrt(2) or 1.0
    typical = apart[len(apart) // 2] * math.sqrt(len(apart)) / scale if apart else 0.0
    return loss, typical, max(norm, math.hypot(*apart) / scale)


def _relative(one: float | None, two: float | None) -> float:
    if one is None or two is None:
        return 0.0 if one is two else math.inf
    difference = _difference(one, two)
    return difference / max(abs(one), abs(two)) if 0 < difference < math.inf else difference


def _difference(one: float, two: float) -> float:
    """Return by how much two numbers differ; infinity where only one of them is finite."""
    if _text(one) == _text(two):
        return 0.0
    return abs(one - two) if math.isfinite(one) and math.isfinite(two) else math.inf


def _text(value: float | None) -> str:
    """Return a text that is the same for the same bits, also of NaN."""
    return repr(value)


def _number(text: str) -> float | None:
    return float(text) if text else None
