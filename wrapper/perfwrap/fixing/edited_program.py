"""The program with several edits: new contents of its files, as an overlay to run and as a patch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from perfwrap.edits.files.edited_text import with_edit
from perfwrap.edits.files.source_file import SourceFile
from perfwrap.edits.files.source_reader import read_source
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
            text = with_edit(file.text, text, name, target)
        texts[file.path] = file, text
    return {file: file.encoded(text) for file, text in texts.values()}


def overlay(contents: Contents) -> tuple[EditedFile, ...]:
    """Return the files for ``perfwrap run --overlay``."""
    return tuple(EditedFile(file.path, file.content, new) for file, new in contents.items())
