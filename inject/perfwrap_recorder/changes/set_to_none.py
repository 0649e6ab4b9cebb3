"""Clears gradients with ``set_to_none=True`` if the program passes False.

Replaces ``Optimizer.zero_grad`` and ``Module.zero_grad``. Has no effect if they are set to None already.
"""

from __future__ import annotations

from sys import _getframe

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import wrapping
from perfwrap_recorder.program import call_sites


def install(torch, change):
    """Set gradients to None from now on."""
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        default = call_sites.default_of(owner.zero_grad, "set_to_none")
        wrapping.patch(torch, owner, "zero_grad", _maker(change, default), over=True)


def _maker(change, default):
    def make(original, is_compiling):
        def wrapper(self, *arguments, **options):
            if is_compiling() or len(arguments) > 1:
                return original(self, *arguments, **options)
            value = call_sites.option(arguments, options, 0, "set_to_none", default)
            if value:
                if not change.count:
                    guard.run(change.key, change.explain, "gradients are set to None already")
                return original(self, *arguments, **options)
            guard.run(change.key, change.apply, _getframe().f_back, "set_to_none=False", "set_to_none=True")
            return original(self, set_to_none=True)

        return wrapper

    return make
