"""Says how many of the models' parameters get gradients that nobody uses. Replaces nothing.

seen_models.py tells which models there are; optimizer.py asks behind a step: after the first STEPS steps of all
optimizers, twice more as many steps later, and then about every ten seconds. Unused is the gradient of a parameter that
no living optimizer has which has stepped, where from look to look, twice in a row, the gradient changed and the
parameter did not: some programs update parameters by themselves. Tables of embeddings, of which only some rows change,
are left out.
"""

from __future__ import annotations

from perfwrap_recorder import journal, model_parts, plainly, quiet, seen_models
from perfwrap_recorder.probes import embedding_facts, thrown_gradients

STEPS = 8
"""Steps of optimizers before the first look, and between the first three."""
IN_A_ROW = 2
MOST_PARAMETERS = 2_000
"""Larger models are not looked at: that would take milliseconds."""
MOST_COMPARED = 200
"""So many parameters without an optimizer are compared in one model, at some 20 us each."""

KEPT = 10_000
"""Parameters after which what was known of them is forgotten."""

left = STEPS  # steps of optimizers until the next look; 0 for none
_looks = 0
_before = {}  # id of a parameter that no optimizer has -> its fingerprint, its gradient's, and looks it was unused in
_said = {}  # what was said last


def install():
    """Look again every ten seconds."""
    journal.every_interval.add(_look_again)


def look(torch, optimizers):
    """Look at all models' parameters; ``optimizers`` are all that have stepped."""
    global left, _looks
    found = quiet.calculate(torch, _look, torch, optimizers)
    if found is quiet.LATER:
        left = 1
        return
    _looks += 1
    left = STEPS if _looks <= IN_A_ROW else 0
    found = [(name, words) for name, words in found if words]
    if _said or any(words[2] for _, words in found):
        for name, words in found:
            if _said.get(name) != words:
                _said[name] = words
                journal.fact("model/%s/gradients" % name, "%d %d %d %d %s" % words)


def _look(torch, optimizers):
    if len(_before) > KEPT:
        _before.clear()
    updated = {id(each) for optimizer in optimizers for each in thrown_gradients.parameters_of(optimizer)}
    return [(model.name, _look_at(torch, module, updated)) for model, module in seen_models.alive()]


def _look_at(torch, module, updated):
    """Return tensors and elements with gradients, those that are unused, and the first unused one's name."""
    mine = model_parts.parameters_of(torch, module, MOST_PARAMETERS)
    if not mine or len(mine) > MOST_PARAMETERS or not quiet.is_silent(torch, mine[0][1]):
        return None
    if quiet.value(torch, mine[0][1], "device").type != "cpu":
        return None
    # Of tables, only some rows change.
    tables = {
        id(embedding_facts.weight_of(each))
        for _, each in model_parts.modules_of(torch, module)
        if plainly.is_a(each, torch.nn.Embedding, torch.nn.EmbeddingBag)
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
        elif id(each) not in tables and not each.is_inference() and compared < MOST_COMPARED:
            compared += 1
            now = quiet.fingerprint(torch, each), quiet.fingerprint(torch, each.grad)
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
