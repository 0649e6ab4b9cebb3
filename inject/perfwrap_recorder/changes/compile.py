"""Compiles outermost modules by ``Module.compile``, or the module inside DistributedDataParallel.

Refuses for what is compiled already and if this Python or PyTorch cannot compile. If the compiler fails at the first
call (for example without a C++ compiler), the module is called as before, and the change is reported as refused.
"""

from __future__ import annotations

from perfwrap_recorder.experiments import outermost_modules

WRAPPER = "DistributedDataParallel"
COMPILED = ("OptimizedModule", "ScriptModule", "RecursiveScriptModule", "TopLevelTracedModule")
FAILURE = "TorchDynamoException"
"""The base class of all failures of the compiler; its module is loaded with the compiler only."""

MAX_REASON_LENGTH = 300


def install(torch, change):
    """Compile outermost modules."""
    mode = change.value or "default"

    def layer(module, call, frame):
        target = module.module if type(module).__name__ == WRAPPER else module
        name = type(target).__name__
        if name in COMPILED or vars(target).get(outermost_modules.SLOT) is not None:
            change.refuse("%s is compiled already" % name)
            return None
        try:
            torch.nn.Module.compile(target, mode=mode)
        except (RuntimeError, TypeError, ValueError) as error:
            change.refuse("PyTorch does not compile %s: %s" % (name, first_line(error)))
            return None
        compiled = falling_back(change, vars(target)[outermost_modules.SLOT], target._call_impl, name)
        change.apply(frame, "%s not compiled" % name, "compile(mode=%r)" % mode)
        target.__dict__[outermost_modules.SLOT] = compiled
        return compiled if target is module else None

    if not hasattr(torch.nn.Module, "compile"):
        change.refuse("this version of PyTorch is too old for it")
        return
    outermost_modules.add(torch, change, layer)


def falling_back(change, compiled, eager, name):
    """Return a call of the compiled module, or of the module itself once the compiler has failed."""
    calls = [compiled]

    def call(*arguments, **options):
        try:
            return calls[0](*arguments, **options)
        except RuntimeError as error:  # all failures of the compiler are RuntimeErrors
            if calls[0] is eager or not is_failure(error):
                raise
            calls[0] = eager
            change.take_back("the compiler failed for %s: %s" % (name, first_line(error)))
        return eager(*arguments, **options)

    return call


def is_failure(error):
    """Return whether the compiler raised the error, not the program."""
    return any(base.__name__ == FAILURE for base in type(error).__mro__)


def first_line(error):
    """Return the first line of an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:MAX_REASON_LENGTH]
