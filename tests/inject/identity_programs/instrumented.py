"""Prints MODULE:NAME of each function that the probes instrument or replace: instrumented.py INJECT.

early.py adds them to what the other programs look at, bare and under perfwrap.
"""

import sys
import warnings
from importlib import import_module

import torch

sys.path.insert(0, sys.argv[1])
from perfwrap_recorder import probes
from perfwrap_recorder.instrumenting import instrument, tensor_methods


def functions_of_torch():
    """Return what stands at each MODULE:NAME of torch: functions, and methods of classes."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch":
            for key, value in list(getattr(module, "__dict__", {}).items()):
                if isinstance(value, type) and value.__module__ == name:
                    for inner, method in vars(value).items():
                        found["%s:%s.%s" % (name, key, inner)] = method
                found["%s:%s" % (name, key)] = value
    return {path: value for path, value in found.items() if callable(value)}


def resolves(function):
    """Say whether a function stands where its names say."""
    found = sys.modules[function.__module__]
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return instrument.innermost(found) is function


def install():
    """Install every probe, as after an import of torch."""
    for probe in [import_module("perfwrap_recorder.probes." + name) for name in probes.PROBES]:
        for awaited, function in getattr(probe, "MODULES", {}).items():
            if awaited in sys.modules:
                function(sys.modules[awaited])
        if hasattr(probe, "install"):
            probe.install(torch)


warnings.simplefilter("ignore")  # deprecated classes warn when they are looked at
before = functions_of_torch()
install()
for function, _, _ in instrument._instrumented.values():
    if resolves(function):
        print("%s:%s" % (function.__module__, function.__qualname__))
for name in tensor_methods._installed:
    print("torch:Tensor." + name)
for path, value in functions_of_torch().items():
    if path in before and before[path] is not value:
        print(path)
