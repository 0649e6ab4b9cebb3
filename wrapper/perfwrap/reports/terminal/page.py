"""A page of text for a terminal: wrapped, indented, safe to show, plain where Unicode is missing."""

from __future__ import annotations

import io
import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from perfwrap.shown_text import harmless, visible

MIN_COLUMNS = 20
"""Narrower terminals wrap these lines themselves; COLUMNS=0 means that the width is unknown."""
MAX_COLUMNS = 120
"""Longer lines are hard to read."""

EIGHTHS = " ▏▎▍▌▋▊▉"
"""The last cell of a bar, by eighths."""

ASCII = str.maketrans({"µ": "u", "·": "-", "│": "|", "…": "~", "→": ">"})
"""Replacements for characters that an ASCII terminal cannot show."""


class Page:
    """Collects lines and writes them to a stream at once; ``width`` is their maximum width."""

    def __init__(self, stream: TextIO, width: int | None = None) -> None:
        self._stream = stream
        probe = Console(file=stream, width=width)
        self.width = min(max(probe.width, MIN_COLUMNS), MAX_COLUMNS)
        self.ascii_only = probe.options.ascii_only
        self._buffer = io.StringIO()
        self._console = Console(
            file=self._buffer,
            width=self.width,
            force_terminal=probe.is_terminal,
            no_color=probe.no_color,
            color_system=probe.color_system if probe.is_terminal else None,  # type: ignore[arg-type]
            highlight=False,
            markup=False,
            emoji=False,
        )

    def line(self, *pieces: tuple[str, str], indent: int = 0) -> None:
        """Add one line of (text, style) pieces, never wrapped: for what is copied or already fits."""
        self._print(Text.assemble(" " * indent, *((self._shown(text), style) for text, style in pieces)))

    def paragraph(self, text: str, style: str = "", indent: int = 0, hanging: str = "") -> None:
        """Add wrapped text; ``hanging`` comes before the first line, the other lines are indented as far."""
        body = Text(self._shown(text), style=style)
        lines = body.wrap(self._console, max(MIN_COLUMNS, self.width - indent - len(hanging)))
        for number, wrapped in enumerate(lines):
            wrapped.rstrip()
            lead = (hanging if number == 0 else "").ljust(len(hanging))
            self._print(Text.assemble(" " * indent, (lead, "bold"), wrapped))

    def blank(self) -> None:
        """Add an empty line."""
        self._print(Text())

    def text(self) -> str:
        """Return what has been collected."""
        return self._buffer.getvalue()

    def show(self) -> None:
        """Write the page; a closed pipe is not an error."""
        try:
            self._stream.write(self.text())
            self._stream.flush()
        except BrokenPipeError:
            # The interpreter would flush the stream again at exit and print an error.
            if self._stream is sys.stdout:
                sys.stdout = io.StringIO()

    def fitted(self, text: str, columns: int) -> str:
        """Return the text on one line of so many columns, shortened in the middle if it is longer."""
        shown = visible(text)
        if len(shown) <= columns:
            return shown
        tail = (columns - 1) * 2 // 3
        return f"{shown[: columns - 1 - tail]}…{shown[-tail:]}"

    def clipped(self, text: str, columns: int) -> str:
        """Return the text on one line of so many columns, shortened at the end if it is longer."""
        shown = visible(text)
        return shown if len(shown) <= columns else f"{shown[: columns - 1]}…"

    def bar(self, share: float, columns: int) -> str:
        """Return a bar that fills so much of the columns."""
        if self.ascii_only:
            return "#" * round(share * columns)
        full, rest = divmod(round(8 * share * columns), 8)
        return ("█" * full + EIGHTHS[rest]).strip()

    def _shown(self, text: str) -> str:
        """Return the text in characters that this terminal can show."""
        safe = visible(text)
        return safe.translate(ASCII).encode("ascii", "backslashreplace").decode() if self.ascii_only else safe

    def _print(self, text: Text) -> None:
        """Print a finished line without trailing blanks, so that no part of it is a command of a CI service."""
        text.rstrip()
        safe = harmless(text.plain)
        if safe != text.plain:
            text = Text(safe, style=text.style)
        self._console.print(text, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
