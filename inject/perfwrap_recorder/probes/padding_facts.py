"""Says how much of the batches of tokens is padding. Replaces nothing; forward.py and data_loader.py ask.

Looked at are tensors of whole numbers on the CPU, a row for each sequence, that an outermost module or the training
takes: the first few, and ever more rarely then. Padding is what rows end (or begin) with, where all rows of a batch do
so with the same number, LEAST columns wide: those columns are worth nothing to anybody. What nobody can tell from
outside, whether the model leaves them out by itself, model_facts.py says as far as it can.
"""

from __future__ import annotations

from perfwrap_recorder import batches, journal, journal_format, quiet
from perfwrap_recorder.clock import now

LOOKS = 16
"""So many batches are looked at in the beginning."""
MORE_LOOKS = 2
"""And so many after 10, 20, 40, 80... seconds."""
LEAST = 8
"""Fewer columns of the same number in all rows happen by themselves: marks of a beginning or an end."""
LEAST_WIDTH = 16
LEAST_ROWS = 2
MOST_ELEMENTS = 1_000_000
"""Larger batches would take milliseconds."""
MOST_NAMES = 16

left = LOOKS  # batches to look at before the next ten seconds
_intervals = 0
_seen = {}  # name of a model or loader -> [looks, columns, those of padding only, numbers, those that are padding]


def install():
    """Look again after ever longer times."""
    journal.every_interval.add(_look_again)


def note(torch, name, held):
    """Look at what a module was called with, or at what a loader gave."""
    global left
    left -= 1
    if torch._C._len_torch_function_stack() or quiet.is_watched(torch) or torch.is_inference_mode_enabled():
        return
    begin = now()
    with torch.no_grad():
        found = [
            _measure(torch, each) for each in batches.tensors_in(torch, held)[0] if _is_tokens(torch, each)
        ]
    # Of tensors of one shape (tokens, their mask, their types) one that is not padding says that the position counts.
    widest = max((each[:2] for each in found if each), default=None)
    alike = [each for each in found if each and each[:2] == widest]
    if alike and (name in _seen or len(_seen) < MOST_NAMES):
        (rows, width), columns, cells = widest, *(min(each[at] for each in alike) for at in (2, 3))
        sums = _seen.setdefault(name, [0, 0, 0, 0, 0])
        sums[:] = [a + b for a, b in zip(sums, (1, width, columns, rows * width, cells))]  # noqa: B905 - Python 3.8
        journal.fact("padding/" + name, "%d %d %d %d %d" % tuple(sums))
    journal.record(begin, now() - begin, 0, journal.text("padding"), journal_format.PERFWRAP)


def _is_tokens(torch, tensor):
    return (
        tensor.dtype in (torch.int64, torch.int32)
        and tensor.dim() == 2
        and tensor.shape[0] >= LEAST_ROWS
        and tensor.shape[1] >= LEAST_WIDTH
        and tensor.numel() <= MOST_ELEMENTS
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
    )


def _measure(torch, tokens):
    """Return (rows, width, columns of padding only, numbers that are padding); None of what is the same all over."""
    at_end = _edge(torch, tokens.flip(1))
    if at_end is None:
        return None
    return (*tokens.shape, *max(at_end, _edge(torch, tokens)))


def _edge(torch, tokens):
    """Return how many columns, and numbers, the rows begin with that all equal the first of all."""
    same = (tokens == tokens[:, :1]).to(torch.int64).cumprod(1)
    same *= tokens[:, :1] == tokens[0, 0]
    columns = quiet.item(torch, same.prod(0).sum())
    if columns == tokens.shape[1]:
        return None
    return (columns, quiet.item(torch, same.sum())) if columns >= LEAST else (0, 0)


def _look_again():
    global left, _intervals
    _intervals += 1
    if not _intervals & (_intervals - 1):
        left = max(left, MORE_LOOKS)
