"""Writes for how many rows of its embeddings an optimizer's first step had gradients. Replaces nothing.

A large parameter of a class that is not torch's own, with as many rows as a table, may be one: such programs read rows
by an index. model_facts.py finds the weights; optimizer.py calls this once for each optimizer, after its first step.
Of each gradient about a thousand rows are read, evenly spread, and only on a CPU: on a GPU the host would have to wait
for the answer.
"""

from __future__ import annotations

from perfwrap_recorder import static_access
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import model_parts, tensor_access, weak_table

MIN_ELEMENTS = 100_000
"""Smaller tables cost an optimizer at most a tenth of a millisecond."""
MIN_ROWS = 1_000
"""A parameter with fewer rows that is in no embedding is taken for another kind of weight."""
MAX_SHARE = 0.25
"""The same if it has gradients in a larger share of its rows."""
MAX_ROWS = 4_096
"""Maximum number of rows of a gradient that are read."""
MAX_TABLES = 256

_torch = None
_tables = {}  # id of a weight -> a weak reference to its module


def note(torch, module):
    """Remember the large tables of a model that have gradients for all of their rows.

    For ``tensor_access.look``.
    """
    global _torch
    _torch = torch
    for _, part in model_parts.modules_of(torch, module):
        for weight in _tables_of(torch, part):
            if len(_tables) < MAX_TABLES and weight.numel() >= MIN_ELEMENTS:
                # Not to the weight: ``torch.utils.swap_tensors`` refuses what has weak references.
                _tables[id(weight)] = weak_table.reference(_tables, id(weight), part)


def _tables_of(torch, part):
    """Return the parameters of a module, without those inside it, that may be tables."""
    if static_access.is_a(part, torch.nn.Embedding, torch.nn.EmbeddingBag):
        found = [weight_of(part)] if static_access.own(part).get("sparse") is False else []
    elif static_access.module_of(type(part)).startswith("torch.nn."):
        return []
    else:
        found = [each for each in _parameters_of(part) if type(each) is torch.nn.Parameter]
        found = [each for each in found if each.dim() == 2 and each.shape[0] >= MIN_ROWS]
    return [each for each in found if type(each) is torch.nn.Parameter]


def describe(torch, weights, key):
    """Write how many elements an optimizer has, and of those in large embeddings, how many had a gradient.

    LATER: it would be observed at present.
    """
    return (
        tensor_access.calculate(torch, _describe, torch, weights, key)
        if tensor_access.are_gradients_free()
        else None
    )


def _describe(torch, weights, key):
    if _torch is None or any(type(weight) is not torch.nn.Parameter for weight in weights):
        return
    rows = elements = 0
    touched = 0.0
    journal.fact(key + "/elements", sum([weight.numel() for weight in weights]))
    for weight in weights:
        known = _tables.get(id(weight))
        part = known and known()
        is_table = part is not None and any(each is weight for each in _parameters_of(part))
        share = _touched_share(weight.grad) if is_table else None
        # Other parameters have gradients in most rows or, beside a weight that is still zero, in none.
        if share is not None and (weight_of(part) is weight or 0.0 < share <= MAX_SHARE):
            rows += weight.shape[0]
            elements += weight.numel()
            touched += share * weight.numel()
    if elements:
        journal.fact(key + "/embedding_rows", rows)
        journal.fact(key + "/embedding_elements", elements)
        journal.fact(key + "/embedding_touched", "%.4f" % (touched / elements))


def weight_of(part):
    """Return the weight of a table; not by attribute, which could run the program's code."""
    parameters = static_access.own(part).get("_parameters")
    return dict.get(parameters, "weight") if static_access.is_a(parameters, dict) else None


def _parameters_of(part):
    return [each for _, each in static_access.items_of(static_access.own(part).get("_parameters"))]


def _touched_share(gradient):
    """Return the share of a gradient's rows that are not all zero; None if it cannot be read without waiting."""
    if type(gradient) is not _torch.Tensor or gradient.layout is not _torch.strided or gradient.dim() != 2:
        return None
    if gradient.device.type != "cpu" or not gradient.shape[0]:
        return None
    # An odd distance: indices that a program uses are often multiples of a round number.
    seen = gradient[:: -(-gradient.shape[0] // MAX_ROWS) | 1]
    return tensor_access.item(_torch, (seen != 0).any(1).sum()) / seen.shape[0]
