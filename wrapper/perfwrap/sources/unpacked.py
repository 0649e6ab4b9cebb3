"""Opens files that may be gzipped; of damaged ones everything before the damage can be read."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import TracebackType
from typing import IO

GZIP = b"\x1f\x8b"
PACKED = 1 << 18
"""Packed bytes that are read at once."""
STEP = 1 << 16
"""Bytes that are unpacked at once: so much is lost before a damaged place."""
WITH_HEADER = 31
"""Tells zlib to expect gzip's header and checksum."""


class Damaged(Exception):
    """Packed data end too early, or are none."""


class Unpacked:
    """A file's content, unpacked where it is gzipped."""

    def __init__(self, path: Path) -> None:
        """Open the file; OSError when that fails."""
        self._file: IO[bytes] = path.open("rb")
        self._packed = self._file.read(len(GZIP)) == GZIP
        self._file.seek(0)
        self._decoder = zlib.decompressobj(WITH_HEADER)
        self._waiting = b""

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Return about ``size`` bytes, none at the end; Damaged when nothing is left before damage."""
        if not self._packed:
            return self._file.read(size)
        found, total = [], 0
        try:
            while total < size and (more := self._unpack()):
                found.append(more)
                total += len(more)
        except (zlib.error, Damaged) as error:
            if not found:
                raise Damaged(str(error)) from error
        return b"".join(found)

    def _unpack(self) -> bytes:
        """Return the next bytes, none at the end."""
        while True:
            if not self._waiting:
                self._waiting = self._file.read(PACKED)
            if self._decoder.eof:
                # Several packed pieces may follow each other, and zeros behind the last one.
                self._waiting = self._waiting.lstrip(b"\0")
                if not self._waiting:
                    return b""
                self._decoder = zlib.decompressobj(WITH_HEADER)
            if not self._waiting:
                raise Damaged("the packed data break off")
            found = self._decoder.decompress(self._waiting, STEP)
            self._waiting = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
            if found:
                return found


def first_bytes(path: Path, size: int) -> bytes:
    """Return the first bytes of a file's content, as many as can be read; OSError when it cannot be opened."""
    with Unpacked(path) as file:
        try:
            return file.read(size)
        except Damaged:
            return b""
