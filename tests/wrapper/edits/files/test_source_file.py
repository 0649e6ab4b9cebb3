from __future__ import annotations

from pathlib import Path

import pytest
from perfwrap.edits.files.source_reader import read_source
from perfwrap.edits.outcome import Refusal


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a = 1\r\nb = 2\rc = 3\n",
        b"\xef\xbb\xbf# \xc3\xa4\n",
        "# -*- coding: latin-1 -*-\n'ä'\n".encode("latin-1"),
        "# coding: euc-jp\n'日本'\n".encode("euc-jp"),
        b"#!/bin/sh\n# vim: set fileencoding=cp1252 :\n'\x80'\n",
    ],
)
def test_a_text_is_written_as_it_was_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.py").write_bytes(content)
    file = read_source(tmp_path / "x.py")
    assert file.encoded(file.text) == content
    assert not file.text.startswith("\ufeff")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"'\xff'\n", "not text in the encoding"),
        (b"# coding: none-such\n", "not text in the encoding"),
        (b"# coding: utf-7\n'+AGEAYg-'\n", "cannot be encoded as it is"),
        (None, "cannot be read: No such file"),
    ],
)
def test_what_cannot_be_written_unchanged_is_refused(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / "x.py").write_bytes(content)
    with pytest.raises(Refusal, match=reason):
        read_source(tmp_path / "x.py")


def test_a_character_that_the_encoding_lacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes(b"# coding: latin-1\n")
    with pytest.raises(Refusal, match="lacks a new character"):
        read_source(tmp_path / "x.py").encoded("'€'")
