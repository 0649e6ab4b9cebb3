"""Skips writes to the user's files while an experiment runs.

Replaces ``torch.save`` and, where the program imports them, ``safetensors.torch.save_file``, the function by which
Lightning writes checkpoints, and ``Trainer._save_checkpoint`` of transformers, which also deletes older ones. They
return None. ``torch.save`` still writes to buffers in memory. Not skipped: files that the program opens itself.
"""

from __future__ import annotations

import io
from sys import _getframe

from perfwrap_recorder import guard, on_import
from perfwrap_recorder.instrumenting import wrapping

IN_LIBRARIES = (
    ("safetensors.torch", "", "save_file"),
    ("lightning.fabric.utilities.cloud_io", "", "_atomic_save"),
    ("lightning_fabric.utilities.cloud_io", "", "_atomic_save"),
    ("transformers.trainer", "Trainer", "_save_checkpoint"),
)
"""Module, class in it or "", and function."""

_listeners = []  # functions(frame, name), called for each skipped write


def install(torch, listener):
    """Skip writes from now on, and call ``listener(frame, name)`` for each."""
    is_first = not _listeners
    _listeners.append(guard.protect("skipped_writes", listener))
    if not is_first:
        return
    wrapping.patch(torch, torch.serialization, "save", _make_save, over=True)
    torch.save = torch.serialization.save
    for module, owner, name in IN_LIBRARIES:
        on_import.after(module, guard.protect("skipped_writes", _patcher(torch, owner, name)))


def _patcher(torch, owner, name):
    def patch(module):
        wrapping.patch(torch, getattr(module, owner) if owner else module, name, _make, over=True)

    return patch


def _make_save(original, _):
    def wrapper(*arguments, **options):
        target = arguments[1] if len(arguments) > 1 else options.get("f")
        if not is_file(target):
            return original(*arguments, **options)
        for listener in _listeners:
            listener(_getframe().f_back, "torch.save")
        return None

    return wrapper


def _make(original, _):
    def wrapper(*arguments, **options):
        for listener in _listeners:
            listener(_getframe().f_back, original.__name__)

    return wrapper


def is_file(target):
    """Return whether that is a path or an open file that has one; anything else is a buffer."""
    if isinstance(target, (str, bytes)) or hasattr(target, "__fspath__"):
        return True
    if isinstance(target, (io.BytesIO, type(None))):
        return False
    try:
        target.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True
