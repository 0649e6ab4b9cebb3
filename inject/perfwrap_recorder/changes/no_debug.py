"""Switches off debugging aids that cost time.

Removes ``CUDA_LAUNCH_BLOCKING`` and similar variables from the environment before torch is loaded, and skips
``torch.autograd.detect_anomaly``, ``set_detect_anomaly`` and ``torch.cuda.set_sync_debug_mode``. The program's own
profiler is not changed.
"""

from __future__ import annotations

import os
from sys import _getframe

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import wrapping

OFF = {
    "CUDA_LAUNCH_BLOCKING": ("", "0"),
    "HIP_LAUNCH_BLOCKING": ("", "0"),
    "AMD_SERIALIZE_KERNEL": ("", "0"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("", "0"),
    "TORCH_DISTRIBUTED_DEBUG": ("", "OFF"),
    "TORCH_SHOW_CPP_STACKTRACES": ("", "0"),
}
"""Variables, and the values that cost no time."""


def prepare(change):
    """Clear the environment, which torch reads when it is loaded."""
    for name, harmless in OFF.items():
        value = os.environ.get(name, "")
        if value not in harmless:
            del os.environ[name]
            change.apply(None, "%s=%s" % (name, value), "%s unset" % name)


def install(torch, change):
    """Skip debugging modes."""
    modes = torch.autograd.anomaly_mode
    wrapping.patch(torch, modes.detect_anomaly, "__enter__", _maker_of_enter(change), over=True)
    wrapping.patch(torch, modes.set_detect_anomaly, "__init__", _maker_of_set(change), over=True)
    wrapping.patch(torch, torch.cuda, "set_sync_debug_mode", _maker_of_mode(change), over=True)


def is_in_torch(frame):
    """Return whether a frame runs torch's own code."""
    return frame.f_globals.get("__name__", "").partition(".")[0] == "torch"


def _maker_of_enter(change):
    def make(original, _):
        def wrapper(self):
            if is_in_torch(_getframe().f_back):  # it learns where gradients come from when it compiles
                return original(self)
            guard.run(change.key, change.apply, _getframe().f_back, "detect_anomaly()", "left out")
            return None

        return wrapper

    return make


def _maker_of_set(change):
    def make(original, _):
        def wrapper(self, mode, *arguments, **options):
            if mode and is_in_torch(_getframe().f_back):
                return original(self, mode, *arguments, **options)
            if mode:
                guard.run(change.key, change.apply, _getframe().f_back, "set_detect_anomaly(True)", "False")
            return original(self, False, *arguments, **options)

        return wrapper

    return make


def _maker_of_mode(change):
    def make(original, _):
        def wrapper(debug_mode):
            if debug_mode not in (0, "default"):
                before = "set_sync_debug_mode(%r)" % debug_mode
                guard.run(change.key, change.apply, _getframe().f_back, before, "left out")
                return None
            return original(debug_mode)

        return wrapper

    return make
