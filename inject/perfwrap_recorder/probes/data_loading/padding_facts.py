"""Writes how much of the batches of tokens is padding. Replaces nothing; forward.py and data_loader.py call it.

It reads integer tensors on the CPU, one row per sequence, that models with embeddings are called with, and that loaders
return: the first few, then more and more rarely. Padding is a number with which rows end (or begin), in different
lengths, and which is rare elsewhere. MIN_COLUMNS or more columns of only padding are wasted. model_facts.py writes
whether a model skips them by itself, as far as that is visible.
"""

from __future__ import annotations

from perfwrap_recorder import journal_format
from perfwrap_recorder.clock import now
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import batches, tensor_access

LOOKS = 16
"""Batches of models that are read at the beginning, and batches of loaders."""
MORE_LOOKS = 2
"""Batches that are read after 10, 20, 40, 80... seconds."""
MIN_COLUMNS = 8
"""Fewer columns of the same number in all rows are usual: marks of a beginning or an end."""
MIN_WIDTH = 16
MIN_ROWS = 2
MAX_ELEMENTS = 500_000
"""Larger batches would take milliseconds."""
MAX_NAMES = 16

left = {"model": LOOKS, "loader": LOOKS}  # batches that are still read in these ten seconds
_intervals = 0
_seen = {}  # name of a model or loader -> Seen


class Seen:
    """The measurements of one model's or loader's batches, with the widest and the narrowest."""

    __slots__ = ("beside", "cells", "columns", "looks", "narrowest", "numbers", "widest", "width")

    def __init__(self):
        self.looks = self.width = self.columns = self.numbers = self.cells = self.widest = self.beside = 0
        self.narrowest = MAX_ELEMENTS


def install():
    """Read again after longer and longer times."""
    journal.every_interval.add(_look_again)


def note(torch, whose, name, held):
    """Read the arguments of a model, or the batch of a loader."""
    begin = now()
    tensors, is_all = batches.tensors_in(torch, held)
    found = tensor_access.calculate(torch, _look, torch, tensors)
    if found is tensor_access.LATER:
        return
    left[whose] -= 1
    found, sizes = found
    if found and (name in _seen or len(_seen) < MAX_NAMES):
        # If columns of one tensor are not padding, those positions count in the others, too.
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
    """Return the measurements of tensors of tokens, and the sizes of tensors of other numbers."""
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
        and tensor.shape[0] >= MIN_ROWS
        and MIN_WIDTH <= tensor.shape[1] <= tensor_access.ALONE
        and tensor.numel() <= MAX_ELEMENTS
        and tensor.device.type == "cpu"
    )


def _measure(torch, tokens):
    """Return (rows, width, columns of padding only, padded cells); None if the tensor holds no tokens.

    Those are masks, and positions, which are the same in all rows.
    """
    at_once = tensor_access.ALONE // tokens.shape[1]
    parts = [tokens[first : first + at_once] for first in range(0, tokens.shape[0], at_once)]
    if all(
        0 <= tensor_access.item(torch, part.min()) and tensor_access.item(torch, part.max()) <= 1
        for part in parts
    ):
        return None
    if all(tensor_access.item(torch, (part == parts[0][:1]).all()) for part in parts):
        return None
    at_end = _edge(torch, [part.flip(1) for part in parts])
    return (*tokens.shape, *max(at_end, _edge(torch, parts)))


def _edge(torch, parts):
    """Return the number of columns and cells of padding with which rows begin."""
    rows, width = sum(len(part) for part in parts), parts[0].shape[1]
    padding = tensor_access.item(torch, parts[0][0, 0])
    columns, cells, all_cells = width, 0, 0
    for part in parts:
        same = (part == padding).to(torch.int64)
        all_cells += tensor_access.item(torch, same.sum())
        lengths = same.cumprod(1).sum(1)
        cells += tensor_access.item(torch, lengths.sum())
        columns = min(columns, tensor_access.item(torch, lengths.min()))
    is_padding = MIN_COLUMNS <= columns < width and cells > columns * rows and all_cells - cells <= rows
    return (columns, cells) if is_padding else (0, 0)


def _look_again():
    global _intervals
    _intervals += 1
    if not _intervals & (_intervals - 1):
        for whose in left:
            left[whose] = max(left[whose], MORE_LOOKS)
