"""Standard output and standard error that may be closed, full, or no longer read: no command breaks on that.

As with other Unix tools, a failed write is reported on standard error and makes the command fail. A reader that closes
the pipe (``| head -1``) is not a failure: the command continues to its end and exits as if all had been read.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from types import TracebackType
from typing import Any, TextIO

from perfwrap.launch import descriptors
from perfwrap.shown_text import say

ERRORS = "perfwrap.bytes_or_escapes"
"""How to write text that the encoding cannot represent: names of files as their bytes, characters as escapes."""


class Guarded(io.RawIOBase):
    """Writes to a descriptor; after a failed write, all data is dropped and ``failure`` holds the reason."""

    def __init__(self, descriptor: int, is_open: bool) -> None:
        self._descriptor, self._drops = descriptor, False
        self._is_open = is_open
        self.failure: OSError | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: Any, /) -> int:
        """Write some of the data, or drop all of it."""
        while not self._drops:
            try:
                if not self._is_open:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                return os.write(self._descriptor, data)
            except BlockingIOError:
                # The parent process made the descriptor non-blocking; a slow reader is not a failure.
                select.select([], [self._descriptor], [])
            except OSError as error:
                self._drops = True
                self.failure = None if error.errno == errno.EPIPE else error
        return len(data)


class StandardStreams:
    """Puts guarded streams in place of the real ones for a block, and fails where output could not be written.

    Streams that were replaced by others, such as a test, are not changed.
    """

    def __init__(self, exit_code: int) -> None:
        self._exit_code = exit_code
        self._output: Guarded | None = None

    def __enter__(self) -> None:
        """Replace the streams."""
        were_open = [_is_open(number) for number in range(3)]
        if not all(were_open):
            # Else a file of ours would get the number, and be taken for standard output.
            descriptors.fill_standard()
        codecs.register_error(ERRORS, _bytes_or_escapes)
        if sys.stdout is sys.__stdout__:
            self._output = Guarded(1, were_open[1])
            sys.stdout = _over(self._output, sys.stdout, ERRORS)
        if sys.stderr is sys.__stderr__ or not were_open[2]:
            sys.stderr = _over(Guarded(2, were_open[2]), sys.stderr, "backslashreplace")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left, and report a failed write."""
        if self._output is None:
            return
        sys.stdout.flush()
        failure = self._output.failure
        if failure is not None and (kind is None or issubclass(kind, SystemExit)):
            say(f"perfwrap: cannot write to standard output: {failure.strerror}.")
            raise SystemExit(self._exit_code)


def _is_open(descriptor: int) -> bool:
    """Return whether this process has such a stream."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _over(raw: Guarded, before: TextIO | None, errors: str) -> TextIO:
    """Return a text stream like the one before, over a guarded one; standard error is buffered by line."""
    encoding = before.encoding if before is not None else "utf-8"
    # Under PYTHONUNBUFFERED both write through. `perfwrap run` exits without a flush, so no line may stay in a buffer.
    is_prompt = isinstance(before, io.TextIOWrapper) and (before.line_buffering or before.write_through)
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffered, encoding=encoding, errors=errors, line_buffering=is_prompt or raw.fileno() == 2
    )


def _bytes_or_escapes(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return what to write instead of characters that cannot be encoded."""
    for handler in ("surrogateescape", "backslashreplace"):
        try:
            return codecs.lookup_error(handler)(error)
        except UnicodeError:
            continue
    raise error
