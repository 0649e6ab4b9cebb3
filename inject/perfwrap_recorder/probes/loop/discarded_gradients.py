"""Writes which optimizers' gradients are cleared before they were used. Replaces nothing.

optimizer.py and zero_grad.py report the events, in the first steps only. A gradient is discarded if it came, or was
added to, since the last step of its optimizer and since it was last cleared, while another optimizer stepped and
the parameter was not written, and if it is then cleared: for example with fakes that were not detached. One parameter
represents all of an optimizer. Nothing is written if the backward pass may have had to go through the model: if the
model, or one that shares parameters with it, was called with something that requires gradients, if another optimizer
has parameters of it or of no seen module, or if there are several models of that name.

No weak reference to a parameter is kept: ``torch.utils.swap_tensors`` would refuse it.
"""

from __future__ import annotations

from _weakref import ref

from perfwrap_recorder import static_access
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import model_parts, seen_models, tensor_access

CLEARINGS = 64
"""Number of clearings of gradients that are checked."""
STEPS = 8 * CLEARINGS
"""Nothing is checked after this many steps, however rarely gradients are cleared."""
SAID_EVERY = 4
"""The figures are written with every fourth discarded gradient."""
MAX_OPTIMIZERS = 16
"""Maximum number of optimizers; nothing is written for further ones."""

left = CLEARINGS
_steps = 0
_torch = None
_optimizers = {}  # id of an optimizer -> State
_before = []  # what is about to be cleared: (State, the gradient's mark)


class State:
    """The state of one optimizer's parameter at its last step, or when its gradient was cleared."""

    def __init__(self, name, optimizer):
        self.name, self.optimizer = name, ref(optimizer)
        self.at = _first(parameters_of(optimizer))
        self.steps = self.cleared = self.thrown = 0
        self.wasted = self.used = 0  # backward passes whose gradients were discarded, or used
        self.version = self.mark = None
        self.others = False

    def parameter(self):
        """Return the parameter that represents all; None if there is none, or none any more."""
        parameters = parameters_of(self.optimizer()) if self.at is not None else ()
        return parameters[self.at] if parameters and self.at < len(parameters) else None

    def step(self, parameter):
        """Note a step, and the parameter as it is now."""
        self.steps += 1
        self.used += self.passes(_mark(parameter)) if self.version is not None else 0
        self.version, self.mark, self.others = (
            tensor_access.fingerprint(_torch, parameter),
            _mark(parameter),
            False,
        )

    def forget(self):
        """Forget everything until the next step."""
        self.version, self.mark, self.others = None, None, False

    def passes(self, mark):
        """Return how many backward passes came since the last note: each writes to the gradient."""
        if mark is None:
            return 0
        is_same = self.mark is not None and self.mark[0] == mark[0]
        return max(0, mark[1] - self.mark[1] if is_same else mark[1] + 1)


def stepped(torch, optimizer, name):
    """Note a step that has just been made."""
    global _torch, _steps, left
    _torch = torch
    _steps += 1
    if _steps >= STEPS or not tensor_access.are_gradients_free():
        left = 0
        return
    if tensor_access.calculate(torch, _step, optimizer, name) is tensor_access.LATER:
        for each in list(_optimizers.values()):
            each.forget()


def _step(optimizer, name):
    state = _optimizers.get(id(optimizer))
    if state is None or state.optimizer() is not optimizer:
        if len(_optimizers) >= MAX_OPTIMIZERS:
            return
        state = _optimizers[id(optimizer)] = State(name, optimizer)
    for each in list(_optimizers.values()):
        each.others = each.others or each is not state
    parameter = state.parameter()
    if parameter is not None:
        state.step(parameter)


def clearing():
    """Note the state before gradients are cleared."""
    _before.clear()
    # With one optimizer there is no other that could step.
    if left > 0 and len(_optimizers) > 1 and tensor_access.are_gradients_free():
        tensor_access.look(_torch, _note_marks)


def _note_marks():
    _before.extend([(state, _mark(state.parameter())) for state in list(_optimizers.values())])


def cleared():
    """Count what was cleared, and whether it had been used."""
    global left
    if left <= 0 or not tensor_access.are_gradients_free():
        return
    left -= 1
    if _before:
        tensor_access.calculate(_torch, _compare)
    _before.clear()


def _compare():
    for state, before in list(_before):
        parameter = state.parameter()
        after = _mark(parameter)
        if before is not None and (after is None or after == (before[0], before[1] + 1)):
            is_unused = state.others and tensor_access.fingerprint(_torch, parameter) == state.version
            passes = state.passes(before)
            state.mark, state.others = after, False
            state.cleared += 1
            if passes and is_unused:
                state.wasted += passes
                state.thrown += 1
                if state.thrown % SAID_EVERY == 0:
                    _say(state, parameter)


def _say(state, parameter):
    models = [
        (model, {id(each) for _, each in model_parts.parameters_of(_torch, module)})
        for model, module in seen_models.alive()
    ]
    holders = [each for each in models if id(parameter) in each[1]]
    if not holders or len(_optimizers) >= MAX_OPTIMIZERS:
        return
    model, own = max(holders, key=lambda each: len(each[1]))
    if seen_models.is_one_of_several(model):
        return
    if any(other.fed for other, parameters in models if not own.isdisjoint(parameters)):
        return
    elsewhere = set().union(*(parameters for _, parameters in models)) - own
    others = [each.optimizer() for each in list(_optimizers.values()) if each is not state]
    if all(id(each) in elsewhere for other in others for each in parameters_of(other)):
        counts = state.thrown, state.cleared, state.steps, state.wasted, state.used, model.calls
        journal.fact("optimizer/%s/thrown" % state.name, "%d %d %d %d %d %d %s" % (*counts, model.name))


def _mark(parameter):
    # For a tensor that is no leaf, torch warns when its gradient is read.
    if parameter is None or not tensor_access.is_plain(_torch, parameter):
        return None
    gradient = parameter.grad if parameter.is_leaf else None
    return None if gradient is None else (id(gradient), gradient._version)


def parameters_of(optimizer):
    """Return all parameters of an optimizer; none for None."""
    found = []
    for group in groups_of(optimizer):
        found += group["params"] if type(group.get("params")) is list else ()
    return found


def groups_of(optimizer):
    """Return the groups of parameters of an optimizer, those that are dictionaries of Python's own."""
    # Not by attribute: a class of the user may compute it.
    groups = static_access.own(optimizer).get("param_groups")
    return [each for each in groups if type(each) is dict] if type(groups) is list else []


def _first(parameters):
    """Return the place of the first parameter that has a gradient, None if there is none."""
    for at, each in enumerate(parameters):
        if (
            type(each) is _torch.nn.Parameter
            and each.is_leaf
            and each.grad is not None
            and not each.is_inference()
        ):
            return at
    return None
