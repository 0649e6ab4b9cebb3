"""The changes that an experiment can make to the program; one file each, loaded only if requested.

A change is a module with ``install(torch, change)``, called when torch has been imported, after the probes, or with
``prepare(change)``, called before, or both. ``change`` is a ``Change`` of ``experiments/change.py``: its name and
value, and how its result is reported. wrapper/perfwrap/experiments/changes.py has the same table; a test compares both.

Facts of each process report the result of a change, NAME without the value::

    change/NAME/status   applied, refused, or unused (it never came into effect)
    change/NAME/reason   why not, or what to consider; one sentence
    change/NAME/sites    up to twenty places, joined by U+001E; each is file, line, before and after, joined by U+001F
    change/NAME/count    how often something was changed
"""

from __future__ import annotations

from importlib import import_module

from perfwrap_recorder import guard, on_import
from perfwrap_recorder.experiments.change import Change

FIX, NUMERICS, CEILING = "fix", "numerics", "ceiling"

CHANGES = (
    ("expandable-segments", FIX, "expandable_segments"),
    ("no-debug", FIX, "no_debug"),
    ("threads", FIX, "threads"),
    ("batch-size", NUMERICS, "batch_size"),
    ("workers", FIX, "workers"),
    ("prefetch", FIX, "prefetch"),
    ("pin-memory", FIX, "pin_memory"),
    ("persistent-workers", FIX, "persistent_workers"),
    ("cached-batch", CEILING, "cached_batch"),
    ("non-blocking", FIX, "non_blocking"),
    ("tf32", NUMERICS, "tf32"),
    ("cudnn-benchmark", FIX, "cudnn_benchmark"),
    ("compile", NUMERICS, "compile"),
    ("bf16", NUMERICS, "bf16"),
    ("fp16", NUMERICS, "fp16"),
    ("channels-last", FIX, "channels_last"),
    ("fused-optimizer", FIX, "fused_optimizer"),
    ("set-to-none", FIX, "set_to_none"),
    ("no-empty-cache", FIX, "no_empty_cache"),
    ("defer-item", CEILING, "defer_item"),
    ("no-checkpoint", CEILING, "no_checkpoint"),
    ("no-validation", CEILING, "no_validation"),
    ("gc-freeze", FIX, "gc_freeze"),
)
"""Name, kind and module, in the order in which they are installed."""


def prepare(words):
    """Prepare the changes that these words request: now, and at the end of torch's import."""
    requested = dict(word.partition("=")[::2] for word in words)
    for name, _, module_name in CHANGES:
        if name in requested:
            change = Change(name, requested[name])
            module = guard.run(change.key, import_module, __name__ + "." + module_name)
            if hasattr(module, "prepare"):
                guard.run(change.key, module.prepare, change)
            if hasattr(module, "install"):
                on_import.after("torch", _installer(module, change))


def _installer(module, change):
    def install(torch):
        change.torch = torch
        module.install(torch, change)

    return guard.protect(change.key, install)
