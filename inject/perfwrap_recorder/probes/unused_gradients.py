"""Says how many of the models' parameters get gradients that nobody uses. Replaces nothing.

model_facts.py tells which models there are; optimizer.py asks behind a step, when all optimizers have stepped a few
times, some steps later, and then about every ten seconds. Unused is the gradient of a parameter that no optimizer
has, and that nobody has written to between two such looks: some programs update parameters by themselves.
"""

from __future__ import annotations

from _weakref import ref

from perfwrap_recorder import journal, quiet

STEPS = 8
"""Steps of optimizers before the first look, and between it and the second."""
MOST_MODELS, MOST_PARAMETERS = 16, 2_000
"""Larger models are not looked at: that would take milliseconds."""

left = STEPS  # steps of optimizers until the next look; 0 for none
_torch = None
_models = {}  # id of a model -> (weak reference to it, its name)
_versions = {}  # id of a parameter that no optimizer has -> its fingerprint
_said = {}  # what was said last


def install():
    """Look again every ten seconds."""
    journal.every_interval.add(_look_again)


def note(torch, module, name):
    """Remember a model."""
    global _torch
    _torch = torch
    if len(_models) < MOST_MODELS:
        _models[id(module)] = ref(module), name


def look(optimizers):
    """Look at all models' parameters; ``optimizers`` are all that have stepped."""
    global left
    left = 0 if _versions else STEPS
    if _torch is None:
        return
    # A mode or subclass of the program's must not see these questions.
    with _torch._C.DisableTorchFunction():
        updated = {id(each) for optimizer in optimizers for each in _parameters_of(optimizer)}
        for module, name in [(known(), name) for known, name in _models.values()]:
            if module is not None:
                _look_at(module, name, updated)


def _look_at(module, name, updated):
    mine = [(path, each) for path, each in module.named_parameters() if type(each) is _torch.nn.Parameter]
    if len(mine) > MOST_PARAMETERS:
        return
    with_gradient = [(path, each) for path, each in mine if each.is_leaf and each.grad is not None]
    unused = []
    for path, each in with_gradient:
        if id(each) not in updated and not each.is_inference():
            version = quiet.fingerprint(_torch, each)
            if _versions.get(id(each)) == version:
                unused.append((path, each))
            _versions[id(each)] = version
    words = "%d %d %d %d %s" % (
        len(with_gradient),
        sum(each.numel() for _, each in with_gradient),
        len(unused),
        sum(each.numel() for _, each in unused),
        unused[0][0] if unused else "",
    )
    if (unused or name in _said) and _said.get(name) != words:
        _said[name] = words
        journal.fact("model/%s/gradients" % name, words)


def _parameters_of(optimizer):
    # Not asked of the optimizer itself: a class of the user's may compute it.
    groups = getattr(optimizer, "__dict__", {}).get("param_groups")
    return [each for group in groups for each in group["params"]] if type(groups) is list else []


def _look_again():
    global left
    left = left or 1
