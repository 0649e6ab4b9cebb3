"""Edits of the user's Python source: each one is a module that changes a line and what belongs to it, or refuses.

An edit is a function ``edit(source, target)``. It returns the new text and one sentence about the change, or raises
``Refusal`` with the reason. Everything that it does not change stays byte for byte. A second application is refused,
because the change is already there. LibCST parses the text and is loaded only when an edit is requested.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from perfwrap.edits.outcome import Edited, NothingThere, Refusal, Refused, Target

EDITS = {
    "loader_options": "data",
    "thread_count": "process",
    "optimizer_options": "optimizer",
    "library_optimizer": "optimizer",
    "zero_grad_option": "optimizer",
    "transfer_option": "data",
    "evaluation_mode": "loop",
    "summed_values": "loop",
    "kept_values": "loop",
    "last_value": "loop",
    "rare_logging": "output",
    "debug_calls": "process",
    "cleanup_calls": "process",
    "frozen_garbage": "process",
    "log_softmax_call": "model",
    "retained_graph": "backward",
    "summed_backward": "backward",
    "gathered_parts": "loop",
    "mapped_loop": "loop",
    "hoisted_tensors": "loop",
    "hoisted_calls": "loop",
    "buffered_tensors": "model",
    "averaged_weights": "optimizer",
    "reused_copy": "optimizer",
    "background_save": "output",
    "checkpoint_interval": "output",
    "repeated_forward": "model",
    "kept_results": "model",
    "detached_fakes": "backward",
    "frozen_discriminator": "backward",
    "frozen_parameters": "backward",
    "accumulated_sync": "backward",
    "sliced_head": "model",
    "unchecked_distribution": "model",
    "cached_items": "data",
}
"""The edits, by the names of their modules, and the folder of each."""


def module_of(name: str) -> ModuleType:
    """Import the module of an edit: it has the function ``edit(source, target)``."""
    return import_module(f"perfwrap.edits.{EDITS[name]}.{name}")


def edit(name: str, text: str, target: Target) -> Edited | Refused:
    """Return what the edit of that name makes of a source text, or why it makes nothing of it."""
    from perfwrap.edits.syntax.source_tree import parse

    try:
        source = parse(text)
        edited: Edited = module_of(name).edit(source, target)
        if edited.text == text:
            raise Refusal("Nothing is left to change.")
        parse(edited.text)
    except Refusal as refusal:
        return Refused(refusal.reason, isinstance(refusal, NothingThere))
    return edited
