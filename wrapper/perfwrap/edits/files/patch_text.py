"""Writes edited files as one unified diff, which ``git apply`` and ``patch -p1`` accept.

The diff is bytes: each file keeps its encoding and its line endings. Names are relative to the root of the git
repository that has all the files, else to their deepest common folder, which ``root_of`` returns: that is where to
apply it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from perfwrap.edits.files.source_file import SourceFile

CONTEXT_LINES = 3
NO_NEW_LINE = b"\\ No newline at end of file\n"
ESCAPES = {ord('"'): b'\\"', ord("\\"): b"\\\\", ord("\t"): b"\\t", ord("\n"): b"\\n", ord("\r"): b"\\r"}


def patch(edited: Mapping[SourceFile, bytes]) -> bytes:
    """Return the diff of files with new contents, in the order of their paths; empty if none differs."""
    if not edited:
        return b""
    root = root_of(file.path for file in edited)
    files = sorted(edited.items(), key=lambda pair: pair[0].path)
    return b"".join(
        _file_diff(os.fsencode(file.path.relative_to(root)), file.content, new) for file, new in files
    )


def root_of(paths: Iterable[Path]) -> Path:
    """Return the root of the git repository of all paths, else their deepest common folder."""
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)


def _file_diff(name: bytes, old: bytes, new: bytes) -> bytes:
    """Return the diff of one file, with the header that git writes for a change of content."""
    if old == new:
        return b""
    before, after = _quoted(b"a/" + name), _quoted(b"b/" + name)
    # After a tab stands a time, which both programs ignore; without the tab a name would end at its first space.
    end = b"\t\n" if b" " in name and not before.startswith(b'"') else b"\n"
    head = b"diff --git %s %s\n--- %s%s+++ %s%s" % (before, after, before, end, after, end)
    return head + b"".join(_hunks(_lines(old), _lines(new)))


def _hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    """Return the changed places with the lines around them."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        first, last = group[0], group[-1]
        yield b"@@ -%s +%s @@\n" % (_range(first[1], last[2]), _range(first[3], last[4]))
        for tag, old_begin, old_end, new_begin, new_end in group:
            if tag == "equal":
                yield from (_marked(b" ", line) for line in old[old_begin:old_end])
                continue
            yield from (_marked(b"-", line) for line in old[old_begin:old_end])
            yield from (_marked(b"+", line) for line in new[new_begin:new_end])


def _range(begin: int, end: int) -> bytes:
    """Return a range of lines as a hunk's head has it; an empty one is named by the line before it."""
    count = end - begin
    return b"%d,%d" % (begin + (count > 0), count)


def _marked(mark: bytes, line: bytes) -> bytes:
    return mark + line if line.endswith(b"\n") else mark + line + b"\n" + NO_NEW_LINE


def _lines(content: bytes) -> list[bytes]:
    """Return the lines with their endings, split only at line feeds, as both programs do."""
    parts = content.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _quoted(name: bytes) -> bytes:
    """Return a name as git writes it: in quotes if it has a character that would end it."""
    if not any(character in ESCAPES or character < 32 for character in name):
        return name
    return b'"' + b"".join(ESCAPES.get(character) or _escaped(character) for character in name) + b'"'


def _escaped(character: int) -> bytes:
    return b"\\%03o" % character if character < 32 else bytes([character])
