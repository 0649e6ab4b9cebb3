"""Operations of one step that need not run, as the measures of wasted work return them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from perfwrap.measures.account.lines import Line


class Waste(Struct, frozen=True):
    """Wasted operations with one cause.

    ``share`` is the part of the step that a fix removes; it is smaller than what the operations cost if a part of them
    remains.
    """

    operations: tuple[int, ...]
    share: float
    lines: tuple[Line, ...]
    """The lines to change, the most expensive first."""
    callers: tuple[Line, ...] = ()
    """Lines that call those."""
    other: Line | None = None
    """The other end: where the same was computed first, for example."""
    names: tuple[tuple[str, int], ...] = ()
    """The functions of the operations and how often each is called, the most frequent first."""
    count: int = 0
    """How often the same is done in a step, or how many turns a loop has."""
    used: float | None = None
    """The part of the results that is used."""
    converted: bool = False
    """Whether Python or NumPy values are converted each time."""
    certain_share: float | None = None
    """The part of ``share`` that any fix removes, if it is smaller."""
    in_recurrence: bool = False
    """Whether other work of the same loop follows from the turn before."""
    is_parallel: bool = False
    """Whether modules are called one after the other on the same tensor."""
    in_backward: bool = False
    """Whether the work is that of a backward pass."""


def join_alike(wastes: Iterable[Waste]) -> list[Waste]:
    """Return the wastes, those at the same lines as one: each head of an attention layer does the same, for example."""
    joined: dict[object, Waste] = {}
    for waste in wastes:
        key = frozenset(waste.lines), waste.other
        first = joined.get(key)
        joined[key] = waste if first is None else _sum(first, waste)
    return list(joined.values())


def _sum(one: Waste, two: Waste) -> Waste:
    return replace(
        one,
        operations=(*one.operations, *two.operations),
        share=one.share + two.share,
        callers=tuple(dict.fromkeys((*one.callers, *two.callers))),
        names=(*one.names, *two.names),
        certain_share=None
        if one.certain_share is None or two.certain_share is None
        else one.certain_share + two.certain_share,
    )
