"""Prints MODULE:NAME of each function that the probes instrument: instrumented.py INJECT.

early.py adds them to what the other programs look at, bare and under perfwrap.
"""

import sys
from importlib import import_module

import torch

sys.path.insert(0, sys.argv[1])
from perfwrap_recorder import probes
from perfwrap_recorder.instrumenting import instrument, tensor_methods


def resolves(function):
    """Say whether a function stands where its names say."""
    found = sys.modules[function.__module__]
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return instrument.innermost(found) is function


for probe in [import_module("perfwrap_recorder.probes." + name) for name in probes.PROBES]:
    for awaited, install in getattr(probe, "MODULES", {}).items():
        if awaited in sys.modules:
            install(sys.modules[awaited])
    if hasattr(probe, "install"):
        probe.install(torch)
for function, _ in instrument._instrumented.values():
    if resolves(function):
        print("%s:%s" % (function.__module__, function.__qualname__))
for name in tensor_methods._installed:
    print("torch:Tensor." + name)
