"""Edits of the user's Python source: each one is a module that changes a line and what belongs to it, or refuses.

An edit is a function ``edit(source, target)``. It returns the new text and one sentence about the change, or raises
``Refusal`` with the reason. Everything that it does not change stays byte for byte. A second application is refused,
because the change is already there. LibCST parses the text and is loaded only when an edit is requested.
"""

from __future__ import annotations

from importlib import import_module

from perfwrap.edits.outcome import Edited, Refusal, Refused, Target

EDITS = (
    "loader_options",
    "thread_count",
    "optimizer_options",
    "zero_grad_option",
    "transfer_option",
    "evaluation_mode",
    "summed_values",
    "kept_values",
    "last_value",
    "rare_logging",
    "debug_calls",
    "cleanup_calls",
    "frozen_garbage",
    "log_softmax_call",
    "retained_graph",
    "summed_backward",
    "gathered_parts",
    "mapped_loop",
    "hoisted_tensors",
    "hoisted_calls",
    "buffered_tensors",
    "averaged_weights",
    "reused_copy",
    "checkpoint_interval",
    "repeated_forward",
    "detached_fakes",
    "frozen_discriminator",
    "frozen_parameters",
    "accumulated_sync",
    "sliced_head",
    "cached_items",
)
"""The edits, by the names of their modules."""


def edit(name: str, text: str, target: Target) -> Edited | Refused:
    """Return what the edit of that name makes of a source text, or why it makes nothing of it."""
    from perfwrap.edits.syntax.source_tree import parse

    try:
        source = parse(text)
        edited: Edited = import_module(f"perfwrap.edits.{name}").edit(source, target)
        if edited.text == text:
            raise Refusal("Nothing is left to change.")
        parse(edited.text)
    except Refusal as refusal:
        return Refused(refusal.reason)
    return edited
