"""Writes how many of the models' parameters get gradients that are not used. Replaces nothing.

seen_models.py lists the models; optimizer.py calls this after a step: STEPS steps after a new optimizer's first one,
twice more as many steps later, and then about every ten seconds. A gradient is unused if no living optimizer that has
stepped has its parameter, and if from check to check, twice in a row, the gradient changed and the parameter did not:
some programs update parameters by themselves. Tables of embeddings, of which only some rows change,
are left out.
"""

from __future__ import annotations

from perfwrap_recorder import static_access
from perfwrap_recorder.journal import journal
from perfwrap_recorder.probes.loop import discarded_gradients, embedding_facts
from perfwrap_recorder.program import model_parts, seen_models, tensor_access

STEPS = 8
"""Steps of optimizers before the first check, and between the first three."""
IN_A_ROW = 2
MAX_PARAMETERS = 2_000
"""Larger models are not checked: that would take milliseconds."""
MAX_COMPARED = 200
"""Parameters without an optimizer that are compared per model, at about 20 us each."""

KEPT = 10_000
"""Maximum number of remembered parameters; then all are forgotten."""

left = STEPS  # steps of optimizers until the next check; 0 for none
_looks = 0
_before = {}  # id of a parameter that no optimizer has -> its and its gradient's fingerprint, unused checks
_written = {}  # what was written last


def install():
    """Check again every ten seconds."""
    journal.every_interval.add(_look_again)


def begin_again():
    """Check soon: another optimizer steps, so another training may have begun."""
    global left, _looks
    left, _looks = STEPS, 0


def look(torch, optimizers):
    """Check all models' parameters; ``optimizers`` are all that have stepped."""
    global left, _looks
    if not tensor_access.are_gradients_free():
        return
    found = tensor_access.calculate(torch, _look, torch, optimizers)
    if found is tensor_access.LATER:
        left = 1
        return
    _looks += 1
    left = STEPS if _looks <= IN_A_ROW else 0
    found = [(name, words) for name, words in found if words]
    if _written or any(words[2] for _, words in found):
        for name, words in found:
            if _written.get(name) != words:
                _written[name] = words
                journal.fact("model/%s/gradients" % name, "%d %d %d %d %s" % words)


def _look(torch, optimizers):
    if len(_before) > KEPT:
        _before.clear()
    updated = {id(each) for optimizer in optimizers for each in discarded_gradients.parameters_of(optimizer)}
    return [(model.name, _look_at(torch, module, updated)) for model, module in seen_models.alive()]


def _look_at(torch, module, updated):
    """Return tensors and elements with gradients, those that are unused, and the first unused one's name."""
    mine = model_parts.parameters_of(torch, module, MAX_PARAMETERS)
    if not mine or len(mine) > MAX_PARAMETERS or not tensor_access.is_silent(torch, mine[0][1]):
        return None
    if tensor_access.value(torch, mine[0][1], "device").type != "cpu":
        return None
    # In tables, only some rows change.
    tables = {
        id(embedding_facts.weight_of(each))
        for _, each in model_parts.modules_of(torch, module)
        if static_access.is_a(each, torch.nn.Embedding, torch.nn.EmbeddingBag)
    }
    with_gradient, unused, compared = [], [], 0
    for path, each in mine:
        if (
            type(each) is not torch.nn.Parameter
            or not (each.requires_grad and each.is_leaf)
            or each.grad is None
        ):
            continue
        if id(each) in updated:
            with_gradient.append(each)
        elif id(each) not in tables and not each.is_inference() and compared < MAX_COMPARED:
            compared += 1
            now = tensor_access.fingerprint(torch, each), tensor_access.fingerprint(torch, each.grad)
            before = _before.get(id(each), (*now, 0))
            is_new = before[1] != now[1]
            in_a_row = before[2] + 1 if is_new and before[0] == now[0] else 0
            _before[id(each)] = (*now, in_a_row)
            if is_new:
                with_gradient.append(each)
            if in_a_row >= IN_A_ROW:
                unused.append((path, each))
    return (
        len(with_gradient),
        sum(each.numel() for each in with_gradient),
        len(unused),
        sum(each.numel() for _, each in unused),
        unused[0][0] if unused else "",
    )


def _look_again():
    global left
    left = left or 1
