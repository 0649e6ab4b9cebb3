"""Says how many rows of its embeddings an optimizer's first step had gradients for. Replaces nothing.

model_facts.py tells which weights are those of embeddings; optimizer.py asks, once for each optimizer, behind its first
step. Of each gradient some thousand rows are looked at, spread evenly, and on a CPU only: on a GPU the host would have
to wait for the answer.
"""

from __future__ import annotations

from _weakref import ref

from perfwrap_recorder import journal, quiet

LEAST_ELEMENTS = 100_000
"""Smaller tables cost an optimizer a tenth of a millisecond."""
MOST_ROWS = 4_096
"""So many rows of a gradient are looked at, at most."""
MOST_TABLES = 256

_torch = None
_tables = {}  # id of a weight -> a weak reference to its module


def note(torch, module):
    """Remember the large weights of a model's embeddings that have gradients for all of their rows."""
    global _torch
    _torch = torch
    kinds = torch.nn.Embedding, torch.nn.EmbeddingBag
    for part in torch.nn.Module.modules(module):  # not an override of the program
        if isinstance(part, kinds) and not part.sparse and len(_tables) < MOST_TABLES:
            # Not part.weight: where that is computed, asking for it would run the program's code.
            weight = part._parameters.get("weight")
            if type(weight) is torch.nn.Parameter and weight.numel() >= LEAST_ELEMENTS:
                # Not to the weight: ``torch.utils.swap_tensors`` refuses what has weak references.
                _tables[id(weight)] = ref(part)


def describe(groups, key):
    """Say how many elements an optimizer has, and of those in large embeddings, how many had a gradient."""
    weights = [weight for group in groups for weight in group["params"]]
    if _torch is None or any(type(weight) is not _torch.nn.Parameter for weight in weights):
        return
    rows = elements = 0
    touched = 0.0
    # A mode or subclass of the program's must not see these questions.
    with _torch._C.DisableTorchFunction(), _torch.no_grad():
        journal.fact(key + "/elements", sum(weight.numel() for weight in weights))
        if quiet.is_watched(_torch):
            return
        for weight in weights:
            known = _tables.get(id(weight))
            part = known and known()
            is_table = part is not None and part._parameters.get("weight") is weight
            share = _touched_share(weight.grad) if is_table else None
            if share is not None:
                rows += weight.shape[0]
                elements += weight.numel()
                touched += share * weight.numel()
    if elements:
        journal.fact(key + "/embedding_rows", rows)
        journal.fact(key + "/embedding_elements", elements)
        journal.fact(key + "/embedding_touched", "%.4f" % (touched / elements))


def _touched_share(gradient):
    """The share of a gradient's rows that are not all zero; None where nobody can look without disturbing."""
    if type(gradient) is not _torch.Tensor or gradient.layout is not _torch.strided or gradient.dim() != 2:
        return None
    if gradient.device.type != "cpu" or not gradient.shape[0]:
        return None
    # An odd distance: rows that a program names are often multiples of a round number.
    seen = gradient[:: -(-gradient.shape[0] // MOST_ROWS) | 1]
    return quiet.item(_torch, (seen != 0).any(1).sum()) / seen.shape[0]
