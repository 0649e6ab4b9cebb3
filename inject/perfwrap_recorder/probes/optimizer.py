"""Times each step of each optimizer, and of the gradient scalers around them.

Registers a global pre- and post-hook with ``torch.optim.optimizer`` and replaces ``GradScaler.step``. The
user could notice the hooks in torch's private tables and, in a traceback through a scaler, one more frame.

A step that raises has no post-hook. So nothing is recorded of it, and what was begun is dropped when the same
optimizer steps again.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from _weakref import ref
from itertools import count

from perfwrap_recorder import guard, journal, ranges, wrapping
from perfwrap_recorder.clock import now
from perfwrap_recorder.probes import torch_facts
from perfwrap_recorder.source_lines import label

MAXIMUM_OPTIMIZERS = 100
"""How many instances are told apart."""

_stacks = {}  # thread -> stack of (id of an optimizer, start)
_next_number = count(1).__next__
_numbers = {}  # id of an optimizer -> (weak reference to it, its number, its name)


def install(torch):
    """Watch from now on."""
    hooks = sys.modules["torch.optim.optimizer"]  # torch.optim takes the name out of itself
    if any(map(wrapping.is_wrapper, hooks._global_optimizer_pre_hooks.values())):
        return
    is_compiling = wrapping.find_is_compiling(torch)
    push, pop = ranges.find(torch) or (None, None)

    def begin_step(optimizer, *_):
        if is_compiling():
            return
        _begin(optimizer)
        if push:
            push("optimizer")

    def end_step(optimizer, *_):
        if is_compiling():
            return
        if pop:
            pop()
        _end(optimizer, now())

    for function in (begin_step, end_step):
        wrapping.hide(torch, function)
    hooks.register_optimizer_step_pre_hook(begin_step)
    hooks.register_optimizer_step_post_hook(end_step)
    for path in ("amp.grad_scaler", "cuda.amp.grad_scaler"):
        _install_scaler(torch, path)
    journal.after_fork.add(_forget_other_threads)
    journal.cover("probe/optimizer")


def _install_scaler(torch, path):
    owner = torch
    for name in path.split(".") + ["GradScaler"]:
        owner = getattr(owner, name, None)
    # Only the class that has a step of its own: torch.cuda's is a subclass in newer versions.
    if "step" in vars(owner or object):
        wrapping.patch(torch, owner, "step", wrapping.timed(_finish_scaler), "optimizer")


def _begin(optimizer):
    stack = _stacks.get(get_ident())
    if stack is None:
        stack = _stacks[get_ident()] = []
    for place, (other, _) in enumerate(stack):
        if other == id(optimizer):
            del stack[place:]
            break
    stack.append((id(optimizer), now()))


def _end(optimizer, moment):
    stack = _stacks.get(get_ident())
    if not stack or stack[-1][0] != id(optimizer):
        return
    start = stack.pop()[1]
    known = _numbers.get(id(optimizer))
    if known is None or known[0]() is not optimizer:
        known = _number(optimizer)
    journal.span(start, moment - start, 0, label(known[2], sys._getframe(2)), journal.OPTIMIZER)
    journal.end_step(journal.OPTIMIZER, known[1], moment)


def _finish_scaler(start, duration, _):
    journal.span(start, duration, 0, label("GradScaler.step", sys._getframe(2)), journal.SCALER_STEP)


def _number(optimizer):
    """Return (weak reference, number, name) for an optimizer that is new, and say what it is."""
    number = _next_number()
    if number > MAXIMUM_OPTIMIZERS:
        return ref(optimizer), number, type(optimizer).__name__ + "#more"
    name = "%s#%d" % (type(optimizer).__name__, number)
    known = _numbers[id(optimizer)] = ref(optimizer), number, name
    guard.run("optimizer_facts", _describe, optimizer, "optimizer/" + name)
    torch_facts.look()
    return known


def _describe(optimizer, key):
    kind = type(optimizer)
    journal.fact(key + "/class", "%s.%s" % (kind.__module__, kind.__qualname__))
    groups = optimizer.param_groups
    journal.fact(key + "/parameters", sum(len(group["params"]) for group in groups))
    for option in ("foreach", "fused", "capturable"):
        if option in groups[0]:
            journal.fact("%s/%s" % (key, option), groups[0][option])


def _forget_other_threads():
    here = get_ident()
    for thread in list(_stacks):
        if thread != here:
            del _stacks[thread]
