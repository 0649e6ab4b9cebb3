"""Says which optimizers' gradients are cleared before they were used. Replaces nothing.

optimizer.py, zero_grad.py and forward.py tell what happens, in the first steps only. Thrown away is a gradient that
came, or was added to, since the last step of its optimizer, while another optimizer stepped and nobody wrote to
the parameter, and that is cleared then: fakes that were not detached, say. Of each optimizer one parameter stands for
all. Where a model of its is called with something that requires gradients, the backward pass had to go through it
anyway, so that is told, too.
"""

from __future__ import annotations

from _weakref import ref

from perfwrap_recorder import batches, journal, quiet

CLEARINGS = 64
"""Clearings of gradients that are looked at."""
SAID_EVERY = 4
"""The figures are said with every so manieth gradient that was thrown away."""
MOST = 16
"""Optimizers and models that are told apart."""

left = CLEARINGS
_torch = None
_optimizers = {}  # id of an optimizer -> State
_models = {}  # name -> [weak reference to a model, calls with gradients, those with an input that requires gradients]
_before = []  # what is about to be cleared: (State, the gradient's mark)


class State:
    """What one optimizer's parameter was like at its last step, or when its gradient was cleared."""

    __slots__ = ("cleared", "mark", "name", "others", "parameter", "steps", "thrown", "version")

    def __init__(self, name, parameter):
        self.name, self.parameter = name, ref(parameter)
        self.steps = self.cleared = self.thrown = 0
        self.note(parameter)

    def note(self, parameter):
        """Remember the parameter as it is now."""
        self.version, self.mark, self.others = quiet.fingerprint(_torch, parameter), _mark(parameter), False


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
    state.steps += 1
    state.note(parameter)


def called(torch, module, name, held):
    """Note a call of a model with gradients; ``held`` is what it was called with."""
    if name not in _models and len(_models) < MOST:
        _models[name] = [ref(module), 0, 0]
    if name in _models and not torch._C._len_torch_function_stack():
        _models[name][1] += 1
        _models[name][2] += any(each.requires_grad for each in batches.tensors_in(torch, held)[0])


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
            is_new = before != state.mark and quiet.fingerprint(_torch, parameter) == state.version
            state.cleared += 1
            state.mark = after
            if is_new and state.others:
                state.thrown += 1
                if state.thrown % SAID_EVERY == 0:
                    _say(state, parameter)


def _say(state, parameter):
    for name, (known, calls, fed) in _models.items():
        module = known()
        if module is not None and any(each is parameter for each in module.parameters()):
            words = "%d %d %d %d %d %s" % (state.thrown, state.cleared, state.steps, calls, fed, name)
            journal.fact("optimizer/%s/thrown" % state.name, words)
            return


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
