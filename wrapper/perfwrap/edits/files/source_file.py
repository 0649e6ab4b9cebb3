"""A Python file that is edited: its text, and the edited text as the file is encoded."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from perfwrap.edits.outcome import Refusal

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
