"""Sets the number of threads: of torch by ``set_num_threads``, of other libraries by their variables.

The variables are set before torch is loaded; a library that was loaded before keeps its number. A number that the
program sets itself is replaced, in loaders' workers too; the single thread that torch gives each worker stays.
"""

from __future__ import annotations

import os
from sys import _getframe

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import wrapping
from perfwrap_recorder.program.source_lines import is_torch_internal

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


_before = []  # what the first variable was


def prepare(change):
    """Set the variables, for what is loaded from now on and for other processes that the program starts."""
    _before.append(os.environ.get(VARIABLES[0]))
    for name in VARIABLES:
        os.environ[name] = change.value


def install(torch, change):
    """Set the number of threads, and keep it."""
    wanted = int(change.value)

    def make(original, _):
        def wrapper(number):
            if number == wanted or is_torch_internal(_getframe().f_back):
                return original(number)
            before, after = "set_num_threads(%s)" % number, "set_num_threads(%d)" % wanted
            guard.run(change.key, change.apply, _getframe().f_back, before, after)
            return original(wanted)

        return wrapper

    if _before == [change.value]:
        change.explain("there are %d threads already" % wanted)
    else:
        torch.set_num_threads(wanted)
        change.apply(None, "OMP_NUM_THREADS=%s" % (_before[0] or ""), "%d threads" % wanted)
    wrapping.patch(torch, torch, "set_num_threads", make, over=True)
