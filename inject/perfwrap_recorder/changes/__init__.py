"""The changes that an experiment makes to the program; one file for each, none loaded unless it is asked for.

A change is a module with ``install(torch, change)``, called when torch has been imported, after the probes, or with
``prepare(change)``, called before, or both. ``change`` is a ``perfwrap_recorder.change.Change``: what was asked, and
how it is said what became of it. wrapper/perfwrap/experiments/changes.py has the same table; a test compares them.

What becomes of each change is said in facts of the process that it is made in, NAME without the value::

    change/NAME/status   applied, refused, or unused (it never came into effect)
    change/NAME/reason   why not, or what to bear in mind; one sentence
    change/NAME/sites    up to twenty places, joined by U+001E; each is file, line, before and after, joined by U+001F
    change/NAME/count    how often something was changed
"""

from __future__ import annotations

from importlib import import_module

from perfwrap_recorder import guard, on_import
from perfwrap_recorder.change import Change

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
    """Get the changes ready that these words ask for: now, and at the end of torch's import."""
    asked = dict(word.partition("=")[::2] for word in words)
    for name, _, module_name in CHANGES:
        if name in asked:
            change = Change(name, asked[name])
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
