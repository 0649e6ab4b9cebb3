"""Whether an edited program computes the same: the losses and parameters of its first steps against the original's.

All runs are seeded alike. What counts as rounding is measured: the program itself with another number of threads.
Where an edit moves random transforms into workers, the numbers are others, and the bound is the program itself with
another seed from its first batch on, but only if the original draws random numbers for its items. A deviation may grow
from step to step, so each step is compared with the largest of the bound so far.
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
"""A deviation may be this many times the measured bound, which is of one run."""
PREFIX, SEPARATOR = "values/", "\x1f"
ITEMS = "values/items"


class StepValues(Struct, frozen=True):
    """The values after one step; None for what could not be read."""

    loss: float | None
    checksum: str
    norm: float | None
    product: float | None

    @property
    def numbers(self) -> tuple[float | None, float | None, float | None]:
        """The values that rounding changes a little."""
        return self.loss, self.norm, self.product


def read(timeline: Timeline | None) -> list[StepValues]:
    """Return the values of the steps of a run, from its first step on; they end where a step has none.

    Of several ranks or other processes that train, they are those of the main trainer.
    """
    known = _facts(timeline)
    found: list[StepValues] = []
    while (text := known.get(f"{PREFIX}{len(found) + 1}")) is not None:
        loss, checksum, norm, product = text.split(SEPARATOR)
        if not loss and not checksum:
            break
        found.append(StepValues(_number(loss), checksum, _number(norm), _number(product)))
    return found


def items_of(timeline: Timeline | None) -> Items:
    """Return whether the program itself drew random numbers for the batches that it fetched; "" without any.

    Workers that return other items than ``fixed`` ones break the data set, e.g. by sharing the position in an open
    file. ``random`` items must not be kept.
    """
    said = _facts(timeline).get(ITEMS)
    return "fixed" if said == "fixed" else "random" if said == "random" else ""


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
    steps = min(len(original), len(edited))
    if steps < MIN_STEPS:
        return None, math.nan
    largest, allowed, is_within = 0.0, FLOOR, True
    for place in range(steps):
        known = [bound[place] for bound in bounds if place < len(bound)]
        allowed = max([allowed, *(MARGIN * deviation(original[place], one) for one in known)])
        apart = deviation(original[place], edited[place])
        largest = max(largest, apart)
        is_within = is_within and apart <= allowed
    return is_within, largest


def is_repeatable(original: Sequence[StepValues], again: Sequence[StepValues]) -> bool:
    """Return whether the program computes the same once more, up to what unordered sums on a GPU change."""
    pairs = list(zip(original, again, strict=False))
    return len(pairs) >= MIN_STEPS and all(deviation(one, other) <= UNORDERED for one, other in pairs)


def is_identical(original: Sequence[StepValues], edited: Sequence[StepValues]) -> bool:
    """Return whether all common steps, at least MIN_STEPS, have the same bits."""
    pairs = list(zip(original, edited, strict=False))
    return len(pairs) >= MIN_STEPS and all(
        _text(one.loss) == _text(other.loss) and one.checksum == other.checksum for one, other in pairs
    )


def deviation(original: StepValues, other: StepValues) -> float:
    """Return the largest relative deviation of a step's numbers; infinity where only one of them is a number."""
    apart = 0.0
    scale = abs(original.norm or 0.0)
    for index, (one, two) in enumerate(zip(original.numbers, other.numbers, strict=True)):
        if one is None and two is None or _text(one) == _text(two):
            continue
        if one is None or two is None or not math.isfinite(one) or not math.isfinite(two):
            return math.inf
        # The product with the fixed vector may be near zero by chance: it is compared with the norm.
        size = scale if index == 2 and scale else max(abs(one), abs(two))
        apart = max(apart, abs(one - two) / size)
    return apart


def _text(value: float | None) -> str:
    """Return a text that is the same for the same bits, also of NaN."""
    return repr(value)


def _number(text: str) -> float | None:
    return float(text) if text else None
