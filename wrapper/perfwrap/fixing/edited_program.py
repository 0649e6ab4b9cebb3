"""The program with several edits: new contents of its files, as an overlay to run and as a patch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from perfwrap.edits import edit
from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.source_file import SourceFile, read_source
from perfwrap.fixing.candidates import Candidate
from perfwrap.launch.options import EditedFile

Contents = Mapping[SourceFile, bytes]
"""The edited files with their new contents."""


def make(candidates: Iterable[Candidate]) -> Contents:
    """Return the files with all of these edits; raises Refusal if one does not apply together with the others."""
    texts: dict[Path, tuple[SourceFile, str]] = {}
    for one in candidates:
        file = read_source(one.path)
        _, text = texts.get(file.path, (file, file.text))
        for name, target in ((one.edit, one.target), *one.more):
            line = _line_now(file.text, text, target.line)
            done = edit(name, text, Target(line, target.values, target.words))
            if not isinstance(done, Edited):
                raise Refusal(done.reason)
            text = done.text
        texts[file.path] = file, text
    return {file: file.encoded(text) for file, text in texts.values()}


def overlay(contents: Contents) -> tuple[EditedFile, ...]:
    """Return the files for ``perfwrap run --overlay``."""
    return tuple(EditedFile(file.path, file.content, new) for file, new in contents.items())


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
