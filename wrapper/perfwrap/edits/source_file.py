"""Reads a Python file or a notebook for an edit, and encodes the edited text as the file is encoded."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

from msgspec import Struct

from perfwrap.edits.outcome import Refusal
from perfwrap.private_files import read_plain

MAX_BYTES = 16 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SourceFile(Struct, frozen=True):
    """A file as it was read."""

    path: Path
    """Without links: the file that an edit has to change."""
    content: bytes
    encoding: str

    @property
    def text(self) -> str:
        """The text with its own line endings, without a byte order mark."""
        return self.content.removeprefix(BYTE_ORDER_MARK).decode(self.encoding)

    @property
    def shown_text(self) -> str:
        """The text as people read it."""
        return self.text

    def encoded(self, text: str) -> bytes:
        """Return the content of the file with another text; raises Refusal if the encoding lacks a character."""
        mark = BYTE_ORDER_MARK if self.content.startswith(BYTE_ORDER_MARK) else b""
        try:
            return mark + text.encode(self.encoding)
        except UnicodeEncodeError:
            raise Refusal(
                f"{self.path.name} is encoded in {self.encoding}, which lacks a new character."
            ) from None


def read_source(path: Path) -> SourceFile:
    """Return a file; raises Refusal if it cannot be read or is not text in the encoding that it declares."""
    try:
        real = path.resolve(strict=True)
        content = read_plain(real, MAX_BYTES)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        kind = _notebook() if real.suffix == ".ipynb" else SourceFile
        found = kind(real, content, encoding.replace("utf-8-sig", "utf-8"))
        # Some encodings have several byte sequences for one text: such a file could not be written unchanged.
        if found.encoded(found.text) != content:
            raise Refusal(f"{path} cannot be encoded as it is.")
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error.strerror or error}.") from None
    except (SyntaxError, UnicodeError, RuntimeError):
        raise Refusal(f"{path} is not text in the encoding that it declares.") from None
    return found


def _notebook() -> type[SourceFile]:
    """Return the class of notebooks, which is a kind of source file."""
    from perfwrap.edits.notebook_file import NotebookFile

    return NotebookFile
