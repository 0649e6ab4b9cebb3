"""Says which optimizers' gradients are cleared before they were used. Replaces nothing.

optimizer.py and zero_grad.py tell what happens, in the first steps only. Thrown away is a gradient that came, or was
added to, since the last step of its optimizer and since it was last cleared, while another optimizer stepped and
nobody wrote to the parameter, and that is cleared then: fakes that were not detached, say. Of each optimizer one
parameter stands for all. Nothing is said where the backward pass had to go through the model anyway: where the model,
or one that shares parameters with it, was called with something that requires gradients, or holds parameters of
another optimizer.
"""

from __future__ import annotations

from _weakref import ref

from perfwrap_recorder import journal, quiet, seen_models

CLEARINGS = 64
"""Clearings of gradients that are looked at."""
SAID_EVERY = 4
"""The figures are said with every fourth gradient that was thrown away."""
MOST = 16
"""Optimizers that are told apart."""

left = CLEARINGS
_torch = None
_optimizers = {}  # id of an optimizer -> State
_before = []  # what is about to be cleared: (State, the gradient's mark)


class State:
    """What one optimizer's parameter was like at its last step, or when its gradient was cleared."""

    __slots__ = (
        "cleared",
        "mark",
        "name",
        "others",
        "parameter",
        "steps",
        "thrown",
        "used",
        "version",
        "wasted",
    )

    def __init__(self, name, parameter):
        self.name, self.parameter = name, ref(parameter)
        self.steps = self.cleared = self.thrown = 0
        self.wasted = self.used = 0  # backward passes whose gradients were thrown away, or used
        self.mark = None
        self.note(parameter)

    def note(self, parameter):
        """Remember the parameter as it is now."""
        self.version, self.mark, self.others = quiet.fingerprint(_torch, parameter), _mark(parameter), False

    def passes(self, mark):
        """Return how many backward passes came since the last note: each writes to the gradient."""
        if mark is None:
            return 0
        is_same = self.mark is not None and self.mark[0] == mark[0]
        return max(0, mark[1] - self.mark[1] if is_same else mark[1] + 1)


def stepped(torch, optimizer, name):
    """Note a step that has just been made."""
    global _torch
    _torch = torch
    # A mode or subclass of the program's must not see these questions, here and below.
    with torch._C.DisableTorchFunction():
        _step(optimizer, name)


def _step(optimizer, name):
    state = _optimizers.get(id(optimizer))
    for each in _optimizers.values():
        each.others = each.others or each is not state
    parameter = state and state.parameter()
    if parameter is None:
        groups = getattr(optimizer, "__dict__", {}).get("param_groups")
        parameter = _first(groups) if type(groups) is list else None
        if parameter is None or len(_optimizers) >= MOST:
            return
        state = _optimizers[id(optimizer)] = State(name, parameter)
    else:
        state.used += state.passes(_mark(parameter))
    state.steps += 1
    state.note(parameter)


def clearing():
    """Note what stands before some gradients are cleared."""
    _before.clear()
    if left > 0 and _optimizers:
        with _torch._C.DisableTorchFunction():
            _before.extend((state, _mark(state.parameter())) for state in list(_optimizers.values()))


def cleared():
    """See what was cleared, and whether anybody had used it."""
    global left
    if left <= 0:
        return
    left -= 1
    if _optimizers:
        with _torch._C.DisableTorchFunction():
            _compare()
    _before.clear()


def _compare():
    for state, before in _before:
        parameter = state.parameter()
        after = _mark(parameter)
        if before is not None and after != before:
            is_unused = state.others and quiet.fingerprint(_torch, parameter) == state.version
            passes = state.passes(before)
            state.mark, state.others = after, False
            state.cleared += 1
            if passes and is_unused:
                state.wasted += passes
                state.thrown += 1
                if state.thrown % SAID_EVERY == 0:
                    _say(state, parameter)


def _say(state, parameter):
    models = [(model, {id(each) for each in module.parameters()}) for model, module in seen_models.alive()]
    holders = [each for each in models if id(parameter) in each[1]]
    if not holders:
        return
    model, own = max(holders, key=lambda each: len(each[1]))
    others = [each.parameter() for each in _optimizers.values() if each is not state]
    if any(other.fed for other, parameters in models if not own.isdisjoint(parameters)):
        return
    if not any(id(other) in own for other in others if other is not None):
        counts = state.thrown, state.cleared, state.steps, state.wasted, state.used, model.calls
        journal.fact("optimizer/%s/thrown" % state.name, "%d %d %d %d %d %d %s" % (*counts, model.name))


def _mark(parameter):
    gradient = None if parameter is None else parameter.grad
    return None if gradient is None else (id(gradient), gradient._version)


def _first(groups):
    """Return the first parameter that has a gradient."""
    for group in groups:
        for each in group["params"]:
            if type(each) is _torch.nn.Parameter and each.is_leaf and each.grad is not None:
                return None if each.is_inference() else each
    return None
