"""Adds one edit after another to a text: each names a line of the original text."""

from __future__ import annotations

import difflib

from msgspec.structs import replace

from perfwrap.edits import edit
from perfwrap.edits.outcome import Edited, Refusal, Target


def with_edit(original: str, now: str, name: str, target: Target) -> str:
    """Return a text with one more edit; raises Refusal if it does not apply beside those that were made before.

    ``now`` is the original text with the earlier edits, the target's line one of the original text.
    """
    done = edit(name, now, replace(target, line=_line_now(original, now, target.line)))
    if not isinstance(done, Edited):
        raise Refusal(done.reason)
    return done.text


def _line_now(before: str, now: str, line: int) -> int:
    """Return where a line of the original text is after other edits; the nearest one if it was edited itself."""
    if before == now:
        return line
    old, new = before.splitlines(), now.splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for _, old_begin, old_end, new_begin, new_end in matcher.get_opcodes():
        if old_begin <= line - 1 < old_end:
            return min(new_begin + line - 1 - old_begin, max(new_begin, new_end - 1)) + 1
    return line
