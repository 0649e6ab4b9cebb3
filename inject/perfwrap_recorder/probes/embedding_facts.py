"""Says how many rows of its embeddings an optimizer's first step had gradients for. Replaces nothing.

model_facts.py tells which weights are those of embeddings; optimizer.py asks, once for each optimizer, behind its first
step. Of each gradient some thousand rows are looked at, spread evenly, and on a CPU only: on a GPU the host would have
to wait for the answer.
"""

from __future__ import annotations

from perfwrap_recorder import journal, living, model_parts, plainly, quiet

LEAST_ELEMENTS = 100_000
"""Smaller tables cost an optimizer a tenth of a millisecond."""
MOST_ROWS = 4_096
"""So many rows of a gradient are looked at, at most."""
MOST_TABLES = 256

_torch = None
_tables = {}  # id of a weight -> a weak reference to its module


def note(torch, module):
    """Remember the large weights of a model's embeddings that have gradients for all of their rows.

    To be called by ``quiet.look``.
    """
    global _torch
    _torch = torch
    kinds = torch.nn.Embedding, torch.nn.EmbeddingBag
    for _, part in model_parts.modules_of(torch, module):
        if (
            plainly.is_a(part, *kinds)
            and plainly.own(part).get("sparse") is False
            and len(_tables) < MOST_TABLES
        ):
            weight = weight_of(part)
            if type(weight) is torch.nn.Parameter and weight.numel() >= LEAST_ELEMENTS:
                # Not to the weight: ``torch.utils.swap_tensors`` refuses what has weak references.
                _tables[id(weight)] = living.reference(_tables, id(weight), part)


def describe(torch, weights, key):
    """Say how many elements an optimizer has, and of those in large embeddings, how many had a gradient.

    LATER: nobody may ask at present.
    """
    return quiet.calculate(torch, _describe, torch, weights, key)


def _describe(torch, weights, key):
    if _torch is None or any(type(weight) is not torch.nn.Parameter for weight in weights):
        return
    rows = elements = 0
    touched = 0.0
    journal.fact(key + "/elements", sum([weight.numel() for weight in weights]))
    for weight in weights:
        known = _tables.get(id(weight))
        part = known and known()
        is_table = part is not None and weight_of(part) is weight
        share = _touched_share(weight.grad) if is_table else None
        if share is not None:
            rows += weight.shape[0]
            elements += weight.numel()
            touched += share * weight.numel()
    if elements:
        journal.fact(key + "/embedding_rows", rows)
        journal.fact(key + "/embedding_elements", elements)
        journal.fact(key + "/embedding_touched", "%.4f" % (touched / elements))


def weight_of(part):
    """Return the weight of a table; not by its name: where that is computed, the program's code would run."""
    parameters = plainly.own(part).get("_parameters")
    return dict.get(parameters, "weight") if plainly.is_a(parameters, dict) else None


def _touched_share(gradient):
    """The share of a gradient's rows that are not all zero; None where nobody can look without disturbing."""
    if type(gradient) is not _torch.Tensor or gradient.layout is not _torch.strided or gradient.dim() != 2:
        return None
    if gradient.device.type != "cpu" or not gradient.shape[0]:
        return None
    # An odd distance: rows that a program names are often multiples of a round number.
    seen = gradient[:: -(-gradient.shape[0] // MOST_ROWS) | 1]
    return quiet.item(_torch, (seen != 0).any(1).sum()) / seen.shape[0]
