"""Says how much of the batches of tokens is padding. Replaces nothing; forward.py and data_loader.py ask.

Looked at are tensors of whole numbers on the CPU, a row for each sequence, that models with embeddings are called
with, and that loaders give: the first few, and ever more rarely then. Padding is what rows end (or begin) with, more
of it in some than in others, where the same number hardly stands elsewhere. Columns of padding only, LEAST or more,
are worth nothing to anybody. Whether a model leaves them out by itself model_facts.py says, as far as it can.
"""

from __future__ import annotations

from perfwrap_recorder import batches, journal, journal_format, quiet
from perfwrap_recorder.clock import now

LOOKS = 16
"""So many batches that models take are looked at in the beginning, and as many that loaders give."""
MORE_LOOKS = 2
"""And so many after 10, 20, 40, 80... seconds."""
LEAST = 8
"""Fewer columns of the same number in all rows happen by themselves: marks of a beginning or an end."""
LEAST_WIDTH = 16
LEAST_ROWS = 2
MOST_ELEMENTS = 500_000
"""Larger batches would take milliseconds."""
MOST_NAMES = 16

left = {"model": LOOKS, "loader": LOOKS}  # batches to look at before the next ten seconds
_intervals = 0
_seen = {}  # name of a model or loader -> Seen


class Seen:
    """What was seen of one model's or loader's batches; the widest and the narrowest of them."""

    __slots__ = ("beside", "cells", "columns", "looks", "narrowest", "numbers", "widest", "width")

    def __init__(self):
        self.looks = self.width = self.columns = self.numbers = self.cells = self.widest = self.beside = 0
        self.narrowest = MOST_ELEMENTS


def install():
    """Look again after ever longer times."""
    journal.every_interval.add(_look_again)


def note(torch, whose, name, held):
    """Look at what a model was called with, or at what a loader gave."""
    begin = now()
    tensors, is_all = batches.tensors_in(torch, held)
    found = quiet.calculate(torch, _look, torch, tensors)
    if found is quiet.LATER:
        return
    left[whose] -= 1
    found, sizes = found
    if found and (name in _seen or len(_seen) < MOST_NAMES):
        # That one tensor's columns are not padding says that those positions count in the others, too.
        rows, width, columns, cells = min(found, key=lambda each: each[2] / each[1])
        seen = _seen.setdefault(name, Seen())
        seen.looks += 1
        seen.width += width
        seen.columns += columns
        seen.numbers += rows * width
        seen.cells += cells
        seen.narrowest, seen.widest = min(seen.narrowest, width), max(seen.widest, width)
        seen.beside += not is_all or any(size > rows * width for size in sizes)
        counts = seen.looks, seen.width, seen.columns, seen.numbers, seen.cells
        more = seen.narrowest, seen.widest, seen.beside
        journal.fact("padding/" + name, "%d %d %d %d %d %d %d %d" % (*counts, *more))
    journal.record(begin, now() - begin, 0, journal.text("padding"), journal_format.PERFWRAP)


def _look(torch, tensors):
    """Return what is measured of tensors of tokens, and the sizes of those that hold other numbers."""
    if torch.is_inference_mode_enabled():
        return [], []
    found = [_measure(torch, each) for each in tensors if _is_tokens(torch, each)]
    others = [each for each in tensors if not each.is_nested and each.is_floating_point()]
    return [each for each in found if each], [each.numel() for each in others]


def _is_tokens(torch, tensor):
    return (
        not tensor.is_nested
        and tensor.layout is torch.strided
        and tensor.dtype in (torch.int64, torch.int32)
        and tensor.dim() == 2
        and tensor.shape[0] >= LEAST_ROWS
        and LEAST_WIDTH <= tensor.shape[1] <= quiet.ALONE
        and tensor.numel() <= MOST_ELEMENTS
        and tensor.device.type == "cpu"
    )


def _measure(torch, tokens):
    """Return (rows, width, columns of padding only, numbers that are padding); None of what is no tokens.

    That is a mask, and what is the same in all rows: positions.
    """
    at_once = quiet.ALONE // tokens.shape[1]
    parts = [tokens[first : first + at_once] for first in range(0, tokens.shape[0], at_once)]
    if all(0 <= quiet.item(torch, part.min()) and quiet.item(torch, part.max()) <= 1 for part in parts):
        return None
    if all(quiet.item(torch, (part == parts[0][:1]).all()) for part in parts):
        return None
    at_end = _edge(torch, [part.flip(1) for part in parts])
    return (*tokens.shape, *max(at_end, _edge(torch, parts)))


def _edge(torch, parts):
    """Return how many columns, and numbers, are the padding that rows begin with."""
    rows, width = sum(len(part) for part in parts), parts[0].shape[1]
    padding = quiet.item(torch, parts[0][0, 0])
    columns, cells, all_cells = width, 0, 0
    for part in parts:
        same = (part == padding).to(torch.int64)
        all_cells += quiet.item(torch, same.sum())
        lengths = same.cumprod(1).sum(1)
        cells += quiet.item(torch, lengths.sum())
        columns = min(columns, quiet.item(torch, lengths.min()))
    is_padding = LEAST <= columns < width and cells > columns * rows and all_cells - cells <= rows
    return (columns, cells) if is_padding else (0, 0)


def _look_again():
    global _intervals
    _intervals += 1
    if not _intervals & (_intervals - 1):
        for whose in left:
            left[whose] = max(left[whose], MORE_LOOKS)
