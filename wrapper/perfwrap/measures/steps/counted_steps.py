"""Adds the steps of sections without detail, whose operations were only counted, to the steps in detail."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.loop_events import OPTIMIZERS, Flags, Integers, caller
from perfwrap.measures.steps.step_ends import StepEnds
from perfwrap.measures.steps.thinned import section_edges

COUNTED_IN_PAUSES = ("optimizer", "data")
"""Operations that are counted while detailed recording is paused."""


def add_counted(found: StepEnds, spans: pl.DataFrame, sums: pl.DataFrame) -> tuple[Integers, Flags, bool]:
    """Return the ends of all steps, which of these steps were recorded in detail, and whether their number is exact.

    Where a counted step ended is unknown, so the steps of a section are spaced evenly.
    """
    exact = _exact_counts(found, spans, sums)
    known, sections = exact or (found.ends, _by_ratio(found, spans, sums))
    is_exact = (
        exact is not None or _per_step(found, spans, found.operations) == 1 or not sections["count"].sum()
    )
    pieces = [known]
    total = 0.0
    for start, end, count in sections.iter_rows():
        # Rounding the running total keeps the errors of many sections from adding up.
        steps = round(total + count) - round(total)
        total += count
        before = known[: np.searchsorted(known, end)]
        begin = max(start, int(before[-1]) if before.size else found.start)
        if steps and end > begin:
            passed = (end - begin) * (np.arange(1, steps + 1) / steps)
            pieces.append(begin + passed.astype(np.int64))
    ends = np.concatenate(pieces)
    order = np.argsort(ends, kind="stable")
    return ends[order], (order < known.size), is_exact


def _by_ratio(found: StepEnds, spans: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
    """Return start and end of the sections, and their steps by the operations per step of the detailed ones.

    Counted are the operations of the anchor or, if these are not counted in pauses, forwards: they end the recorder's
    steps then.
    """
    operations = found.operations
    if not any(operation in COUNTED_IN_PAUSES for operation in operations):
        uncounted = sums["rest"].any() and sums.filter(pl.col("operation").is_in(operations)).is_empty()
        operations = ("forward",) if uncounted else operations
    is_anchor = pl.col("operation").is_in(operations)
    per_step = _per_step(found, spans, operations)
    counted = pl.col("count").filter(is_anchor).sum() / max(per_step, 1e-9)
    return sums.group_by("start", "end").agg(counted).sort("start")


def _per_step(found: StepEnds, spans: pl.DataFrame, operations: Sequence[str]) -> float:
    """Return how many of these operations a detailed step has on average."""
    return spans.filter(pl.col("operation").is_in(operations)).height / found.ends.size


class _Groups(Struct, frozen=True):
    """The steps of optimizers, or scalers, in detail: the name and the number of the step of each, in order."""

    names: tuple[str, ...]
    steps: Integers
    after: Flags
    """Which steps follow a section: a part of them may have been in it."""
    before: Flags
    """Which steps precede a section."""

    def one_of_each(self, choice: int) -> frozenset[str]:
        """Return the optimizers that are the first (0) or the last (-1) of whole steps.

        Empty if any step has two of them, or a whole one has none: they do not tell the number of steps.
        """
        whole = ~self.after & ~self.before
        chosen = {names[choice] for step, names in self._by_step().items() if whole[step]}
        made = np.zeros(whole.size, dtype=np.int64)
        np.add.at(made, self.steps, np.array([name in chosen for name in self.names], dtype=np.int64))
        is_one = whole.any() and (made[whole] == 1).all() and (made <= 1).all()
        return frozenset(chosen) if is_one else frozenset()

    def without(self, chosen: frozenset[str]) -> Flags:
        """Return which steps have none of these optimizers."""
        lacks = np.ones(self.after.size, dtype=np.bool_)
        lacks[self.steps[[name in chosen for name in self.names]]] = False
        return lacks

    def _by_step(self) -> dict[int, Sequence[str]]:
        edges = np.flatnonzero(np.diff(self.steps, prepend=-1, append=self.after.size))
        return {int(self.steps[at]): self.names[at:to] for at, to in pairwise(edges.tolist())}


def _exact_counts(
    found: StepEnds, spans: pl.DataFrame, sums: pl.DataFrame
) -> tuple[Integers, pl.DataFrame] | None:
    """Return the ends of the detailed steps, and the sections with the exact number of their steps.

    Possible if each whole step has exactly one step of some gradient scalers or optimizers: then their counts are the
    number of steps. A section may begin or end between the optimizers of one step, or within the step of a scaler. Such
    a step counts where the chosen one was, and if that is in the section, the section ends with the step.
    """
    if sums.is_empty():
        return None
    for operation in OPTIMIZERS[::-1]:  # scalers first: a scaler may skip its optimizer
        counts = _counts_of(operation, found, spans, sums)
        if counts is not None:
            return counts
    return None


def _counts_of(
    operation: str, found: StepEnds, spans: pl.DataFrame, sums: pl.DataFrame
) -> tuple[Integers, pl.DataFrame] | None:
    """Return what ``_exact_counts`` does, by the steps of scalers or by those of optimizers.

    In a section other optimizers may go on alone: as an optimizer steps once in a step, the one that stepped most
    counts the steps there.
    """
    groups = _groups(operation, found, spans, sums)
    if groups is None:
        return None
    candidates = [chosen for chosen in map(groups.one_of_each, (0, -1)) if chosen]
    if not candidates:
        return None
    is_counted, name = pl.col("operation") == operation, _name_of(operation)
    if not sums.filter(is_counted).select(name.is_in(list(set(groups.names))))["name"].all():
        return None
    counts = _counts_in_sections(sums, is_counted, name, candidates)
    best = max(range(len(candidates)), key=lambda number: counts[str(number)].sum())
    partial = groups.without(candidates[best])
    # A difference of one is a section that begins or ends within a step.
    most, count = pl.col("most"), pl.col(str(best))
    sections = counts.select(
        "start", "end", pl.when(most - count > 1).then(most).otherwise(count).alias("count")
    )
    tails = found.ends[partial & groups.after]
    ends, next_start = sections["end"].to_numpy(), np.append(sections["start"].to_numpy()[1:], np.inf)
    place = np.minimum(np.searchsorted(tails, ends), max(0, tails.size - 1))
    tail = tails[place] if tails.size else ends
    reached = np.where((tail >= ends) & (tail <= next_start), tail, ends)
    return found.ends[~partial], sections.with_columns(pl.Series("end", reached, dtype=pl.Int64))


def _counts_in_sections(
    sums: pl.DataFrame, is_counted: pl.Expr, name: pl.Expr, candidates: Sequence[frozenset[str]]
) -> pl.DataFrame:
    """Return for each section how often each candidate stepped, and how often the optimizer that did so most."""
    section = ("start", "end")
    by_name = sums.group_by(*section, name.alias("which")).agg(pl.col("count").filter(is_counted).sum())
    by_candidate = [
        pl.col("count").filter(pl.col("which").is_in(list(chosen))).sum().cast(pl.Float64).alias(str(number))
        for number, chosen in enumerate(candidates)
    ]
    most = pl.col("count").max().cast(pl.Float64).alias("most")
    return by_name.group_by(*section).agg(*by_candidate, most).sort("start")


def _name_of(operation: str) -> pl.Expr:
    """Return what distinguishes optimizers: their names; scalers have one name, so the line that calls them."""
    if operation == "optimizer":
        return pl.col("name").fill_null("")
    return caller().alias("name")


def _groups(operation: str, found: StepEnds, spans: pl.DataFrame, sums: pl.DataFrame) -> _Groups | None:
    """Return the steps of optimizers, or scalers, in detail; None if there are none, or other operations end steps."""
    if operation not in found.operations:
        return None
    stepped = spans.filter(pl.col("operation") == operation).sort("start")
    steps = np.searchsorted(found.ends, (stepped["start"] + stepped["duration"]).to_numpy())
    if not steps.size or steps[-1] >= found.ends.size:
        return None
    starts = section_edges(sums)[::2]
    after = np.zeros(found.ends.size + 1, dtype=np.bool_)
    after[np.searchsorted(found.ends, starts, side="right")] = True
    names = stepped.select(_name_of(operation))["name"]
    return _Groups(tuple(names.to_list()), steps, after[:-1], after[1:])
