"""Reads a Python file or a notebook for an edit."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

from perfwrap.edits.files.notebook_file import SUFFIX, NotebookFile
from perfwrap.edits.files.source_file import SourceFile
from perfwrap.edits.outcome import Refusal
from perfwrap.private_files import read_plain

MAX_BYTES = 16 << 20


def read_source(path: Path) -> SourceFile:
    """Return a file; raises Refusal if it cannot be read or is not text in the encoding that it declares."""
    try:
        real = path.resolve(strict=True)
        content = read_plain(real, MAX_BYTES)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        kind = NotebookFile if real.suffix == SUFFIX else SourceFile
        found = kind(real, content, encoding.replace("utf-8-sig", "utf-8"))
        # Some encodings have several byte sequences for one text: such a file could not be written unchanged.
        if found.encoded(found.text) != content:
            raise Refusal(f"{path} cannot be encoded as it is.")
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error.strerror or error}.") from None
    except (SyntaxError, UnicodeError, RuntimeError):
        raise Refusal(f"{path} is not text in the encoding that it declares.") from None
    return found
